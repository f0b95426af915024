"""Even: calls at least window/quota apart, with no burst at all.

State: an instant, and what was still owed then, in 1/quota ticks: a call of cost c owes c
intervals, and nobody passes before the debt is paid. The next caller pays, so an idle key
admits any cost up to the quota at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .base import MOST, NEVER, REFUSED, Algorithm, Outcome, State

if TYPE_CHECKING:
    from ..limit import Limit

__all__ = ["Even"]


class Even(Algorithm):
    """Strict spacing."""

    def __init__(self, limit: Limit, permille: int = 0) -> None:
        super().__init__(limit, permille)
        self.books = True
        self.forgets = MOST // self.quota

    def owing(self, at: int, owed: int, now: int) -> tuple[int, int]:
        """What is owed, and the instant it is true of."""
        elapsed = now - at
        if elapsed >= 0:
            if elapsed >= self.forgets:
                return now, 0
            owed -= elapsed * self.quota
            return now, owed if owed > 0 else 0
        if -elapsed <= self.window:  # the clock went back: it stands still
            return at, owed
        return now, owed

    def wait(self, owed: int, at: int, now: int) -> int:
        """Ticks from now until nothing is owed."""
        return at - now - (-owed // self.quota) if owed else 0

    def take(self, a: int, b: int, c: int, now: int, cost: int, max_wait: int) -> Outcome:
        if cost > self.quota:
            return REFUSED, a, b, c
        at, owed = self.owing(a, b, now)
        wait = self.wait(owed, at, now)
        if wait > max_wait:
            if a <= at:
                return REFUSED, a, b, c
            return REFUSED, at, b, c
        # Counted from the whole tick at which it passes, so no two are closer than they may be.
        passes = wait + now if wait else at
        return wait, at, (passes - at) * self.quota + cost * self.window, 0

    def look(self, a: int, b: int, c: int, now: int, cost: int) -> tuple[int, int, int]:
        at, owed = self.owing(a, b, now)
        wait = self.wait(owed, at, now)
        return int(not owed), NEVER if cost > self.quota else wait, wait

    def charge(self, a: int, b: int, c: int, now: int, cost: int) -> State:
        at, owed = self.owing(a, b, now)
        return at, min(MOST, owed + cost * self.window), 0

    def refund(self, a: int, b: int, c: int, now: int, cost: int, at: int) -> State:
        then, owed = self.owing(a, b, now)
        back = cost * self.window
        if at > now and owed > (at - then) * self.quota + back:
            back = 0  # somebody has booked behind it, and keeps the distance
        return then, max(0, owed - back), 0

    def forecast(self, a: int, b: int, c: int, now: int, ahead: int, cost: int) -> int:
        at, owed = self.owing(a, b, now)
        return self.wait(min(MOST, owed + ahead * self.window), at, now)

    def used(self, a: int, b: int, c: int, now: int) -> tuple[int, int]:
        return self.owing(a, b, now)[1], self.window

    def spent(self, now: int, top: int, bottom: int) -> State:
        return now, min(MOST, -(-top * self.window // bottom)), 0
