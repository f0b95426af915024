"""MemoryStore: how it stays small, whom it forgets, and that its short way is the same way."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest

from headgate import Ask, Limit, Limiter, ManualClock, MemoryStore, compiled
from headgate.keys import Key
from headgate.testing.cases import ALGORITHMS, Case


def test_at_most_max_keys(manual_clock: ManualClock) -> None:
    store = MemoryStore(clock=manual_clock, max_keys=100)
    limiter = Limiter("5/minute", store=store)
    for number in range(10_000):
        assert limiter.hit(f"flood {number}")
        manual_clock.advance(0.001)
    assert store.keys == 100
    assert store.evicted == 9_900


def test_idle_keys_go_first(manual_clock: ManualClock) -> None:
    store = MemoryStore(clock=manual_clock, max_keys=10)
    limiter = Limiter("1/minute gcra", store=store)
    limiter.hit("refused")
    manual_clock.advance(30)
    for number in range(9):
        limiter.hit(f"live {number}")
    manual_clock.advance(30.5)  # "refused" is idle now, the others are not
    limiter.hit("new")
    assert (store.keys, store.evicted) == (10, 0)
    assert [bool(limiter.peek(f"live {number}")) for number in range(9)] == [False] * 9


def test_a_refused_key_is_kept_while_live_keys_fit(manual_clock: ManualClock) -> None:
    store = MemoryStore(clock=manual_clock, max_keys=50)
    limiter = Limiter("1/hour", store=store)
    limiter.hit("refused")
    short = Limiter("1/second", store=store)
    for number in range(5000):
        short.hit(f"flood {number}")
        manual_clock.advance(0.1)
        assert not limiter.hit("refused")
    assert store.evicted == 0


def test_then_the_soonest_reset(manual_clock: ManualClock) -> None:
    store = MemoryStore(clock=manual_clock, max_keys=20)
    long, short = Limiter("1/day", store=store), Limiter("1/hour", store=store)
    for number in range(10):
        long.hit(f"long {number}")
        short.hit(f"short {number}")
    for number in range(10):
        long.hit(f"new {number}")
    assert store.evicted == 10
    assert [bool(long.peek(f"long {number}")) for number in range(10)] == [False] * 10
    assert [bool(short.peek(f"short {number}")) for number in range(10)] == [True] * 10


def test_exact_order_of_eviction(manual_clock: ManualClock) -> None:
    store = MemoryStore(clock=manual_clock, max_keys=100)
    limiter = Limiter("1/hour gcra", store=store)
    order = list(range(100))
    random.Random(7).shuffle(order)
    for number in order:
        manual_clock.advance(0.5)
        limiter.hit(f"user {number}")
    for gone, number in enumerate(order[:30]):
        limiter.hit(f"new {gone}")
        assert limiter.peek(f"user {number}").remaining == 1, "the first to reset goes first"
        assert not limiter.peek(f"user {order[gone + 1]}")


def test_deny_when_full(manual_clock: ManualClock) -> None:
    store = MemoryStore(clock=manual_clock, max_keys=3, on_full="deny")
    limiter = Limiter("5/minute gcra", store=store)
    for key in "abc":
        assert limiter.hit(key)
    refused = limiter.hit("d")
    assert (refused.allowed, refused.remaining, refused.retry_after) == (False, 0, 12)
    assert limiter.hit("a")
    assert store.evicted == 0
    manual_clock.advance(12)
    assert limiter.hit("d")


def test_held_permits_are_never_evicted(manual_clock: ManualClock) -> None:
    store = MemoryStore(clock=manual_clock, max_keys=5)
    permits, limiter = Limiter("1 concurrent", store=store), Limiter("1/second", store=store)
    with permits.hold("a"), permits.hold("b"):
        for number in range(100):
            limiter.hit(f"flood {number}")
        assert not permits.peek("a")
        assert not permits.peek("b")
    manual_clock.advance(100)
    for number in range(10):
        limiter.hit(f"more {number}")
    assert permits.peek("a").reset_after == 0


def test_a_store_full_of_permits_refuses(manual_clock: ManualClock) -> None:
    store = MemoryStore(clock=manual_clock, max_keys=2)
    permits, limiter = Limiter("1 concurrent", store=store), Limiter("1/second", store=store)
    with permits.hold("a"), permits.hold("b"):
        assert not limiter.hit("c")
    assert store.keys <= 2


def _undone(limiter: Limiter, key: str) -> None:
    other = Limiter(*limiter.limits, "1/day name other sliding-log", store=limiter.store, name="t")
    assert not other.hit(key, 2)


def _succeeded(limiter: Limiter, key: str) -> None:
    with limiter.attempt(key):
        pass


def _cancelled(limiter: Limiter, key: str) -> None:
    with limiter.reserve(key, 2) as reservation:
        reservation.cancel()


def _was_reset(limiter: Limiter, key: str) -> None:
    limiter.hit(key)
    limiter.reset(key)


def _let_out(limiter: Limiter, key: str) -> None:
    with Limiter("1 concurrent", store=limiter.store).hold(key):
        pass


def _shortened(limiter: Limiter, key: str) -> None:
    limiter.hit(key)
    limiter.set_limit(key, "50000/second gcra")


GIVEN_BACK = [_undone, _succeeded, _cancelled, _was_reset, _let_out, _shortened]


@pytest.mark.parametrize("text", ["50/day", "50/day gcra", "50/day sliding-log", "50/day cells 4"])
@pytest.mark.parametrize("give_back", GIVEN_BACK)
@pytest.mark.parametrize("on_full", ["evict", "deny"])
def test_what_was_given_back_goes_before_who_is_refused(
    on_full: str, give_back: Callable[[Limiter, str], None], text: str, manual_clock: ManualClock
) -> None:
    store = MemoryStore(clock=manual_clock, max_keys=40, on_full=on_full)
    live, other = Limiter("5/minute", store=store), Limiter(text, store=store, name="t")
    for number in range(20):
        live.hit(f"refused {number}", 5)
    for number in range(20):
        give_back(other, f"idle {number}")
    manual_clock.advance(1)
    assert all(live.hit(f"new {number}") for number in range(18))  # the live ones fit
    assert not any(live.hit(f"refused {number}") for number in range(20))
    assert store.evicted == 0


def test_what_was_given_back_in_part_goes_by_its_new_reset(manual_clock: ManualClock) -> None:
    store = MemoryStore(clock=manual_clock, max_keys=40)
    limiter = Limiter("60/hour gcra burst 60", store=store)
    for number in range(40):
        limiter.hit(f"user {number}", 30)
    for number in range(30, 40):
        store.decide([Ask("refund", limiter.limits[0], f"user {number}", 20)])
    for number in range(10):
        limiter.hit(f"new {number}", 30)
    left = [limiter.peek(f"user {number}").remaining for number in range(40)]
    assert left == [30] * 30 + [60] * 10


def test_a_key_that_comes_and_goes_takes_no_more_room(manual_clock: ManualClock) -> None:
    store = MemoryStore(clock=manual_clock, max_keys=4)
    limiter, live = Limiter("50/day", store=store), Limiter("5/minute", store=store)
    held = Limiter("9 concurrent", store=store)
    for number in range(2000):
        live.hit(f"flood {number}")
        for _ in range(3):
            _succeeded(limiter, "same")
            _let_out(limiter, "same")
            with held.hold("again"):
                pass
        manual_clock.advance(0.25)
    assert store.keys <= 4
    if not compiled:
        books: Any = store._reclaimer
        assert len(books._ordered) <= 100
        assert len(books._ends) <= 20
        assert sum(len(table.grains) for table in store._tables.values()) <= 20


def test_a_debt_far_ahead_is_filed_near(manual_clock: ManualClock) -> None:
    store = MemoryStore(clock=manual_clock, max_keys=3)
    limiter, day = Limiter("1/second debt", store=store), Limiter("1/day gcra", store=store)
    for key, cost in (("centuries", 2**53 - 1), ("days", 500_000), ("hours", 10_000)):
        assert limiter.hit(key, cost)
    assert day.hit("first")  # in the place of the one that resets soonest
    manual_clock.advance(10_000)
    assert day.hit("second")
    assert not limiter.hit("centuries")
    assert [limiter.peek(key).reset_after > 0 for key in ("days", "hours")] == [True, False]
    assert day.peek("first").allowed


def test_what_is_better_kept_goes_before_who_is_refused(manual_clock: ManualClock) -> None:
    store = MemoryStore(clock=manual_clock, max_keys=12)
    permits, slow = Limiter("1 concurrent", store=store), Limiter("5/10s initial 0", store=store)
    live = Limiter("1/day", store=store)
    with ExitStack() as stack:
        for number in range(4):
            stack.enter_context(permits.hold(f"held {number}"))
        for number in range(4):
            assert not slow.hit(f"slow {number}")
        manual_clock.advance(60)
        for number in range(8):
            assert live.hit(f"live {number}")
        assert not any(live.hit(f"live {number}") for number in range(8))
        assert store.evicted == 0


def test_a_bucket_that_starts_empty_is_not_emptied_by_forgetting(
    manual_clock: ManualClock,
) -> None:
    limiter = Limiter("50/10s burst 50 initial 0", clock=manual_clock)
    assert not limiter.hit("k")
    manual_clock.advance(3600)
    for number in range(100):
        limiter.hit(f"other {number}")
    assert sum(limiter.hit("k").allowed for _ in range(99)) == 50


@pytest.mark.parametrize("case", ALGORITHMS, ids=lambda case: case.limit)
def test_the_short_way_answers_as_decide_does(case: Case, manual_clock: ManualClock) -> None:
    limit = Limit.parse(case.limit)
    short, long = (MemoryStore(clock=manual_clock) for _ in range(2))
    quick = short.quick("", [limit])
    assert quick is not None
    draw = random.Random(case.limit)
    keys: list[Key] = ["a", "b", ("c", "d"), "ü"]
    for _ in range(500):
        manual_clock.advance(draw.choice([0, 0, 0.01, 0.1, 0.5, 3]))
        key, cost = draw.choice(keys), draw.choice([1, 1, 1, 0, 2, 5])
        one, (other,) = quick.hit(key, cost), long.decide([Ask("take", limit, key, cost)])
        assert repr(one) == repr(other)


@pytest.mark.parametrize("bad", [0, -1, 1.5, True, "many"])
def test_bad_max_keys(bad: int) -> None:
    with pytest.raises(ValueError, match="max_keys is a whole number"):
        MemoryStore(max_keys=bad)


def test_bad_on_full() -> None:
    with pytest.raises(ValueError, match="on_full is 'evict' or 'deny'"):
        MemoryStore(on_full="panic")


@pytest.mark.parametrize(
    "algorithm", ["gcra", "token-bucket", "debt", "even", "warm-up 1s", "queue 3"]
)
def test_a_debt_of_centuries_is_kept(algorithm: str, manual_clock: ManualClock) -> None:
    store = MemoryStore(clock=manual_clock)
    limit = Limit.parse(f"1/second {algorithm}")
    for _ in range(3):
        store.decide([Ask("charge", limit, "k", 2**53 - 1)])
    decision = store.decide([Ask("take", limit, "k")])[0]
    assert not decision.allowed
    assert decision.retry_after > 1e10
    manual_clock.advance(100)
    later = store.decide([Ask("take", limit, "k")])[0]
    assert later.retry_after == pytest.approx(decision.retry_after - 100)
