"""Policies at the gate: partitions, lines, switches, pools, and what is around functions."""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
from typing import Any

import pytest
from gate_tools import START, until

from headgate import AsyncGate, Facts, Gate, ManualClock, Refused
from headgate.resilience import TimeLimitExceeded
from headgate.resilience.notices import Notice

LONG = 30.0


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(START)


def gate_of(policies: str, clock: ManualClock | None = None, rules: str = "") -> Gate:
    return Gate(f"version: 1\nrules: [{rules}]\npolicies: [{policies}]\n", clock=clock)


def admitted(gate: Any, count: int, **known: Any) -> list[Any]:
    """The verdicts of those of so many calls that were let in; they are under way."""
    found = [gate.check(Facts(resource="x", **known)) for _ in range(count)]
    return [verdict for verdict in found if verdict]


# -- adaptive limits: partitions and lines

SHARED = """{name: db, adaptive: {estimator: aimd, least: 1, initial: 10, most: 10,
  partitions: {by: "attribute:kind", shares: {checkout: 50%, search: 30%}LEND}}}"""


def test_partitions_have_their_shares(clock: ManualClock) -> None:
    gate = gate_of(SHARED.replace("LEND", ""), clock)
    searches = admitted(gate, 20, attributes={"kind": "search"})
    assert len(searches) == 10  # what nobody uses is lent
    checkouts = admitted(gate, 20, attributes={"kind": "checkout"})
    assert len(checkouts) == 5
    assert not admitted(gate, 5)  # of no partition: what is left
    assert not admitted(gate, 5, attributes={"kind": "else"})
    assert gate.policies()["db"]["partitions"] == {
        "checkout": {"in_flight": 5, "guaranteed": 5}, "search": {"in_flight": 10, "guaranteed": 3},
    }  # fmt: skip


def test_what_is_not_lent_stays_free(clock: ManualClock) -> None:
    gate = gate_of(SHARED.replace("LEND", ", lend: false"), clock)
    held = admitted(gate, 20, attributes={"kind": "search"})
    assert len(held) == 5
    assert len(admitted(gate, 20, attributes={"kind": "checkout"})) == 5
    gate.reload(  # another match and status: the same limit, and whoever is inside
        "version: 1\npolicies: ["
        + SHARED.replace("LEND", ", lend: false").replace("adaptive", "status: 500, adaptive")
        + "]\n"
    )
    refused = gate.check(Facts(resource="x", attributes={"kind": "search"}))
    assert (refused.status, refused.rule) == (500, "db")
    held[0].permit.release()


def test_calls_wait_for_an_adaptive_limit(clock: ManualClock) -> None:
    text = "{name: db, adaptive: {estimator: aimd, least: 1, initial: 1, queue: 1, wait: 60s}}"
    gate = gate_of(text, clock)
    (held,) = admitted(gate, 1)
    found: list[Any] = []
    waiting = threading.Thread(target=lambda: found.append(gate.check(Facts(resource="x"))))
    waiting.start()
    until(lambda: gate.policies()["db"]["adaptive_waiting"] == 1)
    refused = gate.check(Facts(resource="x"))
    assert (refused.rule, refused.why) == ("db", "the call was not let in: 1 calls wait already")
    held.permit.release()
    waiting.join(LONG)
    assert found[0]
    assert gate.check_many([Facts(resource="x")])[0].status == 503  # of many nobody waits


def test_tasks_wait_for_an_adaptive_limit(clock: ManualClock) -> None:
    text = "{name: db, adaptive: {estimator: aimd, least: 1, initial: 1, queue: 5, wait: 60s}}"
    gate = AsyncGate(f"version: 1\npolicies: [{text}]\n", clock=clock)

    async def main() -> None:
        held = await gate.check(Facts(resource="x"))
        later = asyncio.create_task(gate.check(Facts(resource="x")))
        gone = asyncio.create_task(gate.check(Facts(resource="x")))
        while gate.policies()["db"]["adaptive_waiting"] < 2:
            await asyncio.sleep(0)
        gone.cancel()
        await asyncio.wait([gone])
        await held.permit.release()
        verdict = await later
        assert verdict
        assert gate.policies()["db"]["in_flight"] == 1
        await verdict.permit.release()
        assert gate.policies()["db"]["in_flight"] == 0

    asyncio.run(main())


# -- breakers that the rules hold in a state

BREAKER = "{name: pay, breaker: {errors: 2, open: 30sMORE}KEY}"


def breaking(more: str = "", key: str = "") -> str:
    return BREAKER.replace("MORE", more).replace("KEY", key)


def rules(policies: str) -> str:
    return f"version: 1\npolicies: [{policies}]\n"


def test_a_switch_holds_and_lets_go(clock: ManualClock) -> None:
    gate = gate_of(breaking(), clock)
    changes: list[str] = []
    gate.on_notice.append(lambda notice: changes.append(notice.values.get("why", "")))
    breaker = gate.breaker("pay")
    gate.reload(rules(breaking(", switch: forced_open")))
    assert gate.breaker("pay") is breaker
    assert not gate.check(Facts(resource="x"))
    gate.reload(rules(breaking(", switch: metrics_only")))
    for _ in range(5):
        gate.check(Facts(resource="x")).permit.release("failure")
    assert breaker.state == "metrics_only"
    gate.reload(rules(breaking()))
    assert breaker.state == "closed"
    assert changes[0] == "the rules say so"
    gate.reload(rules(breaking(", switch: disabled")))
    breaker.force_open()  # by hand, here
    gate.reload(rules(breaking()))
    assert breaker.state == "forced_open"


