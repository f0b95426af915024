"""GCRA: one instant, the theoretical arrival time, says everything.

State: the instant it was written, and the instant at which the key will be as if never used, in
whole ticks and a remainder of 1/quota ticks. Each call moves the arrival time on by cost *
window / quota; a call passes while it stays within the tolerance, `capacity` calls' worth ahead
of now. The same decisions as a token bucket, from the other side.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .base import MOST, NEVER, REFUSED, Algorithm, Outcome, State

if TYPE_CHECKING:
    from ..limit import Limit

__all__ = ["Gcra"]


class Gcra(Algorithm):
    """Virtual scheduling with an exact remainder."""

    def __init__(self, limit: Limit, permille: int = 0) -> None:
        super().__init__(limit, permille)
        self.books = True
        self.capacity = limit.raised(limit.capacity, permille)
        self.tolerance = self.capacity * self.window
        # The same in ticks and a remainder, so that a take needs no division.
        self.step, self.step_rest = divmod(self.window, self.quota)
        self.reach, self.reach_rest = divmod(self.tolerance, self.quota)
        self.horizon = max(self.quota, self.capacity) * self.window // self.quota
        self.shape = (*self.shape, self.quota)  # the remainder is counted in 1/quota

    def ahead(self, at: int, arrival: int, rest: int, now: int) -> tuple[int, int]:
        """How far the arrival time lies ahead, in 1/quota ticks, and of which instant."""
        since = max(at, now)
        ahead = (arrival - since) * self.quota + rest if arrival >= since else 0
        # A clock that went back up to a window stands still; further, all of it counts from now.
        return ahead, since if since - now <= self.window else now

    def state(self, ahead: int, at: int) -> State:
        ahead = min(MOST // 2, ahead)  # with the instant itself still below MOST
        return at, at + ahead // self.quota, ahead % self.quota

    def take(self, a: int, b: int, c: int, now: int, cost: int, max_wait: int) -> Outcome:
        if cost > self.capacity:  # before anything is multiplied
            return REFUSED, a, b, c
        if a > now:
            return self.book(a, b, c, now, cost, max_wait)
        if cost == 1:
            arrival, rest = self.step, self.step_rest
        else:
            arrival, rest = cost * self.window // self.quota, cost * self.window % self.quota
        if b >= now:
            arrival, rest = arrival + b, rest + c
            if rest >= self.quota:
                arrival, rest = arrival + 1, rest - self.quota
        else:
            arrival += now
        latest = now + self.reach
        if arrival < latest or (arrival == latest and rest <= self.reach_rest):
            return 0, now, arrival, rest
        if max_wait:
            return self.book(a, b, c, now, cost, max_wait)
        return REFUSED, a, b, c

    def book(self, a: int, b: int, c: int, now: int, cost: int, max_wait: int) -> Outcome:
        """The long way: a call that comes too early, or a clock that went back."""
        ahead, at = self.ahead(a, b, c, now)
        over = ahead + cost * self.window - self.tolerance
        wait = at - now - (-over // self.quota) if over > 0 else 0
        if wait > max_wait:
            if a <= at:
                return REFUSED, a, b, c
            wait, cost = REFUSED, 0
        at, arrival, rest = self.state(ahead + cost * self.window, at)
        return wait, at, arrival, rest

    def look(self, a: int, b: int, c: int, now: int, cost: int) -> tuple[int, int, int]:
        ahead, at = self.ahead(a, b, c, now)
        retry = NEVER
        if cost <= self.capacity:
            over = ahead + cost * self.window - self.tolerance
            retry = at - now - (-over // self.quota) if over > 0 else 0
        left = max(0, (self.tolerance - ahead) // self.window)
        return left, retry, at - now - (-ahead // self.quota) if ahead else 0

    def charge(self, a: int, b: int, c: int, now: int, cost: int) -> State:
        ahead, at = self.ahead(a, b, c, now)
        return self.state(min(MOST, ahead + cost * self.window), at)

    def refund(self, a: int, b: int, c: int, now: int, cost: int, at: int) -> State:
        ahead, since = self.ahead(a, b, c, now)
        back = cost * self.window
        behind = ahead - (self.tolerance + (at - since) * self.quota)
        if at > now and behind > 0:
            # Undone only as far as nobody has booked behind it, in whole calls: bookings are for
            # whole ticks, and a part of one is not certain.
            back = max(0, back - behind) // self.window * self.window
        return self.state(max(0, ahead - back), since)

    def forecast(self, a: int, b: int, c: int, now: int, ahead: int, cost: int) -> int:
        before, at = self.ahead(a, b, c, now)
        over = before + (ahead + cost) * self.window - self.tolerance
        return at - now - (-over // self.quota) if over > 0 else 0

    def used(self, a: int, b: int, c: int, now: int) -> tuple[int, int]:
        return self.ahead(a, b, c, now)[0], self.window

    def spent(self, now: int, top: int, bottom: int) -> State:
        return self.state(min(MOST, -(-top * self.window // bottom)), now)
