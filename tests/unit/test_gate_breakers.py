"""Breakers of a rules file, driven by the gate."""

from __future__ import annotations

import gc
import pickle
import threading
from contextlib import nullcontext
from typing import Any

import pytest
from gate_tools import START, CountingStore, until
from policies_tools import BREAKER, call, gate_of, trip

from headgate import Facts, Gate, ManualClock, Refused


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(START)


def test_an_open_breaker_refuses_at_once_and_takes_nothing(clock: ManualClock) -> None:
    store = CountingStore(clock)
    gate = gate_of(BREAKER, clock, store=store)
    trip(gate)
    store.asked.clear()
    verdict = gate.check(Facts(resource="pay"))
    assert (verdict.rule, verdict.status, verdict.key) == ("pay", 503, "")
    assert verdict.retry_after == pytest.approx(30, abs=0.001)
    assert verdict.decision is not None
    assert verdict.decision.retry_after == pytest.approx(30, abs=0.001)
    assert dict(verdict.headers())["Retry-After"] == "30"
    assert "breaker is open" in verdict.why
    assert not verdict.permit
    assert not verdict.permit.release("failure")
    assert store.asked == []


def test_it_comes_back_by_its_probe(clock: ManualClock) -> None:
    gate = gate_of(BREAKER, clock)
    trip(gate)
    clock.advance(30.001)
    probe = gate.check(Facts(resource="pay"))
    assert probe
    assert not call(gate)  # the only probe is under way
    assert probe.permit.release("success")
    assert call(gate)
    assert gate.policies()["pay"]["states"] == {"closed": 1}


def test_a_limit_that_refuses_the_probe_gives_it_back(clock: ManualClock) -> None:
    """Sentinel's trap: a later rule blocks the probe, and it stays half open for ever."""
    gate = gate_of(BREAKER.replace("100/hour", "1 concurrent"), clock)
    trip(gate)
    holder = Gate(
        "version: 1\nrules: [{name: limit, match: {resource: pay}, limit: 1 concurrent}]\n",
        gate.store,
    ).check(Facts(resource="pay"))
    clock.advance(30.001)
    for _ in range(3):
        blocked = gate.check(Facts(resource="pay"))
        assert (blocked.rule, blocked.status) == ("limit", 429)
    assert gate.breaker("pay").state == "half_open"
    holder.permit.release()
    assert call(gate)
    assert gate.breaker("pay").state == "closed"


def test_a_probe_that_nobody_ends_is_given_back(clock: ManualClock) -> None:
    gate = gate_of(BREAKER, clock)
    trip(gate)
    clock.advance(30.001)
    assert gate.check(Facts(resource="pay"))  # dropped
    gc.collect()
    assert call(gate)
    assert gate.breaker("pay").state == "closed"


def test_an_outcome_counts_once(clock: ManualClock) -> None:
    gate = gate_of(BREAKER, clock)
    verdict = gate.check(Facts(resource="pay"))
    assert verdict.permit
    assert verdict.permit.release("failure")
    assert not any(verdict.permit.release("failure") for _ in range(9))
    metrics = gate.breaker("pay").metrics()
    assert (metrics.failed, metrics.permitted) == (1, 1)
    with pytest.raises(ValueError, match="an outcome is one of"):
        gate.check(Facts(resource="pay")).permit.release("well")


def test_slow_calls_trip_it_and_waiting_for_a_limit_is_not_slow(clock: ManualClock) -> None:
    gate = gate_of(
        """
version: 1
rules: [{name: one, limit: 1 concurrent, wait: 60s}]
policies:
  - {name: pay, breaker: {slow: {over: 2s, ratio: 100%}, window: 2 calls, open: 5s}}
""",
        clock,
    )
    first = gate.check(Facts(resource="pay"))
    found: list[Any] = []
    waiting = threading.Thread(target=lambda: found.append(gate.check(Facts(resource="pay"))))
    waiting.start()
    until(lambda: bool(gate._desk._lines._lines))
    clock.advance(3)
    first.permit.release()
    waiting.join()
    found[0].permit.release()
    metrics = gate.breaker("pay").metrics()
    assert (metrics.slow, metrics.succeeded) == (1, 2)


