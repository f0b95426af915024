"""Strategies: fixed window, moving window, and a sliding window of two counters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

from ...decision import Ask, Decision, Seen, check_cost, decided
from ...flows import Decide, Flow
from ...keys import Key
from ...limit import Limit
from ...limiter import Limiter
from .items import RateLimitItem
from .storage import Storage
from .util import WindowStats

__all__ = [
    "STRATEGIES",
    "Counting",
    "FixedWindowRateLimiter",
    "MovingWindowRateLimiter",
    "RateLimiter",
    "SlidingWindowCounterRateLimiter",
    "Wanted",
]


class Wanted(NamedTuple):
    """One item that a call is counted by."""

    item: RateLimitItem
    identifiers: Sequence[Any]
    cost: int = 1


class Counting:
    """What is asked of a store, whoever waits for the answer."""

    algorithm: ClassVar[str]
    storages: ClassVar[type]
    """The storages that can be counted in."""

    def __init__(self, storage: Any, *, on_error: str | None = None) -> None:
        if type(self) in (Counting, RateLimiter):
            raise TypeError(f"{type(self).__name__} is the base of the strategies; take one")
        if not isinstance(storage, self.storages):
            raise TypeError(
                f"{type(self).__name__} needs a storage of {self.storages.__module__}, not "
                f"{type(storage).__module__}.{type(storage).__name__}"
            )
        self.storage: Any = storage
        self._on_error = on_error

    def limiter(self, item: RateLimitItem) -> Limiter:
        """The limiter of headgate's that counts an item."""
        found: Limiter = self.storage.limiter(
            item.limit(self.algorithm), item.namespace, self._on_error
        )
        return found

    def asks(self, wanted: Wanted, op: str = "take") -> list[Ask]:
        """What a store is asked for."""
        key, cost = key_of(wanted.identifiers), check_cost(wanted.cost)
        return self.limiter(wanted.item).asks(op, key, cost)

    def deciding(self, wanted: Sequence[Wanted], op: str = "take") -> Flow[list[Decision]]:
        """The flow of a call that is counted by several items: all of them or none."""
        closed = [_closed(one.item) if one.item.amount == 0 else None for one in wanted]
        if op == "take" and any(shut is not None for shut in closed):
            op = "check"  # one of them admits nobody, so the others are not used either
        asks = [
            ask
            for one, shut in zip(wanted, closed, strict=True)
            if shut is None
            for ask in self.asks(one, op)
        ]
        found = iter((yield Decide(asks)) if asks else ())
        return [next(found) if shut is None else shut for shut in closed]

    def passing(self, item: RateLimitItem, ids: Sequence[Any], cost: int, op: str) -> Flow[bool]:
        """The flow of a call that is counted by one item."""
        check_cost(cost)
        decisions = yield from self.deciding([Wanted(item, ids, cost)], op)
        return decisions[0].allowed

    def looking(self, item: RateLimitItem, ids: Sequence[Any]) -> Flow[WindowStats]:
        """The flow that finds what is left, and the instant at which there is more."""
        clock = self.storage.store.clock
        if item.amount == 0:
            return WindowStats(clock.now(), 0)
        (now,) = yield Decide(self.asks(Wanted(item, ids, 0), "check"))
        left: int = now.remaining
        if left >= item.amount:
            return WindowStats(now.at / 1_000_000, item.amount)
        (more,) = yield Decide(self.asks(Wanted(item, ids, left + 1), "check"))
        return WindowStats(more.at / 1_000_000 + more.retry_after, left)

    def clearing(self, item: RateLimitItem, ids: Sequence[Any]) -> Flow[None]:
        """The flow that forgets what was used."""
        if item.amount:
            yield Decide(self.asks(Wanted(item, ids, 0), "reset"))


def key_of(identifiers: Sequence[Any]) -> Key:
    """Identifiers as a key; other than joined by slashes, no two of them ever meet."""
    return tuple(part if isinstance(part, bytes) else str(part) for part in identifiers)


def _closed(item: RateLimitItem) -> Decision:
    """The refusal by a limit of 0, which admits nobody."""
    limit = Limit(1, per=item.get_expiry()).named(repr(item))
    return decided(Seen(limit, 1_000_000), (-1, 0, -1, -1), 0, 1)


class RateLimiter(Counting):
    """A strategy for threads and plain functions."""

    storages = Storage
    storage: Storage

    def hit(self, item: RateLimitItem, *identifiers: Any, cost: int = 1) -> bool:
        """Take `cost`, or be refused and take nothing."""
        return self.storage.run(self.passing(item, identifiers, cost, "take"))

    def test(self, item: RateLimitItem, *identifiers: Any, cost: int = 1) -> bool:
        """Would a hit pass? Takes nothing."""
        return self.storage.run(self.passing(item, identifiers, cost, "check"))

    def get_window_stats(self, item: RateLimitItem, *identifiers: Any) -> WindowStats:
        """What is left, and when there is more."""
        return self.storage.run(self.looking(item, identifiers))

    def clear(self, item: RateLimitItem, *identifiers: Any) -> None:
        """Forget what was used."""
        self.storage.run(self.clearing(item, identifiers))


class FixedWindowRateLimiter(RateLimiter):
    """A window begins with the first hit."""

    algorithm = "fixed-window"


class MovingWindowRateLimiter(RateLimiter):
    """Every hit is remembered for one window."""

    algorithm = "sliding-log"


class SlidingWindowCounterRateLimiter(RateLimiter):
    """The last window is weighted by the part of it that still reaches in."""

    algorithm = "sliding-window"


STRATEGIES: dict[str, type[RateLimiter]] = {
    "fixed-window": FixedWindowRateLimiter,
    "moving-window": MovingWindowRateLimiter,
    "sliding-window-counter": SlidingWindowCounterRateLimiter,
}
