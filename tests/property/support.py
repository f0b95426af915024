"""What the property tests share: the store under test, traces, and a run that follows one."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from headgate import Ask, Clock, Decision, Limit, Limiter, ManualClock, MemoryStore
from headgate.clock import LATEST
from headgate.stores.zone import ZoneStore
from models.base import Model

__all__ = [
    "CENTURY", "DAY", "LONG", "SECOND", "Case", "Cost", "Move", "Run", "check_numbers", "costs",
    "make_store", "moves", "rates", "starts", "steps", "ticks",
]  # fmt: skip

SECOND = 1_000_000
DAY = 86_400 * SECOND
CENTURY = 100 * 366 * 86_400
"""In seconds: clocks end in 2255, so what takes longer cannot be waited for."""
LONG = 62 * DAY
"""Idle days that overflowed somebody's int."""

Move = tuple[str, int]
Cost = tuple[str, int]


class RoomyZone(ZoneStore):
    """A zone that takes limits which could outgrow it: traces here are short."""

    def quick(self, space: str, limits: Sequence[Limit]) -> None:
        """Nothing prepared, and nothing refused."""


def make_store(clock: Clock) -> Any:
    """The store under test: in memory, or with HEADGATE_STORE=zone a zone."""
    if os.environ.get("HEADGATE_STORE") == "zone":
        return RoomyZone.anonymous(size=1 << 20, clock=clock)
    return MemoryStore(clock=clock)


@dataclass(frozen=True)
class Case:
    """A limit's text, and its model, made apart from the text."""

    text: str
    model: Callable[[int], Model]
    """Makes a model whose unit of time is so many microseconds."""
    capacity: int
    """The largest cost that can pass."""
    window: int
    """In microseconds."""

    def __repr__(self) -> str:
        return f"Case({self.text!r})"


# -- traces

notable = st.sampled_from(
    [
        (1000, 3 * SECOND),  # an interval of 3 ms exactly
        (300, SECOND),  # one of 3333.3 us
        (999_983, SECOND),  # a little more than a tick
        (7, DAY),
        (3, 7),  # a window of 7 ticks
        (1_000_000, DAY),  # ticks of 1 ms
        (10**9, DAY),  # ticks of 1 s
    ]
)
windows = st.sampled_from(
    [10, 1_000, 1001, 500_000, SECOND, 3 * SECOND, 60 * SECOND, 3600 * SECOND]
)
tiny = st.tuples(st.integers(1, 12), st.integers(5, 40))
"""Intervals of a few ticks and a part, where rounding shows at once."""
rates = st.one_of(tiny, st.tuples(st.integers(1, 12), windows), notable)
"""How much in how many microseconds."""

starts = st.sampled_from([0, 1, 999_999, 1_790_000_000 * SECOND, 1_790_000_000 * SECOND + 123_457])

moves = st.one_of(
    st.just(("stay", 0)),
    st.just(("stay", 0)),
    st.tuples(st.just("ticks"), st.integers(1, 3)),
    st.tuples(st.just("share"), st.integers(1, 20)),
    st.tuples(st.just("micros"), st.integers(1, 2 * SECOND)),
    st.tuples(st.just("boundary"), st.integers(-1, 1)),
    st.tuples(st.just("retry"), st.integers(-1, 1)),
    st.tuples(st.just("reset"), st.integers(-1, 1)),
    st.just(("window", 0)),
    st.just(("long", 0)),
)
costs = st.one_of(
    st.just(("of", 1)),
    st.tuples(st.just("of"), st.integers(0, 5)),
    st.tuples(st.just("capacity"), st.integers(-2, 2)),
    st.tuples(st.just("share"), st.integers(1, 7)),
    st.just(("remaining", 0)),
)
step = st.tuples(moves, costs)
steps = st.one_of(st.lists(step, min_size=1, max_size=12), st.lists(step, min_size=12, max_size=30))


def ticks(seconds: float, tick: int) -> int | None:
    """A time the front door told, in whole ticks; None for infinity."""
    if math.isinf(seconds):
        return None
    micros = round(seconds * SECOND)
    whole = round(micros / tick)
    apart = abs(micros - whole * tick)  # a float knows single microseconds for a century or two
    assert apart <= (seconds > CENTURY), f"{seconds} s is not a whole number of ticks"
    return whole


