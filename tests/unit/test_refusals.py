"""Refusals that are known here: right numbers, for a second at most."""

from __future__ import annotations

import pytest

from far import by_hand
from headgate import Limiter
from headgate.decision import Ask
from headgate.stores import MemoryStore
from headgate.stores.lease import LeaseStore


@pytest.mark.parametrize(
    "text",
    ["3/second fixed-window", "3/second", "3/second gcra", "3/second token-bucket",
     "3/second sliding-window cells 4", "3/second sliding-log", "3/second even",
     "3/second leaky-bucket burst 2", "3/second debt", "3/second warm-up 2s"],
)  # fmt: skip
def test_a_refused_key_is_refused_here_with_the_right_numbers(text: str) -> None:
    clock, far = by_hand(1000.1)
    limiter = Limiter(text, store=LeaseStore(far))
    exact = Limiter(text, store=MemoryStore(clock=clock))
    while exact.hit("k", cost=2).allowed:
        limiter.hit("k", cost=2)
    first = limiter.hit("k", cost=2)
    crossings = far.crossings
    steps = 0
    while True:
        clock.advance(0.013)
        right = exact.peek("k", cost=2)
        if right.allowed:
            break
        near = limiter.hit("k", cost=2)
        assert not near.allowed
        assert near.retry_after == pytest.approx(right.retry_after)
        assert near.reset_after == pytest.approx(right.reset_after)
        if first._source.words:  # type: ignore[attr-defined] # of all of these sources
            assert near.remaining == right.remaining
        assert near.limit == right.limit
        assert near.at == right.at
        steps += 1
        if steps == 75:  # for a second at most
            break
    assert far.crossings == crossings
    clock.advance(3)
    assert limiter.hit("k", cost=1).allowed


def test_a_refusal_holds_for_a_second_at_most() -> None:
    clock, far = by_hand()
    limiter = Limiter("1/hour", store=LeaseStore(far))
    other = Limiter("1/hour", store=LeaseStore(far))
    limiter.hit("k")
    assert not limiter.hit("k").allowed
    other.reset("k")
    assert not limiter.hit("k").allowed
    clock.advance(0.999_999)
    assert not limiter.hit("k").allowed
    clock.advance(0.000_001)
    assert limiter.hit("k").allowed


def test_smaller_costs_are_asked_for() -> None:
    _, far = by_hand()
    limiter = Limiter("10/hour", store=LeaseStore(far))
    limiter.hit("k", cost=8)
    assert not limiter.hit("k", cost=5).allowed
    crossings = far.crossings
    assert not limiter.hit("k", cost=6).allowed
    assert limiter.hit("k", cost=6).retry_after >= limiter.hit("k", cost=5).retry_after
    assert limiter.hit("k", cost=11).retry_after == float("inf")
    assert far.crossings == crossings
    assert limiter.hit("k", cost=1).allowed
    assert limiter.hit("k", cost=5, partial=True).granted == 1


@pytest.mark.parametrize("how", ["reset", "refund", "settle", "set_limit"])
def test_what_comes_back_in_this_process_shows_at_once(how: str) -> None:
    _, far = by_hand()
    store = LeaseStore(far)
    limiter = Limiter("10/hour", store=store)
    limit = limiter.limits[0]
    with limiter.reserve("k", cost=10) as reserved:
        assert not limiter.hit("k").allowed
        crossings = far.crossings
        assert not limiter.hit("k").allowed
        assert far.crossings == crossings
        if how == "settle":
            reserved.settle(2)
        elif how == "reset":
            limiter.reset("k")
        elif how == "set_limit":
            limiter.set_limit("k", "20/hour")
        else:
            store.decide([Ask("refund", limit, "k", 3, at=1_000_000_000)])
        assert limiter.hit("k").allowed


def test_permits_are_never_refused_from_memory() -> None:
    _, far = by_hand()
    limiter = Limiter("1 concurrent", store=LeaseStore(far))
    with limiter.hold("k"):
        crossings = far.crossings
        for _ in range(3):
            assert not limiter.peek("k").allowed
        assert far.crossings == crossings + 3
    with limiter.hold("k"):
        pass


def test_several_limits_refuse_together_from_memory() -> None:
    clock, far = by_hand(1000.25)
    limiter = Limiter("10/hour gcra", "2/second fixed-window", store=LeaseStore(far))
    exact = Limiter("10/hour gcra", "2/second fixed-window", clock=clock)
    for _ in range(3):
        near, right = limiter.hit("k"), exact.hit("k")
    assert not near.allowed
    crossings = far.crossings
    clock.advance(0.5)
    near, right = limiter.hit("k"), exact.hit("k")
    assert far.crossings == crossings
    for mine, its in zip(near.parts, right.parts, strict=True):
        assert mine.allowed == its.allowed
        assert mine.granted == its.granted == 0
        assert mine.remaining == its.remaining
        assert mine.retry_after == pytest.approx(its.retry_after)
        assert mine.reset_after == pytest.approx(its.reset_after)
    clock.advance(0.25)
    assert limiter.hit("k").allowed


def test_without_refusals_everything_is_asked() -> None:
    _, far = by_hand()
    limiter = Limiter("1/hour", store=LeaseStore(far, refusals=False))
    for _ in range(5):
        limiter.hit("k")
    assert far.crossings == 5


def test_many_keys_in_one_crossing() -> None:
    _, far = by_hand()
    limiter = Limiter("2/hour", store=LeaseStore(far))
    assert [d.allowed for d in limiter.hit_many(["a", "a", "a", "b"])] == [True, True, False, True]
    assert far.crossings == 1
    assert not limiter.hit("a").allowed
    assert far.crossings == 1
    assert [d.allowed for d in limiter.hit_many(["a", "b"])] == [False, True]
