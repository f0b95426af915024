"""Leaky bucket: what comes in drains at a steady rate; what would overflow is refused.

State: an instant, and the level then, in units of 1/window of a call. As a meter, a call
passes at once while it fits. As a queue, it passes when what was there before it has drained,
except that the first `delay` above the rate pass at once; its third word is the level as
departures see it, each of which takes place at a whole tick. A bucket with burst b holds b + 1,
as nginx counts: the one in service and b waiting.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .base import MOST, NEVER, REFUSED, Outcome, State
from .token_bucket import TokenBucket

if TYPE_CHECKING:
    from ..limit import Limit

__all__ = ["LeakyMeter", "LeakyQueue"]


class LeakyMeter(TokenBucket):
    """Refuses what would overflow; a full token bucket's emptiness is this bucket's level."""


class LeakyQueue(TokenBucket):
    """Delays what is above the rate; refuses what the queue cannot hold."""

    def __init__(self, limit: Limit, permille: int = 0) -> None:
        super().__init__(limit, permille)
        self.free = min(limit.raised(limit.delay, permille), self.capacity) * self.window
        # Departures keep their distance in whole ticks, unless a tick has room for several.
        self.spaced = self.quota < self.window
        self.horizon = 2 * (self.full // self.quota + self.capacity)
        self.shape = (*self.shape, "queue")

    def levels(self, a: int, b: int, c: int, now: int) -> tuple[int, int, int]:
        """The level, the level as departures see it, and the instant they are true of."""
        at, level = self.drain(a, b, now)
        return at, level, max(level, self.drain(a, c, now)[1])

    def turn(self, late: int, at: int, now: int) -> int:
        """Ticks until a call that finds this level may pass."""
        return at - now - (-(late - self.free) // self.quota) if late > self.free else 0

    def take(self, a: int, b: int, c: int, now: int, cost: int, max_wait: int) -> Outcome:
        at, level, late = self.levels(a, b, c, now)
        wait, added = self.turn(late, at, now), cost * self.window
        if cost > self.capacity or wait > max_wait or level + added > self.full:
            if a <= at:
                return REFUSED, a, b, c
            return REFUSED, at, b, c
        if wait and self.spaced:
            late = (wait + now - at) * self.quota + self.free
        return wait, at, level + added, late + added

    def look(self, a: int, b: int, c: int, now: int, cost: int) -> tuple[int, int, int]:
        at, level, late = self.levels(a, b, c, now)
        retry, reset = NEVER, at - now - (-late // self.quota) if late else 0
        if cost <= self.capacity:
            room = self.wait(level + cost * self.window, at, now)
            retry = max(room, self.turn(late, at, now))
        if late > self.free:
            return 0, retry, reset
        # At one instant, calls pass without delay until the level is above what is free.
        undelayed = (self.free - late) // self.window + 1
        return min(undelayed, (self.full - level) // self.window), retry, reset

    def charge(self, a: int, b: int, c: int, now: int, cost: int) -> State:
        at, level, late = self.levels(a, b, c, now)
        added = cost * self.window
        return at, min(MOST, level + added), min(MOST, late + added)

    def refund(self, a: int, b: int, c: int, now: int, cost: int, at: int) -> State:
        then, level, late = self.levels(a, b, c, now)
        back = cost * self.window
        if at > now and late > (at - then) * self.quota + self.free + back:
            back = 0  # somebody stands behind it in the queue, and keeps the distance
        return then, max(0, level - back), max(0, late - back)

    def forecast(self, a: int, b: int, c: int, now: int, ahead: int, cost: int) -> int:
        at, _, late = self.levels(a, b, c, now)
        return self.turn(late + ahead * self.window, at, now)

    def spent(self, now: int, top: int, bottom: int) -> State:
        at, level, _ = super().spent(now, top, bottom)
        return at, level, level