class Run:
    """A limiter on a clock of its own, followed by the model where there is one."""

    def __init__(self, case: Case, start: int = 0, **more: Any) -> None:
        self.case = case
        self.clock = ManualClock()
        self.clock.advance(start / SECOND)
        assert self.clock.micros() == start
        self.store = make_store(self.clock)
        self.limiter = Limiter(case.text, store=self.store, **more)
        self.limit: Limit = self.limiter.limits[0]
        self.tick = self.limit.tick
        self.window = case.window // self.tick
        self.model = case.model(self.tick)
        self.last: Decision | None = None

    @property
    def now(self) -> int:
        return self.clock.micros() // self.tick

    def advance(self, micros: int) -> None:
        if self.clock.micros() + micros < LATEST:  # a clock goes no further
            self.clock.advance(micros / SECOND)

    def move(self, move: Move) -> None:
        """Let time pass; some moves look at the last answer."""
        kind, number = move
        if kind == "ticks":
            self.advance(number * self.tick)
        elif kind == "share":
            self.advance(self.case.window * number // 8)
        elif kind == "micros":
            self.advance(number)
        elif kind == "boundary":
            past = self.clock.micros() % self.case.window
            self.advance(max(0, self.case.window - past + number * self.tick))
        elif kind in ("retry", "reset") and self.last is not None:
            answer = self.last.retry_after if kind == "retry" else self.last.reset_after
            wait = ticks(answer, self.tick)
            self.advance(max(0, (wait or 0) + number) * self.tick)
        elif kind == "window":
            self.advance(self.case.window)
        elif kind == "long":
            self.advance(LONG)

    def cost(self, cost: Cost) -> int:
        """A cost that may depend on the limit and on what is left."""
        kind, number = cost
        if kind == "capacity":
            return max(0, self.case.capacity + number)
        if kind == "share":
            return self.case.capacity * number // 8
        if kind == "remaining":
            return self.limiter.peek("key").remaining
        return number

    def hit(self, cost: int) -> Decision:
        self.last = self.limiter.hit("key", cost)
        return self.last

    def book(self, cost: int, patience: int) -> Decision:
        """Take, accepting a delay of so many ticks."""
        ask = Ask("take", self.limit, "key", cost, max_wait=patience * self.tick)
        self.last = self.store.decide([ask])[0]
        return self.last

    def step(self, move: Move, cost: Cost) -> Decision:
        """One hit that must answer as the model does, with all of its numbers."""
        self.move(move)
        asked = self.cost(cost)
        expected = self.model.take(self.now, asked)
        decision = self.hit(asked)
        assert decision.allowed == expected, (self.now, asked, decision)
        assert decision.granted == (asked if expected else 0)
        assert decision.delay == 0
        if self.model.seen():
            check_numbers(self.model, self.now, asked, decision, self.tick)
        return decision


def check_numbers(model: Model, now: int, cost: int, decision: Decision, tick: int) -> None:
    """`remaining`, `retry_after` and `reset_after` are the model's, to the tick."""
    check_remaining(model, now, decision.remaining)
    retry = ticks(decision.retry_after, tick)
    if decision.allowed:
        assert retry == 0
    elif retry is None:
        assert not model.ever(cost)
    else:
        assert model.ever(cost)
        assert retry >= 1
        assert model.fits(now + retry, cost)
        assert not model.fits(now + retry - 1, cost)
    reset = ticks(decision.reset_after, tick)
    assert reset is not None
    assert model.unused(now + reset), (now, reset, decision)
    assert reset == 0 or not model.unused(now + reset - 1), (now, reset, decision)


def check_remaining(model: Model, now: int, remaining: int) -> None:
    twin = model.copy()
    if remaining <= 20:
        for _ in range(remaining):
            assert twin.take(now, 1)
    else:  # for limits in which costs add up
        assert twin.take(now, remaining)
    assert not twin.take(now, 1), remaining