def test_blocks_tell_what_was_raised(clock: ManualClock) -> None:
    gate = gate_of(BREAKER, clock)

    def enter(error: type[BaseException] | None, how: str = "") -> None:
        with gate.enter("pay") as entry:
            if how:
                getattr(entry, how)()
            if error is not None:
                raise error

    for error, how in ((None, ""), (KeyboardInterrupt, ""), (None, "fail"), (None, "ignore")):
        with pytest.raises(error) if error else nullcontext():
            enter(error, how)
    metrics = gate.breaker("pay").metrics()
    assert (metrics.succeeded, metrics.failed, metrics.ignored) == (1, 1, 2)
    with pytest.raises(ValueError), gate.enter("pay"):
        raise ValueError
    assert gate.breaker("pay").metrics().failed == 2
    inner = gate_of("version: 1\npolicies: [{name: x, bulkhead: 1}]\n", clock)
    with inner.enter("a"), pytest.raises(Refused), gate.enter("pay"), inner.enter("a"):
        pass
    assert gate.breaker("pay").metrics().ignored == 3  # refused further in: says nothing


def test_each_key_has_its_own(clock: ManualClock) -> None:
    gate = gate_of(BREAKER.replace("match: {resource: pay}\n", "key: [origin]\n"), clock)
    trip(gate, origin="a")
    assert not call(gate, origin="a")
    assert call(gate, origin="b")
    assert call(gate)  # lacks the key, so nobody protects it
    refused = gate.check(Facts(resource="pay", origin="a"))
    assert (refused.rule, refused.key) == ("pay", "a")
    assert gate.policies()["pay"]["states"] == {"open": 1, "closed": 1}
    with pytest.raises(LookupError, match="say which"):
        gate.breaker("pay")
    gate.breaker("pay", "b").force_open()
    assert not call(gate, origin="b")


def test_a_flood_of_keys_is_bounded(clock: ManualClock, monkeypatch: Any) -> None:
    monkeypatch.setattr("headgate.gating.kept.KEYS", 10)
    text = BREAKER.replace("match: {resource: pay}\n", "key: [origin]\n")
    gate = gate_of(text.replace("100/hour", "1000/hour"), clock)
    trip(gate, origin="sick")
    for number in range(100):
        assert call(gate, origin=str(number))
    assert gate.policies()["pay"]["keys"] == 10
    assert not call(gate, origin="sick")  # one that has something to tell is kept


def test_exempt_calls_are_not_asked(clock: ManualClock) -> None:
    gate = gate_of(
        """
version: 1
rules: [{name: health, match: {path: /health}, exempt: true}]
policies: [{name: all, bulkhead: 1}]
system: {in_flight: 1}
""",
        clock,
    )
    held = gate.check(Facts(path="/x"))
    assert not gate.check(Facts(path="/x"))
    assert gate.check(Facts(path="/health")).exempt == "health"
    held.permit.release()
    assert gate.check(Facts(path="/x"))


def test_shadow_tells_and_lets_pass(clock: ManualClock) -> None:
    gate = gate_of(BREAKER.replace("breaker:", "shadow: true\n    breaker:"), clock)
    trip(gate)
    verdict = gate.check(Facts(resource="pay"))
    assert verdict
    assert verdict.shadowed == ("pay",)


def test_a_refusal_travels(clock: ManualClock) -> None:
    gate = gate_of(BREAKER.replace("breaker:", "status: 429\n    breaker:"), clock)
    trip(gate)
    with pytest.raises(Refused, match="breaker is open") as caught, gate.enter("pay"):
        pass
    again = pickle.loads(pickle.dumps(caught.value))
    assert again.verdict.status == 429
    assert again.retry_after == caught.value.retry_after
    assert str(again) == str(caught.value)
