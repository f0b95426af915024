"""What is counted: every result, on both gates, by many threads; and nothing when unused."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from far_store import FarStore
from gate_tools import START, NoShortcuts, gate_of, rule, rules
from telemetry_tools import ANNA, BERT, mixed, seen, watched

import headgate
from far import FarStore as Line
from headgate import AsyncGate, Facts, Gate, ManualClock, MemoryStore
from headgate.errors import StoreError
from headgate.rules.model import Lists
from headgate.stores.failover import Failover
from headgate.telemetry import Telemetry


def test_every_result() -> None:
    with watched(*mixed()) as (gate, telemetry):
        for _ in range(3):
            gate.check(ANNA)
        gate.check(Facts(path="/health"))
        gate.check(Facts(path="/secret", user="bert"))
        gate.check(Facts(path="/elsewhere"))
        assert seen(telemetry) == {
            "allowed": 2, "refused": 1, "shadowed": 2, "exempt": 1, "denied": 1, "unmatched": 1,
        }  # fmt: skip
        assert seen(telemetry, "api") == {"allowed": 2, "refused": 1}
        assert seen(telemetry, "trial") == {"allowed": 1, "shadowed": 2}
        assert seen(telemetry, "health") == {"exempt": 1}
        assert seen(telemetry, "blocked") == {"denied": 1}


def test_a_rule_that_had_nothing_against_a_refused_call_is_not_counted() -> None:
    with watched(
        rule("tight", "1/minute", key="user"), rule("wide", "9/minute", key="ip")
    ) as (gate, telemetry):  # fmt: skip
        gate.check(ANNA)
        gate.check(ANNA)
        assert seen(telemetry, "tight") == {"allowed": 1, "refused": 1}
        assert seen(telemetry, "wide") == {"allowed": 1}


def test_a_deny_list_in_shadow() -> None:
    blocked = rule("blocked", "9/minute", shadow=True, deny=Lists(users=("bert",)))
    with watched(blocked) as (gate, telemetry):
        assert gate.check(BERT)
        assert seen(telemetry, "blocked")["shadowed"] == 1
        assert [event.why for event in telemetry.recent()] == ["deny list"]


@pytest.mark.parametrize("kind", [MemoryStore, NoShortcuts, FarStore])
def test_both_gates_on_every_kind_of_store(kind: Any) -> None:
    with watched(
        rule("api", "2/minute", key="user"), store=kind(clock=ManualClock(START))
    ) as (gate, telemetry):  # fmt: skip
        for _ in range(3):
            gate.check(ANNA)
        assert seen(telemetry, "api") == {"allowed": 2, "refused": 1}
        assert telemetry.snapshot()["store"]["count"] == 3

    async def main() -> None:
        with watched(
            rule("api", "2/minute", key="user"),
            store=kind(clock=ManualClock(START)), kind=AsyncGate,
        ) as (gate, telemetry):  # fmt: skip
            for _ in range(3):
                await gate.check(ANNA)
            assert seen(telemetry, "api") == {"allowed": 2, "refused": 1}
            assert telemetry.snapshot()["store"]["count"] == 3

    asyncio.run(main())


def test_degraded_decisions_and_what_the_store_says_of_itself() -> None:
    far = Line(clock=ManualClock(START))
    with watched(rule("api", "5/minute", key="user"), store=Failover(far)) as (gate, telemetry):
        gate.check(ANNA)
        far.fail()
        gate.check(ANNA)
        assert seen(telemetry, "api") == {"allowed": 2, "degraded": 1}
        assert seen(telemetry) == {"allowed": 2, "degraded": 1}
        assert telemetry.snapshot()["store"]["failures"] == 1


def test_permits_in_use() -> None:
    with watched(rule("pool", "3 concurrent", key="user")) as (gate, telemetry):
        first, second = gate.check(ANNA), gate.check(ANNA)
        assert seen(telemetry, "pool")["permits"] == 2
        first.permit.release()
        first.permit.release()
        assert seen(telemetry, "pool")["permits"] == 1
        del second  # forgotten: it comes back by itself
        gc.collect()
        assert seen(telemetry, "pool")["permits"] == 0


def test_permits_on_a_store_that_cannot_take_them_back() -> None:
    far = Line(clock=ManualClock(START))
    with watched(rule("pool", "3 concurrent"), store=far) as (gate, telemetry):
        verdict = gate.check(ANNA)
        far.fail()
        with pytest.raises(StoreError):
            verdict.permit.release()
        assert seen(telemetry, "pool")["permits"] == 1
        far.heal()
        verdict.permit.release()
        assert seen(telemetry, "pool")["permits"] == 0


def test_permits_taken_before_anybody_watched() -> None:
    gate = gate_of(rule("pool", "3 concurrent"))
    verdict = gate.check(ANNA)
    telemetry = Telemetry().watch(gate)
    verdict.permit.release()
    assert telemetry.snapshot()["rules"] == {}


def test_waiting() -> None:
    async def main() -> None:
        with watched(
            rule("pool", "1 concurrent", wait=5.0), kind=AsyncGate, store=MemoryStore()
        ) as (gate, telemetry):  # fmt: skip
            first = await gate.check(ANNA)
            waits = asyncio.ensure_future(gate.check(ANNA))
            await asyncio.sleep(0.02)
            await first.permit.release()
            await (await waits).permit.release()
            found = telemetry.snapshot()["rules"]["pool"]["wait"]
            assert found["count"] >= 1
            assert found["p99"] >= 0.01

    asyncio.run(main())


def test_reloads() -> None:
    with watched(rule("api", "1/minute", key="user")) as (gate, telemetry):
        gate.check(ANNA)
        gate.reload(rules(rule("api", "5/minute", key="user"), rule("new", "5/minute")))
        with pytest.raises(headgate.errors.RulesError):
            gate.reload("version: 1\nrules: [{}]\n")
        gate.check(ANNA)
        found = telemetry.snapshot()
        assert found["reload"]["errors"] == 1
        assert found["reload"]["updates"] == 2
        assert found["reload"]["loaded_at"] == pytest.approx(gate.status()["loaded_at"])
        assert seen(telemetry, "api") == {"allowed": 2}
        assert found["store"]["count"] == 2  # new rules are timed too
        assert telemetry.rules() == {"api", "new"}


def test_a_million_rules_do_not_fill_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headgate.telemetry.counts.MOST", 10)
    telemetry = Telemetry()
    shard = telemetry._counts.shard()
    for number in range(100):
        shard[f"rule {number}"].cells[0] += 1
    found = telemetry.snapshot()["rules"]
    assert len(found) <= 11
    assert sum(each["allowed"] for each in found.values()) == 100


# -- threads


def test_threads_lose_nothing_and_leave_nothing_behind() -> None:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with watched(rule("api", "1000/minute", key="user")) as (gate, telemetry):

            def work() -> None:
                for number in range(500):
                    gate.check(Facts(user=f"user {number % 7}"))

            for _ in range(3):
                threads = [threading.Thread(target=work) for _ in range(8)]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
            counted = seen(telemetry, "api")
            assert counted["allowed"] == 7 * 1000
            assert counted["refused"] == 3 * 8 * 500 - 7000
            assert telemetry.snapshot()["store"]["count"] == 3 * 8 * 500
            top = telemetry.top("api", most=7)["api"]
            assert sum(busy.count for busy in top) == 3 * 8 * 500
            assert len(telemetry._counts._shards) <= 8
    finally:
        sys.setswitchinterval(before)


# -- nothing when unused


def test_a_gate_that_nobody_watches_has_nothing_in_its_way() -> None:
    gate = gate_of(rule("api", "5/minute", key="user"))
    gate.check(ANNA)
    (own,) = gate._book.ways.values()
    assert own.__module__ != "headgate.gating.watched"
    telemetry = Telemetry().watch(gate)
    gate.check(ANNA)
    (timed,) = gate._book.ways.values()
    assert timed.__module__ == "headgate.gating.watched"
    telemetry.unwatch(gate)
    gate.check(ANNA)
    (own,) = gate._book.ways.values()
    assert own.__module__ != "headgate.gating.watched"
    assert not gate.on_verdict
    assert gate._desk.watch is None
    assert seen(telemetry, "api") == {"allowed": 1}


def test_without_latency_the_prepared_way_stays_as_it_is() -> None:
    with watched(rule("api", "5/minute", key="user"), latency=False) as (gate, telemetry):
        gate.check(ANNA)
        gate.check(ANNA)
        (own,) = gate._book.ways.values()
        assert own.__module__ != "headgate.gating.watched"
        assert seen(telemetry, "api") == {"allowed": 2}


def test_the_base_does_not_import_it() -> None:
    source = str(Path(headgate.__file__).parents[1])
    probe = (
        f"import sys; sys.path.insert(0, {source!r}); import headgate, headgate.gate; "
        "print([name for name in sys.modules if 'telemetry' in name])"
    )
    run = subprocess.run([sys.executable, "-I", "-c", probe], check=True, capture_output=True)
    assert run.stdout.strip() == b"[]"


def test_one_gate_is_watched_by_one() -> None:
    gate = gate_of(rule("api", "5/minute"))
    telemetry = Telemetry().watch(gate).watch(gate)
    gate.check(ANNA)
    assert seen(telemetry) == {"allowed": 1}
    with pytest.raises(ValueError, match="somebody already"):
        Telemetry().watch(gate)


def test_two_gates_add_up() -> None:
    telemetry = Telemetry()
    for gate in (gate_of(rule("api", "5/minute")), gate_of(rule("api", "5/minute"))):
        telemetry.watch(gate)
        gate.check(ANNA)
    assert seen(telemetry, "api") == {"allowed": 2}


def test_a_hook_that_breaks_breaks_nothing_else() -> None:
    gate = gate_of(rule("api", "5/minute"))
    telemetry = Telemetry(clock=lambda: 1 / 0).watch(gate)
    assert [bool(gate.check(ANNA)) for _ in range(6)] == [True] * 5 + [False]
    assert telemetry.totals().rules["api"][0] == 5


def test_options_say_what_is_wrong() -> None:
    for wrong, words in (
        ({"top": 0}, "top is a whole number"),
        ({"seconds": 1}, "seconds is a whole number"),
        ({"keys": "secret"}, "keys are plain"),
    ):
        with pytest.raises(ValueError, match=words):
            Telemetry(**wrong)


def test_gates_of_both_kinds_may_be_watched_by_one() -> None:
    gate: Any = Gate(rules(rule("api", "5/minute")))
    other: Any = AsyncGate(rules(rule("api", "5/minute")))
    telemetry = Telemetry().watch(gate).watch(other)
    gate.check(ANNA)
    asyncio.run(other.check(ANNA))
    assert seen(telemetry, "api") == {"allowed": 2}
