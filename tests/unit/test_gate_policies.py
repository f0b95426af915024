"""Policies at the gate: asked before the limits, told how calls ended, kept over a reload."""

from __future__ import annotations

import logging
import threading
from typing import Any

import pytest
from gate_tools import START, CountingStore, until
from policies_tools import BREAKER, call, gate_of, trip

from headgate import Facts, Gate, ManualClock, Refused
from headgate.gate import Each
from headgate.resilience.notices import Notice
from headgate.resilience.system.signals import Reading
from headgate.rules import RulesError


class Machine:
    """A machine as busy as the test says."""

    cpu = 0.0

    def read(self) -> Reading:
        return Reading(self.cpu)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(START)


# -- bulkheads, adaptive limits, the machine


def test_a_full_bulkhead_refuses(clock: ManualClock) -> None:
    gate = gate_of('version: 1\npolicies: [{name: db, bulkhead: "2"}]\n', clock)
    held = [gate.check(Facts(resource="db")) for _ in range(2)]
    refused = gate.check(Facts(resource="db"))
    assert (refused.rule, refused.status, refused.retry_after) == ("db", 503, float("inf"))
    assert "Retry-After" not in dict(refused.headers())
    held[0].permit.release("ignored")
    assert gate.check(Facts(resource="db"))


def test_a_full_bulkhead_gives_the_probe_back(clock: ManualClock) -> None:
    gate = gate_of(BREAKER + "    bulkhead: 1\n", clock)
    trip(gate)
    guards = gate._book.guards
    assert guards is not None
    bulkhead = guards.kept[0].of("").bulkhead
    assert bulkhead is not None
    clock.advance(30.001)
    with bulkhead:
        assert not call(gate)
    assert call(gate)
    assert gate.breaker("pay").state == "closed"


def test_calls_wait_for_a_place(clock: ManualClock) -> None:
    gate = gate_of(
        "version: 1\npolicies: [{name: db, bulkhead: {at_once: 1, queue: 1, wait: 60s}}]\n", clock
    )
    held = gate.check(Facts(resource="db"))
    found: list[Any] = []
    waiting = threading.Thread(target=lambda: found.append(gate.check(Facts(resource="db"))))
    waiting.start()
    until(lambda: gate.policies()["db"]["bulkhead_waiting"] == 1)
    assert not gate.check(Facts(resource="db"))  # the queue is full
    held.permit.release()
    waiting.join()
    assert found[0]


def test_an_adaptive_limit_refuses_low_priorities_first(clock: ManualClock) -> None:
    gate = gate_of(
        """
version: 1
policies:
  - name: db
    adaptive: {estimator: aimd, least: 1, initial: 10, most: 10, shed: {-1: 50%, 0: 100%}}
""",
        clock,
    )
    held = [gate.check(Facts(resource="db", priority=-1)) for _ in range(6)]
    assert [bool(verdict) for verdict in held] == [True] * 5 + [False]
    assert all(gate.check(Facts(resource="db")) for _ in range(3))
    assert gate.policies()["db"]["limit"] == 10


def test_the_machine_sheds_and_is_the_room_of_elastic_limits(clock: ManualClock) -> None:
    gate = gate_of(
        """
version: 1
rules:
  - {name: soft, match: {path: /soft}, limit: 100/hour elastic 50%}
system: {in_flight: 10, cpu: 80%, shed: {-1: 50%, 0: 100%}}
""",
        clock,
    )
    guards = gate._book.guards
    assert guards is not None
    assert guards.system is not None
    machine = guards.system._source = Machine()
    assert gate._desk.room() == 1000
    held = [gate.check(Facts(resource="x", priority=-1)) for _ in range(6)]
    assert [bool(verdict) for verdict in held] == [True] * 5 + [False]
    assert (held[-1].rule, held[-1].status, held[-1].retry_after) == ("system", 503, 1.0)
    machine.cpu = 0.8
    clock.advance(2)
    assert gate._desk.room() == 0
    assert gate.policies()["system"]["cpu"] == 0.8
    gate.reload("version: 1\nrules: []\n")
    assert gate._desk.room() == 0  # nobody says anything: no room


# -- decorators


def test_otherwise_is_for_refused_calls_and_fallback_for_failed_ones_too(
    clock: ManualClock,
) -> None:
    gate = gate_of(BREAKER + "    fallback: {data: {stale: true}}\n", clock)
    calls = 0

    @gate.limited("pay")
    def pay() -> Any:
        nonlocal calls
        calls += 1
        raise ValueError

    assert [pay() for _ in range(6)] == [{"stale": True}] * 6
    assert calls == 4
    gate.reload(BREAKER + "    otherwise: {function: 'a:b'}\n")
    gate._functions["a:b"] = lambda: "busy"
    assert pay() == "busy"


def test_retries_go_through_the_gate_and_stop_at_an_open_breaker(clock: ManualClock) -> None:
    text = BREAKER + "    retry: {attempts: 9, safe: true, pause: 1ms, longest: 60s}\n"
    gate = Gate(text)
    calls = 0

    @gate.limited("pay")
    def pay() -> None:
        nonlocal calls
        calls += 1
        raise ConnectionError

    with pytest.raises(Refused):  # after 30 s it might pass, and nobody waits for that
        pay()
    assert calls == 4
    gate.breaker("pay").reset()

    @gate.limited("pay")
    def once() -> str:
        nonlocal calls
        calls += 1
        if calls == 5:
            raise ConnectionError
        return "well"

    assert once() == "well"
    assert gate.breaker("pay").metrics().permitted == 6


