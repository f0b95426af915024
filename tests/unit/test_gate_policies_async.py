"""Policies at the gate, for tasks: time limits, cancellation, fallbacks, the loop's lag."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest
from far_store import FarStore
from gate_tools import START
from policies_tools import BREAKER

from headgate import AsyncGate, Facts, Gate, ManualClock, Refused
from headgate.integrations.asgi import RateLimitMiddleware
from headgate.resilience import TimeLimitExceeded, time_left


def run(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(work)


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def test_a_breaker_opens_and_comes_back() -> None:
    async def main() -> None:
        clock = ManualClock(START)
        gate = AsyncGate(BREAKER, clock=clock)
        for _ in range(4):
            verdict = await gate.check(Facts(resource="pay"))
            assert await verdict.permit.release("failure")
            assert not await verdict.permit.release("failure")
        refused = await gate.check(Facts(resource="pay"))
        assert (refused.rule, refused.status) == ("pay", 503)
        assert not await refused.permit.release()
        assert [bool(each) for each in await gate.check_many([Facts(resource="pay")])] == [False]
        clock.advance(30.001)
        async with gate.enter("pay"):
            with pytest.raises(Refused):
                async with gate.enter("pay"):
                    pass
        assert gate.breaker("pay").state == "closed"

    run(main())


def test_a_call_that_takes_too_long_is_cancelled_and_counts_as_a_failure() -> None:
    async def main() -> None:
        clock = ManualClock(START)
        gate = AsyncGate(BREAKER + "    timeout: 2s\n", clock=clock)

        async def slow() -> None:
            async with gate.enter("pay"):
                assert time_left() == pytest.approx(2)
                await asyncio.sleep(3600)

        for _ in range(4):
            task = asyncio.create_task(slow())
            await turns()
            clock.advance(2.001)
            with pytest.raises(TimeLimitExceeded, match="longer than 2 s"):
                await task
        metrics = gate.breaker("pay").metrics()
        assert (metrics.failed, metrics.state, metrics.in_flight) == (4, "open", 0)

    run(main())


def test_a_cancelled_call_is_ignored_and_holds_nothing() -> None:
    async def main() -> None:
        gate = AsyncGate(BREAKER + "    timeout: 2s\n    bulkhead: 1\n", clock=ManualClock(START))

        async def slow() -> None:
            async with gate.enter("pay"):
                await asyncio.sleep(3600)

        for _ in range(3):
            task = asyncio.create_task(slow())
            await turns()
            assert gate.policies()["pay"]["in_flight"] == 1
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert gate.policies()["pay"]["in_flight"] == 0
        assert gate.breaker("pay").metrics().ignored == 3

    run(main())


def test_cancelled_while_it_waits_for_a_place() -> None:
    async def main() -> None:
        clock = ManualClock(START)
        more = "    bulkhead: {at_once: 1, queue: 5, wait: 60s}\n"
        gate = AsyncGate(BREAKER + more, clock=clock)
        held = await gate.check(Facts(resource="pay"))
        tasks = [asyncio.create_task(gate.check(Facts(resource="pay"))) for _ in range(2)]
        await turns()
        assert gate.policies()["pay"]["bulkhead_waiting"] == 2
        tasks[0].cancel()
        await turns()
        await held.permit.release()
        verdict = await tasks[1]
        assert verdict
        await verdict.permit.release()
        assert gate.policies()["pay"]["in_flight"] == 0
        metrics = gate.breaker("pay").metrics()
        assert (metrics.permitted, metrics.succeeded, metrics.ignored) == (3, 2, 1)

    run(main())


def test_fallbacks_and_retries_of_decorated_functions() -> None:
    async def main() -> None:
        more = "    fallback: {data: stale}\n    retry: {attempts: 2, pause: 1ms, safe: true}\n"
        gate = AsyncGate(BREAKER + more)
        calls = 0

        @gate.limited("pay")
        async def pay(wrong: int) -> str:
            nonlocal calls
            calls += 1
            if calls <= wrong:
                raise ConnectionError
            return "paid"

        assert await pay(1) == "paid"
        assert calls == 2
        assert await pay(99) == "stale"
        assert await pay(99) == "stale"
        assert calls == 4  # the breaker is open
        assert gate.breaker("pay").metrics().refused >= 1

        async def instead(wrong: int) -> str:
            return f"instead of {wrong}"

        gate._functions["a:b"] = instead
        gate.reload(BREAKER + "    fallback: {function: 'a:b'}\n")
        assert await pay(99) == "instead of 99"

    run(main())


def test_no_time_left_is_told_before_the_call() -> None:
    async def main() -> None:
        clock = ManualClock(START)
        gate = AsyncGate(BREAKER + "    timeout: 2s\n    bulkhead: 1\n", clock=clock)
        from headgate.resilience import TimeLimit

        limit = TimeLimit(1.0, clock=clock)
        before = limit.enter()
        clock.advance(1.5)
        with pytest.raises(TimeLimitExceeded, match="no time was left"):
            async with gate.enter("pay"):
                pass
        limit.leave(before)
        assert gate.policies()["pay"]["in_flight"] == 0

    run(main())


def test_the_lag_of_the_loop_is_watched() -> None:
    async def main(gate: AsyncGate) -> None:
        for _ in range(2):
            assert await gate.check(Facts())
        guards = gate._book.guards
        assert guards is not None
        assert guards.system is not None
        assert guards.system.values()["lag"] is not None
        guards.system.close()

    gate = AsyncGate("version: 1\nsystem: {loop_lag: 30s}\n")
    run(main(gate))
    run(main(gate))  # another loop is watched in its turn


def test_an_adapter_tells_the_breaker_by_its_responses() -> None:
    status = 500
    sent: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def main() -> list[int]:
        text = "version: 1\npolicies: [{name: app, breaker: {window: 2 calls, open: 9s}}]\n"
        middleware = RateLimitMiddleware(app, gate=AsyncGate(text, clock=ManualClock(START)))
        scope = {"type": "http", "method": "GET", "path": "/", "headers": [], "query_string": b"",
                 "client": ("192.0.2.7", 1), "raw_path": b"/"}  # fmt: skip
        for _ in range(3):
            await middleware(scope, receive, send)
        return [message["status"] for message in sent if "status" in message]

    assert run(main()) == [500, 500, 503]
    assert (b"retry-after", b"9") in sent[-2]["headers"]


@pytest.mark.parametrize(
    "rule", ["limit: 2/hour", "limit: 2 concurrent", "limits: [2/hour, 9/day]"]
)
def test_a_store_that_blocks(rule: str) -> None:
    text = f"""
version: 1
rules: [{{name: few, {rule}}}]
policies: [{{name: db, bulkhead: 5}}]
"""

    async def main() -> None:
        gate = AsyncGate(text, FarStore(ManualClock(START)))
        verdicts = [await gate.check(Facts()) for _ in range(3)]
        assert [bool(verdict) for verdict in verdicts] == [True, True, False]
        assert verdicts[2].rule == "few"
        assert gate.policies()["db"]["in_flight"] == 2
        for verdict in verdicts[:2]:
            assert await verdict.permit.release()
        assert gate.policies()["db"]["in_flight"] == 0
        await gate.close()

    run(main())
    plain = Gate(text, FarStore(ManualClock(START)))
    verdicts = [plain.check(Facts()) for _ in range(3)]
    assert [bool(verdict) for verdict in verdicts] == [True, True, False]
    assert plain.policies()["db"]["in_flight"] == 2
    for verdict in verdicts[:2]:
        assert verdict.permit.release()
    assert plain.policies()["db"]["in_flight"] == 0
    plain.close()
