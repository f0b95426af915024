"""What policies did and how they stand: counted, shown, streamed, shared by workers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from gate_tools import START
from telemetry_tools import Hands, seen
from test_telemetry_stream import parsed

from headgate import AsyncGate, Facts, Gate, ManualClock
from headgate.resilience.breaker import STATES
from headgate.telemetry import Telemetry
from headgate.telemetry import policies as counted
from headgate.telemetry.logs import RefusalLog
from headgate.telemetry.prometheus import exposition
from headgate.telemetry.stream import Stream

TEXT = """
version: 1
rules: [{name: api, limit: 100/hour}]
policies:
  - name: pay
    match: {resource: pay}
    breaker: {failures: 50%, window: 2 calls, open: 30s, probes: 1}
  - {name: db, match: {resource: db}, bulkhead: 1, adaptive: {estimator: aimd, most: 9}}
system: {in_flight: 4}
"""
PAY, DB = Facts(resource="pay", method="POST"), Facts(resource="db")


@contextmanager
def gate_and(text: str = TEXT, **more: Any) -> Iterator[tuple[Gate, Telemetry, ManualClock]]:
    clock = ManualClock(START)
    gate = Gate(text, clock=clock)
    telemetry = Telemetry(**{"clock": Hands(), **more}).watch(gate)
    yield gate, telemetry, clock
    telemetry.close()


def trip(gate: Gate) -> None:
    for _ in range(2):
        gate.check(PAY).permit.release("failure")


def test_the_states_are_those_of_the_breaker() -> None:
    assert tuple(STATES) == counted.STATES


def test_counts_and_standing() -> None:
    with gate_and() as (gate, telemetry, clock):
        trip(gate)
        assert not gate.check(PAY)
        held = gate.check(DB)
        assert not gate.check(DB)
        found = telemetry.snapshot()
        pay, db = found["policies"]["pay"], found["policies"]["db"]
        assert pay["refusals"] == {"breaker": 1}
        assert pay["changes"] == {"open": 1}
        assert pay["states"] == {"open": 1}
        assert (db["refusals"], db["limit"], db["in_flight"]) == ({"bulkhead": 1}, 9, 1)
        assert seen(telemetry) == {"allowed": 3, "refused": 2}
        assert seen(telemetry, "pay") == {"refused": 1}
        held.permit.release()
        clock.advance(30.001)
        gate.check(PAY).permit.release()
        found = telemetry.snapshot()
        assert found["policies"]["pay"]["states"] == {"closed": 1}
        assert found["policies"]["pay"]["changes"] == {"open": 1, "half_open": 1, "closed": 1}
        assert (found["room"], found["policies"]["db"]["in_flight"]) == (1.0, 0)
        gate.reload("version: 1\nrules: []\n")
        found = telemetry.snapshot()
        assert found["policies"]["pay"]["states"] == {}
        assert found["policies"]["pay"]["changes"]["open"] == 1
        assert found["room"] is None


def test_refusals_and_changes_are_events() -> None:
    with gate_and() as (gate, telemetry, _):
        trip(gate)
        gate.check(PAY)
        (change,) = telemetry.changes()
        assert (change.rule, change.result) == ("pay", "open")
        assert change.why == "2 of 2 calls failed"
        (event,) = telemetry.recent()
        assert (event.rule, event.result, event.method) == ("pay", "refused", "POST")
        assert "breaker is open" in event.why
        assert event.retry_after == pytest.approx(30)
        held = [gate.check(DB) for _ in range(2)]
        assert telemetry.recent()[0].retry_after is None  # nobody can tell
        assert held[0]


def test_the_machine_sheds() -> None:
    with gate_and() as (gate, telemetry, _):
        held = [gate.check(Facts(resource=str(number))) for number in range(5)]
        assert [bool(each) for each in held] == [True] * 4 + [False]
        assert telemetry.snapshot()["policies"]["system"]["refusals"] == {"system": 1}
        assert telemetry.snapshot()["room"] == 0.0


def test_prometheus() -> None:
    with gate_and() as (gate, telemetry, _):
        trip(gate)
        gate.check(PAY)
        text = exposition(telemetry)[1].decode()
        for line in (
            'headgate_policy_refusals_total{policy="pay",part="breaker"} 1',
            'headgate_breaker_state{policy="pay",state="open"} 1',
            'headgate_breaker_state{policy="pay",state="closed"} 0',
            'headgate_breaker_transitions_total{policy="pay",state="open"} 1',
            'headgate_breaker_transitions_total{policy="pay",state="half_open"} 0',
            'headgate_adaptive_limit{policy="db"} 9',
            'headgate_policy_in_flight{policy="db"} 0',
            "headgate_system_room 1.0",
            'headgate_decisions_total{rule="pay",result="refused"} 1',
        ):
            assert line in text.splitlines()
    with gate_and("version: 1\nrules: []\n") as (gate, telemetry, _):
        assert "policy" not in exposition(telemetry)[1].decode()


def test_a_second_of_the_stream() -> None:
    async def main() -> None:
        hands = Hands()
        with gate_and(clock=hands) as (gate, telemetry, _):
            stream = Stream(telemetry, interval=60)
            reader = stream.read()
            history = dict(parsed(await anext(reader)))["history"]
            assert history["changes"] == []
            trip(gate)
            gate.check(PAY)
            hands.now += 1
            assert stream.step()
            ((_, second),) = parsed(await anext(reader))
            assert second["policies"]["pay"]["states"] == {"open": 1}
            assert second["rules"]["pay"] == {"refused": 1}
            assert [(c["rule"], c["result"]) for c in second["changes"]] == [("pay", "open")]
            assert second["room"] == 1.0
            hands.now += 1
            assert stream.step()
            ((_, second),) = parsed(await anext(reader))
            assert second["changes"] == []  # told once
            await stream.stop()

    asyncio.run(main())


def test_timeouts_retries_and_fallbacks() -> None:
    async def main() -> None:
        clock = ManualClock(START)
        gate = AsyncGate(
            "version: 1\npolicies: [{name: x, timeout: 1s, fallback: {data: 1}, "
            "retry: {attempts: 2, pause: 1us}}]\n",
            clock=clock,
        )
        telemetry = Telemetry().watch(gate)

        @gate.limited("x")
        async def slow() -> int:
            await asyncio.sleep(3600)
            return 0

        @gate.limited("x")
        async def refused() -> int:
            raise ConnectionRefusedError

        task = asyncio.create_task(slow())
        for _ in range(5):
            await asyncio.sleep(0)
        clock.advance(1.1)
        assert await task == 1
        again = asyncio.create_task(refused())
        while not again.done():
            clock.advance(0.001)
            await asyncio.sleep(0)
        assert await again == 1
        found = telemetry.snapshot()["policies"]["x"]
        assert (found["timeouts"], found["retries"], found["fallbacks"]) == (1, 1, 2)
        telemetry.unwatch(gate)
        assert gate.on_notice == []

    asyncio.run(main())


def test_older_results_and_calls_that_became_one() -> None:
    async def main() -> None:
        gate = AsyncGate(
            "version: 1\npolicies: [{name: x, last_good: 1min, collapse: true}]\n",
            clock=ManualClock(START),
        )
        telemetry = Telemetry().watch(gate)
        fails = False

        @gate.limited("x")
        async def get() -> int:
            await asyncio.sleep(0)
            if fails:
                raise ConnectionError
            return 1

        assert await asyncio.gather(*(get() for _ in range(5))) == [1] * 5
        fails = True
        assert await get() == 1
        found = telemetry.snapshot()["policies"]["x"]
        assert (found["collapsed"], found["last_good"], found["fallbacks"]) == (4, 1, 0)
        text = exposition(telemetry)[1].decode()
        assert 'headgate_policy_collapsed_total{policy="x"} 4' in text
        assert 'headgate_policy_last_good_total{policy="x"} 1' in text
        telemetry.close()

    asyncio.run(main())


def test_workers_add_up(tmp_path: Path) -> None:
    path = tmp_path / "counts"
    with gate_and(shared=path) as (one, first, _), gate_and(shared=path) as (two, second, _):
        trip(one)
        one.check(PAY)
        second.totals()
        found = first.snapshot()["policies"]["pay"]
        assert found["states"] == {"open": 1, "closed": 1}
        assert found["refusals"] == {"breaker": 1}
        trip(two)
        second.totals()
        found = first.snapshot()["policies"]["pay"]
        assert found["states"] == {"open": 2}
        assert first.snapshot()["policies"]["db"]["limit"] == 18
        assert first.snapshot()["room"] == 1.0
        second.close()
        with gate_and(shared=path) as (_, third, _):  # goes on with the counts, not the states
            found = third.snapshot()["policies"]["pay"]
            assert (found["changes"], found["states"]) == ({"open": 2}, {"open": 1, "closed": 1})


def test_the_log_of_refusals(caplog: pytest.LogCaptureFixture) -> None:
    with gate_and() as (gate, _, _):
        log = RefusalLog().watch(gate)
        trip(gate)
        with caplog.at_level(logging.INFO, "headgate.refusals"):
            gate.check(PAY)
        log.close()
        record = caplog.records[-1]
        assert "breaker is open" in vars(record)["why"]


def test_opentelemetry() -> None:
    tools = pytest.importorskip("test_telemetry_otel")
    with gate_and() as (gate, telemetry, _):
        collected = tools.Collected(telemetry)
        trip(gate)
        gate.check(PAY)
        policy = ("headgate.policy", "pay")
        assert collected.points("headgate.breaker.state") == {
            (policy, ("headgate.state", "open")): 1
        }
        refusals = collected.points("headgate.policy.refusals")
        assert refusals == {(("headgate.part", "breaker"), policy): 1}
        assert collected.points("headgate.adaptive.limit") == {(("headgate.policy", "db"),): 9}
        assert collected.points("headgate.system.room") == {(): 1.0}
        collected.close()