# -- reloading


def test_a_reload_keeps_what_did_not_change(clock: ManualClock) -> None:
    gate = gate_of(BREAKER, clock)
    trip(gate)
    gate.reload(
        BREAKER.replace("100/hour", "5/hour").replace("breaker:", "status: 500\n    breaker:")
    )
    assert gate.check(Facts(resource="pay")).status == 500
    gate.reload(BREAKER.replace("30s", "40s"))
    assert call(gate)  # another breaker, closed
    gate.reload("version: 1\nrules: []\n")
    assert gate._book.guards is None
    assert gate.policies() == {}
    with pytest.raises(LookupError):
        gate.breaker("pay")


def test_a_call_ends_at_the_policy_it_began_with(clock: ManualClock) -> None:
    gate = gate_of("version: 1\npolicies: [{name: db, bulkhead: 1}]\n", clock)
    held = gate.check(Facts(resource="db"))
    gate.reload("version: 1\npolicies: [{name: db, bulkhead: 2}]\n")
    assert held.permit.release()
    assert gate.policies()["db"]["in_flight"] == 0


def test_policies_that_cannot_be_made_leave_the_old_ones(clock: ManualClock) -> None:
    gate = gate_of(BREAKER, clock)
    bad = BREAKER.replace("window: 4 calls", "preset: resilience4j, errors: 200")
    with pytest.raises(RulesError, match="do not fit") as caught:
        gate.reload(bad)
    assert (caught.value.line, caught.value.rule) == (6, "pay")
    assert gate.breaker("pay").settings.window == 4


# -- many at once, events


def test_check_many(clock: ManualClock) -> None:
    gate = gate_of(
        """
version: 1
rules: [{name: few, key: [user], limit: 1/hour}]
policies: [{name: db, bulkhead: 2}]
""",
        clock,
    )
    one, two = Facts(resource="a", user="1"), Facts(resource="a", user="2")
    verdicts = gate.check_many([one, one, two, two, Each(two, op="check")])
    # The second takes a place, is refused by its limit and gives the place back at the end.
    assert [bool(verdict) for verdict in verdicts] == [True, False, False, False, True]
    assert [verdict.rule for verdict in verdicts[1:4]] == ["few", "db", "db"]
    assert gate.policies()["db"]["in_flight"] == 1
    verdicts[0].permit.release()
    assert gate.policies()["db"]["in_flight"] == 0
    verdicts = gate.check_many([two])
    assert verdicts[0]
    assert gate.policies()["db"]["in_flight"] == 1


def test_a_store_that_fails_leaves_nothing_held(clock: ManualClock) -> None:
    class Broken(CountingStore):
        def decide(self, asks: Any) -> Any:
            raise OSError("gone")

    text = "version: 1\nrules: [{name: few, limit: 1/hour}]\npolicies: [{name: db, bulkhead: 1}]\n"
    gate = gate_of(text, clock, store=Broken(clock))
    for _ in range(3):
        with pytest.raises(OSError, match="gone"):
            gate.check(Facts())
        with pytest.raises(OSError, match="gone"):
            gate.check_many([Facts()])
    assert gate.policies()["db"]["in_flight"] == 0


def test_events_and_a_line_in_the_log(clock: ManualClock, caplog: pytest.LogCaptureFixture) -> None:
    notices: list[Notice] = []
    gate = gate_of(BREAKER, clock)
    gate.on_notice += [notices.append, lambda notice: 1 / 0]
    with caplog.at_level(logging.INFO, "headgate"):
        trip(gate)
        assert not call(gate)
    kinds = [notice.kind for notice in notices]
    assert kinds == ["breaker.failed"] * 4 + ["breaker.state", "breaker.refused"]
    assert "the breaker was closed and is open: 4 of 4 calls failed" in caplog.text
    assert "refused by rule pay" in caplog.text
    assert "the breaker is open" in caplog.text


def test_threads_never_pass_more_probes_than_there_are(clock: ManualClock) -> None:
    gate = gate_of(BREAKER.replace("probes: 1", "probes: 3"), clock)
    trip(gate)
    clock.advance(30.001)
    start, found = threading.Barrier(16), []

    def ask() -> None:
        start.wait()
        found.append(gate.check(Facts(resource="pay")))

    threads = [threading.Thread(target=ask) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(map(bool, found)) == 3


def test_rules_change_under_calls(clock: ManualClock) -> None:
    one = "version: 1\npolicies: [{name: db, bulkhead: 50}, {name: x, breaker: 50%}]\n"
    two = one.replace("{name: x, breaker: 50%}", "{name: y, match: {path: /y}, bulkhead: 9}")
    gate = gate_of(one, clock)
    wrong: list[Any] = []

    def work() -> None:
        try:
            for number in range(300):
                with gate.enter("db") as entry:
                    if number % 3:
                        entry.fail()
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for number in range(30):
        gate.reload(two if number % 2 else "version: 1\nrules: []\n" if number % 3 else one)
    gate.reload(one)
    for thread in threads:
        thread.join()
    assert not any(not isinstance(error, Refused) for error in wrong)
    assert gate.policies()["db"]["in_flight"] == 0
