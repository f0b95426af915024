"""Token bucket: tokens flow in at a steady rate, up to a capacity; a call takes its cost.

State: an instant, and what was missing from a full bucket then, in units of 1/window of a
token, so that a tick refills exactly `quota` units and nothing is ever rounded. A call booked
for later leaves more missing than the bucket holds. Stepped refill is the same bucket read at
the last step of the grid.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .base import MOST, NEVER, REFUSED, Algorithm, Outcome, Rule, State

if TYPE_CHECKING:
    from ..limit import Limit

__all__ = ["DebtBucket", "TokenBucket"]


class TokenBucket(Algorithm):
    """Admits a call when its whole cost is there."""

    def __init__(self, limit: Limit, permille: int = 0) -> None:
        super().__init__(limit, permille)
        self.books = True
        self.capacity = limit.raised(limit.capacity, permille)
        self.full = self.capacity * self.window
        self.step = limit.refill // limit.tick or 1
        self.sticky = limit.initial is not None and limit.initial < self.capacity
        self.first = (
            (self.capacity - limit.initial) * self.window if limit.initial is not None else 0
        )
        # Past this many ticks every bucket is full; before, elapsed * quota fits 63 bits.
        self.forgets = MOST // self.quota
        # What is missing stays below twice the larger of rate and capacity.
        self.horizon = max(self.quota, self.capacity) * self.window // self.quota

    def fresh(self, now: int) -> State:
        return (now - now % self.step if self.sticky else 0), self.first, 0

    def drain(self, at: int, missing: int, now: int) -> tuple[int, int]:
        """What is missing now, and the instant it is true of."""
        if self.step > 1:
            now -= now % self.step
        elapsed = now - at
        if elapsed >= 0:
            if elapsed >= self.forgets:
                return now, 0
            missing -= elapsed * self.quota
            return now, missing if missing > 0 else 0
        if -elapsed <= self.window:  # the clock went back: it stands still
            return at, missing
        return now, missing

    def wait(self, missing: int, at: int, now: int) -> int:
        """Ticks from now until no more than a full bucket is missing."""
        over = missing - self.full
        if over <= 0:
            return 0
        ready = at - (-over // self.quota)
        if self.step > 1:
            ready += -ready % self.step
        return ready - now

    def take(self, a: int, b: int, c: int, now: int, cost: int, max_wait: int) -> Outcome:
        if cost > self.capacity:  # before anything is multiplied
            return REFUSED, a, b, c
        elapsed = now - a
        if self.step == 1 and 0 <= elapsed < self.forgets:  # `drain`, for nearly every call
            at, missing = now, b - elapsed * self.quota
            if missing < 0:
                missing = 0
        else:
            at, missing = self.drain(a, b, now)
        missing += cost * self.window
        if missing <= self.full:
            return 0, at, missing, 0
        if max_wait:
            wait = self.wait(missing, at, now)
            if wait <= max_wait:
                return wait, at, missing, 0
        if a <= at:
            return REFUSED, a, b, c
        return REFUSED, at, b, c

    def look(self, a: int, b: int, c: int, now: int, cost: int) -> tuple[int, int, int]:
        at, missing = self.drain(a, b, now)
        retry = NEVER
        if cost <= self.capacity:
            retry = self.wait(missing + cost * self.window, at, now)
        reset = self.wait(missing + self.full, at, now)
        return max(0, (self.full - missing) // self.window), retry, reset

    def charge(self, a: int, b: int, c: int, now: int, cost: int) -> State:
        at, missing = self.drain(a, b, now)
        return at, min(MOST, missing + cost * self.window), 0

    def refund(self, a: int, b: int, c: int, now: int, cost: int, at: int) -> State:
        then, missing = self.drain(a, b, now)
        back = cost * self.window
        if at > now:
            back = self.undone(back, missing - (self.full + (at - then) * self.quota))
        return then, max(0, missing - back), 0

    def undone(self, back: int, behind: int) -> int:
        """Of a booking, what can be given back: no more than nobody has booked behind it.

        Bookings are for whole ticks, so beside somebody else only whole tokens are certain.
        """
        return back if behind <= 0 else max(0, back - behind) // self.window * self.window

    def forecast(self, a: int, b: int, c: int, now: int, ahead: int, cost: int) -> int:
        at, missing = self.drain(a, b, now)
        return self.wait(min(MOST, missing + (ahead + cost) * self.window), at, now)

    def used(self, a: int, b: int, c: int, now: int) -> tuple[int, int]:
        return self.drain(a, b, now)[1], self.window

    def spent(self, now: int, top: int, bottom: int) -> State:
        return now - now % self.step, min(MOST, -(-top * self.window // bottom)), 0


class DebtBucket(TokenBucket):
    """Admits any cost while nothing is owed; who comes next waits until the debt is paid."""

    def __init__(self, limit: Limit, permille: int = 0) -> None:
        super().__init__(limit, permille)
        self.shape = (*self.shape, self.quota, self.full)

    def inherit(self, old: Rule, state: State, now: int) -> State | None:
        # As Guava does: the bucket stays as full in proportion, and who is in debt has been told
        # how long to wait, so a new rate applies after that.
        if not isinstance(old, DebtBucket) or old.tick != self.tick:
            return None
        at, missing = old.drain(state[0], state[1], now)
        if missing <= old.full:
            return at, -(-missing * self.full // old.full), 0
        debt = -(-(missing - old.full) * self.quota // old.quota)
        return at, min(MOST, self.full + debt), 0

    def take(self, a: int, b: int, c: int, now: int, cost: int, max_wait: int) -> Outcome:
        at, missing = self.drain(a, b, now)
        wait = self.wait(missing, at, now)
        if wait <= max_wait:
            return wait, at, self.owing(missing, cost), 0
        if a <= at:
            return REFUSED, a, b, c
        return REFUSED, at, b, c

    def owing(self, missing: int, cost: int) -> int:
        """What is missing once any cost has been taken."""
        return min(MOST, missing + cost * self.window)

    def look(self, a: int, b: int, c: int, now: int, cost: int) -> tuple[int, int, int]:
        at, missing = self.drain(a, b, now)
        # With nothing owed and nothing left, one more call still passes.
        left = (self.full - missing) // self.window + 1 if missing <= self.full else 0
        return left, self.wait(missing, at, now), self.wait(missing + self.full, at, now)

    def refund(self, a: int, b: int, c: int, now: int, cost: int, at: int) -> State:
        then, missing = self.drain(a, b, now)
        back = cost * self.window
        if at > now and missing > self.full + (at - then) * self.quota + back:
            # Somebody has booked behind it, for the instant at which all before is paid. Of what
            # the last of them costs, only one token is certain: more, and a newcomer would pass
            # before them.
            back = min(back, self.window)
        return then, max(0, missing - back), 0

    def forecast(self, a: int, b: int, c: int, now: int, ahead: int, cost: int) -> int:
        at, missing = self.drain(a, b, now)
        return self.wait(min(MOST, missing + ahead * self.window), at, now)
