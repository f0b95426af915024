"""Leaky bucket: what comes in drains at a steady rate; what would overflow is refused.

State: an instant, and the level then, in units of 1/window of a call. As a meter, a call
passes at once while it fits. As a queue, it passes when what was there before it has drained,
except that the first `delay` above the rate pass at once. A bucket with burst b holds b + 1,
as nginx counts: the one in service and b waiting.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from .base import NEVER, REFUSED, Outcome, State
from .token_bucket import TokenBucket

if TYPE_CHECKING:
    from ..limit import Limit

__all__ = ["LeakyMeter", "LeakyQueue"]


class LeakyMeter(TokenBucket):
    """Refuses what would overflow; a full token bucket's emptiness is this bucket's level."""


class LeakyQueue(TokenBucket):
    """Delays what is above the rate; refuses what the queue cannot hold."""

    queues = True

    def __init__(self, limit: Limit, permille: int = 0) -> None:
        super().__init__(limit, permille)
        self.free = min(limit.raised(limit.delay, permille), self.capacity) * self.window
        # Each departure is moved to a whole tick; the queue must not lose a place by that.
        self.brim = self.full + min(self.capacity * self.quota, self.window - 1)

    @cached_property
    def horizon(self) -> int:
        return -(-self.brim // self.quota)

    def turn(self, level: int, at: int, now: int) -> int:
        """Ticks until a call that finds this level may pass."""
        return at - now - (-max(0, level - self.free) // self.quota)

    def take(self, a: int, b: int, c: int, now: int, cost: int, max_wait: int) -> Outcome:
        at, level = self.drain(a, b, now)
        wait = self.turn(level, at, now)
        if cost > self.capacity or wait > max_wait or level + cost * self.window > self.brim:
            return (REFUSED, a, b, c) if a <= at else (REFUSED, at, b, c)
        if level > self.free:
            # Counted from the whole tick at which it passes, so departures keep their distance.
            level = (wait + now - at) * self.quota + self.free
        return wait, at, level + cost * self.window, 0

    def look(self, a: int, b: int, c: int, now: int, cost: int) -> tuple[int, int, int]:
        at, level = self.drain(a, b, now)
        retry, reset = NEVER, at - now - (-level // self.quota)
        if cost <= self.capacity:
            over = max(0, level + cost * self.window - self.brim)
            retry = max(at - now - (-over // self.quota), self.turn(level, at, now))
        if level > self.free or at > now:
            return 0, retry, reset
        # At one instant, calls pass without delay until the level is above what is free.
        undelayed = (self.free - level) // self.window + 1
        return min(undelayed, (self.brim - level) // self.window), retry, reset

    def refund(self, a: int, b: int, c: int, now: int, cost: int, at: int) -> State:
        then, level = self.drain(a, b, now)
        back = cost * self.window
        if at > now:  # a place in the queue is given back only as far as nobody stands behind it
            behind = level - ((at - then) * self.quota + self.free + back)
            back -= max(0, behind)
        return then, max(0, level - max(0, back)), 0

    def forecast(self, a: int, b: int, c: int, now: int, ahead: int, cost: int) -> int:
        at, level = self.drain(a, b, now)
        return self.turn(level + ahead * self.window, at, now)