def test_a_switch_is_for_keys_to_come(clock: ManualClock) -> None:
    gate = gate_of(breaking(key=", key: [user]"), clock)
    gate.check(Facts(user="ann")).permit.release()
    gate.reload(rules(breaking(", switch: forced_open", ", key: [user]")))
    assert not gate.check(Facts(user="ann"))
    assert not gate.check(Facts(user="bob"))
    gate.reload(rules(breaking(key=", key: [user]")))
    assert gate.check(Facts(user="ann"))
    assert gate.check(Facts(user="bob"))


def test_a_fleet_without_redis_is_said_once(
    clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "headgate"):
        gate = gate_of(breaking(", fleet: 2"), clock)
    assert "policy pay: a fleet needs a store in Redis" in caplog.text
    assert gate.check(Facts(resource="x"))
    with pytest.raises(LookupError, match="the policy 'pay' has no fleet in Redis"):
        gate.fleet("pay")


# -- pools

POOL = "{name: far, match: {resource: far}, bulkhead: {pool: 2MORE}TIME}"


def pooled(more: str = "", time: str = "") -> str:
    return POOL.replace("MORE", more).replace("TIME", time)


def test_plain_functions_run_in_threads_of_the_pool() -> None:
    gate = gate_of(pooled())

    @gate.limited("far")
    def where(error: bool = False) -> str:
        if error:
            raise ZeroDivisionError
        return threading.current_thread().name

    assert where() == "headgate-far"
    with pytest.raises(ZeroDivisionError):
        where(error=True)
    with gate.enter("far"):  # a block stays where it is, and has a place all the same
        assert gate.policies()["far"]["in_flight"] == 1
        assert where() == "headgate-far"
        with gate.enter("far"), pytest.raises(Refused, match="as many as may be"):
            where()
    assert gate.policies()["far"] == {
        "keys": 1, "in_flight": 0, "bulkhead_waiting": 0, "abandoned": 0,
    }  # fmt: skip


def test_a_call_that_hangs_keeps_its_place_until_it_ends(clock: ManualClock) -> None:
    gate = gate_of(pooled(time=", timeout: 5s, breaker: {errors: 9}"), clock)
    told: list[Notice] = []
    gate.on_notice.append(told.append)
    go, begun = threading.Event(), threading.Semaphore(0)

    @gate.limited("far")
    def hang() -> str:
        begun.release()
        assert go.wait(LONG)
        return "late"

    errors: list[type[BaseException]] = []

    def call() -> None:
        try:
            hang()
        except Exception as error:
            errors.append(type(error))

    callers = [threading.Thread(target=call) for _ in range(2)]
    for caller in callers:
        caller.start()
    for _ in callers:
        assert begun.acquire(timeout=LONG)
    until(lambda: clock.next_wakeup() is not None)
    while any(caller.is_alive() for caller in callers):
        clock.advance(6)
        callers[0].join(0.01)
        callers[1].join(0.01)
    assert errors == [TimeLimitExceeded] * 2
    assert [notice.kind for notice in told if "time" in notice.kind] == ["time_limit.exceeded"] * 2
    assert gate.breaker("far").metrics().failed == 2
    assert gate.policies()["far"]["abandoned"] == 2
    with pytest.raises(Refused, match="2 calls are under way"):  # the caller is told at once
        hang()
    gate.reload(rules(pooled(time=", status: 500, timeout: 5s, breaker: {errors: 9}")))
    assert gate.policies()["far"]["in_flight"] == 2  # as it was
    go.set()
    until(lambda: gate.policies()["far"]["in_flight"] == 0)
    assert hang() == "late"


def test_async_functions_need_no_thread() -> None:
    gate = AsyncGate(rules(pooled()))

    @gate.limited("far")
    async def where() -> str:
        assert gate.policies()["far"]["in_flight"] == 1
        return threading.current_thread().name

    assert asyncio.run(where()) == threading.current_thread().name


def test_threads_end_with_their_policy() -> None:
    gate = gate_of(pooled())
    gate.limited("far")(lambda: None)()
    name = "headgate-far"
    assert any(thread.name == name for thread in threading.enumerate())
    gate.reload("version: 1\nrules: []\n")
    gc.collect()
    until(lambda: not any(thread.name == name for thread in threading.enumerate()))


# -- shadow


def test_shadow_changes_nothing_of_a_call(clock: ManualClock) -> None:
    text = """{name: far, shadow: true, bulkhead: {pool: 1}, timeout: 1s, retry: 3,
      last_good: 1min, fallback: {data: 1}}"""
    gate = gate_of(text, clock)

    @gate.limited("far")
    def far(fail: bool) -> str:
        if fail:
            raise ConnectionRefusedError
        return threading.current_thread().name

    assert far(fail=False) == threading.current_thread().name
    with pytest.raises(ConnectionRefusedError):
        far(fail=True)
    with gate.enter("far") as entry:
        assert entry.verdict.permit.passage is not None
        assert entry.verdict.permit.passage.limit is None
