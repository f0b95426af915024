"""Warm-up: after a rest the rate is low and rises to its full height while it is used.

The mathematics are Guava's. A key that rests stores permits up to a maximum; above a threshold
a stored permit costs more time the more are stored, along a straight line from the cold to the
stable interval, so taking one costs the area under the line. Who takes pays nothing: the next
caller waits.

State: an instant, the time still owed then, and the warmth (what is missing from full
coldness). With q the quota, P the window, W the warm-up time and f the cold factor, time is
counted in 1/(2(1+f)q) ticks and stored permits in units of which one permit is 2(1+f)P and a
tick of rest adds q(5+f). In these units maximum, threshold and stable cost are whole numbers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .base import MOST, REFUSED, Algorithm, Outcome, Rule, State

if TYPE_CHECKING:
    from ..limit import Limit

__all__ = ["WarmUp"]


class WarmUp(Algorithm):
    """Guava's smooth warming up."""

    def __init__(self, limit: Limit, permille: int = 0) -> None:
        super().__init__(limit, permille)
        self.books = True
        span, cold = limit.warm_up // limit.tick, limit.cold
        self.cold = cold
        self.scale = 2 * (1 + cold) * self.quota
        self.permit = 2 * (1 + cold) * self.window
        self.most = span * self.quota * (5 + cold)
        self.threshold = span * self.quota * (1 + cold)
        self.slope = 8 * span * self.quota
        self.forgets = MOST // self.scale
        self.shape = (*self.shape, self.quota, limit.warm_up, cold)

    def rest(self, at: int, owed: int, warmth: int, now: int) -> State:
        """The state brought up to now: debts paid first, then cooling."""
        elapsed = now - at
        if elapsed < 0:
            return (at if -elapsed <= self.window else now), owed, warmth
        if elapsed >= self.forgets:
            return now, 0, 0
        owed -= elapsed * self.scale
        if owed < 0:
            cooled = -owed * (5 + self.cold) // (2 * (1 + self.cold))
            owed, warmth = 0, max(0, warmth - cooled)
        return now, owed, warmth

    def price(self, stored: int, cost: int) -> tuple[int, int]:
        """The time that `cost` permits take, and how many stored ones they use up."""
        wanted = cost * self.permit
        spent = min(wanted, stored)
        above = max(0, stored - self.threshold)
        steep = min(above, spent)
        extra = steep * (self.cold - 1) * (2 * above - steep) // self.slope
        return wanted + extra, spent

    def wait(self, owed: int, at: int, now: int) -> int:
        """Ticks from now until so much is paid."""
        return at - now - (-owed // self.scale) if owed else 0

    def take(self, a: int, b: int, c: int, now: int, cost: int, max_wait: int) -> Outcome:
        at, owed, warmth = self.rest(a, b, c, now)
        wait = self.wait(owed, at, now)
        if wait > max_wait:
            if a <= at:
                return REFUSED, a, b, c
            return REFUSED, at, b, c
        time, spent = self.price(self.most - warmth, cost)
        return wait, at, min(MOST, owed + time), warmth + spent

    def look(self, a: int, b: int, c: int, now: int, cost: int) -> tuple[int, int, int]:
        at, owed, warmth = self.rest(a, b, c, now)
        cooling = -(-warmth * 2 * (1 + self.cold) // (5 + self.cold))
        return int(not owed), self.wait(owed, at, now), self.wait(owed + cooling, at, now)

    def charge(self, a: int, b: int, c: int, now: int, cost: int) -> State:
        at, owed, warmth = self.rest(a, b, c, now)
        time, spent = self.price(self.most - warmth, cost)
        return at, min(MOST, owed + time), warmth + spent

    def refund(self, a: int, b: int, c: int, now: int, cost: int, at: int) -> State:
        then, owed, warmth = self.rest(a, b, c, now)
        before = max(0, warmth - cost * self.permit)
        time, _ = self.price(self.most - before, cost)
        if at > now and owed > (at - then) * self.scale + time:
            return then, owed, warmth  # somebody has booked behind it
        return then, max(0, owed - time), before

    def forecast(self, a: int, b: int, c: int, now: int, ahead: int, cost: int) -> int:
        at, owed, warmth = self.rest(a, b, c, now)
        time, _ = self.price(self.most - warmth, ahead)
        return self.wait(owed + time, at, now)

    def used(self, a: int, b: int, c: int, now: int) -> tuple[int, int]:
        return self.rest(a, b, c, now)[1], self.permit

    def spent(self, now: int, top: int, bottom: int) -> State:
        return now, min(MOST, -(-top * self.permit // bottom)), 0

    def inherit(self, old: Rule, state: State, now: int) -> State | None:
        # As warm in proportion, and the same time still owed.
        if not isinstance(old, WarmUp) or old.tick != self.tick:
            return None
        _, owed, warmth = old.rest(*state, now)
        return now, min(MOST, owed * self.scale // old.scale), warmth * self.most // old.most
