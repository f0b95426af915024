"""Every algorithm under random calls of every kind: what must hold whatever happens."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import inf
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from headgate import (
    Ask,
    Decision,
    Limit,
    Limiter,
    LimitExceeded,
    ManualClock,
    MemoryStore,
    compiled,
)
from headgate.keys import Key

LIMITS = (
    "3/second fixed-window", "4/10s first-hit", "3/minute anchor 1970-01-01T00:00:07Z",
    "5/hour tz Asia/Kolkata", "5/second", "7/10s", "6/second cells 4", "9/10s cells 7",
    "5/second sliding-log", "10/second burst 4", "7/second burst 3 refill 300ms",
    "5/second burst 5 initial 1", "3/second debt", "10/second gcra burst 4", "7/10s gcra",
    "5/second leaky-bucket burst 3", "3/second queue 4", "3/second queue 4 delay 2",
    "3/second queue 4 nodelay", "3/second even", "4/second warm-up 2s", "5/second soft 30%",
    "1000000/day gcra burst 5", "1000000000/day burst 4",
)  # fmt: skip

Call = tuple[str, Key, int]
names: list[Key] = ["a", "b", ("c", "d"), "ü"]
keys = st.sampled_from(names)
ahead = st.sampled_from([1, 1000, 99_999, 333_334, 2_500_000])
back = st.sampled_from([1, 100_000, 900_000, 50_000_000])
calls = st.one_of(
    st.tuples(st.just("hit"), keys, st.integers(0, 5)),
    st.tuples(st.just("partial"), keys, st.integers(1, 9)),
    st.tuples(st.just("cancel"), keys, st.integers(1, 3)),
    st.tuples(st.just("attempt"), keys, st.integers(1, 2)),
    st.tuples(st.just("reset"), keys, st.just(0)),
    st.tuples(st.just("same limit"), keys, st.just(0)),
    st.tuples(st.just("advance"), keys, ahead),
    st.tuples(st.just("back"), keys, back),
)
traces = st.lists(calls, max_size=40)
limits = st.sampled_from(LIMITS)


def numbers(decision: Decision) -> tuple[object, ...]:
    return (
        decision.allowed, decision.granted, decision.remaining, decision.retry_after,
        decision.reset_after, decision.delay,
    )  # fmt: skip


def play(limiter: Limiter, clock: ManualClock, call: Call) -> object:
    kind, key, number = call
    match kind:
        case "hit":
            return numbers(limiter.hit(key, number))
        case "partial":
            return numbers(limiter.hit(key, number, partial=True))
        case "cancel" | "attempt":
            try:
                if kind == "cancel":
                    with limiter.reserve(key, number) as reservation:
                        reservation.cancel()
                else:
                    with limiter.attempt(key, number):
                        pass
            except LimitExceeded:
                return "refused"
        case "reset":
            limiter.reset(key)
        case "same limit":
            limiter.set_limit(key, *limiter.limits)
            limiter.set_limit(key, None)
        case "advance":
            clock.advance(number / 1_000_000)
        case "back":
            clock.turn_back(number / 1_000_000)
    return None


class LongWay(MemoryStore):
    """A store without the short way."""

    def quick(self, space: str, limits: Sequence[Limit]) -> None:
        return None


@given(limits, traces)
def test_the_short_way_is_the_long_way(text: str, trace: list[Call]) -> None:
    clocks = ManualClock(1_000_000), ManualClock(1_000_000)
    short = Limiter(text, store=MemoryStore(clock=clocks[0]))
    long = Limiter(text, store=LongWay(clock=clocks[1]))
    for call in trace:
        assert play(short, clocks[0], call) == play(long, clocks[1], call), call


def check_books(store: MemoryStore, *, in_order: bool) -> None:
    """Every key is filed exactly once, and not later than its reset."""
    from headgate.stores.reclaim import ORDERED, SMALLEST

    books: Any = store._reclaimer
    tables: list[Any] = list(store._tables.values())
    filed = Counter(
        (id(table), key) for table in tables for entries in table.grains.values() for key in entries
    )
    filed.update((id(table), key) for table, key in (*books._held, *books._spare))
    assert filed == Counter((id(table), key) for table in tables for key in table.cells)
    grains = {(id(table), grain) for table in tables for grain in table.grains if grain >= 0}
    assert grains == {
        (id(table), end | width) for width, ends in books._ends.items() for end, _, table in ends
    }
    ordered = sum(len(table.grains.get(ORDERED, ())) for table in tables)
    assert ordered == len(books._ordered) - books._void
    for table in tables if in_order else ():
        for grain, entries in table.grains.items():
            width = grain & (1 << SMALLEST) - 1 if grain > 0 else 0
            begin = grain - width - (1 << width)
            resets = [books._reset(table, key) for key in entries]
            assert all(reset < 0 or begin < reset for reset in resets), (grain, entries, resets)


@given(limits, traces, st.integers(2, 6))
def test_the_books_agree(text: str, trace: list[Call], most: int) -> None:
    clock = ManualClock(1_000_000)
    store = MemoryStore(clock=clock, max_keys=most)
    limiter, other = Limiter(text, store=store), Limiter("2/second", "9/minute", store=store)
    for call in trace:
        play(limiter, clock, call)
        play(other, clock, call)
        tables = store._tables.values()
        assert store.keys == sum(len(table) for table in tables) <= most
        if not compiled:  # else the books are the tables themselves
            check_books(store, in_order=all(kind != "back" for kind, _, _ in trace))


@given(limits, traces)
def test_what_a_decision_says_comes_true(text: str, trace: list[Call]) -> None:
    clock = ManualClock(1_000_000)
    limiter = Limiter(text, clock=clock)
    for call in trace:
        play(limiter, clock, call)
    look = limiter.peek("a")
    passed = sum(limiter.hit("a").allowed for _ in range(look.remaining + 3))
    assert passed == look.remaining
    refused = limiter.peek("a")
    if not refused and refused.retry_after < inf:
        tick = limiter.limits[0].tick / 1_000_000
        clock.advance(max(0.0, refused.retry_after - tick))
        assert not limiter.peek("a")
        clock.advance(min(refused.retry_after, tick))
        assert limiter.peek("a")


@given(limits, traces, st.integers(1, 3))
def test_taking_and_giving_back_changes_nothing(text: str, trace: list[Call], cost: int) -> None:
    clock = ManualClock(1_000_000)
    limiter = Limiter(text, clock=clock)
    for call in trace:
        play(limiter, clock, call)
    limiter.hit("a", 0)
    before = limiter.peek("a")
    taken = limiter.hit("a", cost)
    if taken:
        limiter.store.decide([Ask("refund", limiter.limits[0], "a", cost, at=taken.at)])
    after = limiter.peek("a")
    assert (after.allowed, after.remaining) == (before.allowed, before.remaining)
    assert after.retry_after == before.retry_after
