"""GCRA: one instant, the theoretical arrival time, says everything.

State: the instant at which the key will be as if never used, in whole ticks and a remainder of
1/quota ticks. Each call moves it on by cost * window / quota; a call passes while it stays
within the tolerance, `capacity` calls' worth ahead of now. The same decisions as a token
bucket, from the other side.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from .base import NEVER, REFUSED, Algorithm, Outcome, State

if TYPE_CHECKING:
    from ..limit import Limit

__all__ = ["Gcra"]


class Gcra(Algorithm):
    """Virtual scheduling with an exact remainder."""

    books = True

    def __init__(self, limit: Limit, permille: int = 0) -> None:
        super().__init__(limit, permille)
        self.capacity = limit.raised(limit.capacity, permille)
        self.tolerance = self.capacity * self.window
        # The same in ticks and a remainder, so that a take needs no division.
        self.step = divmod(self.window, self.quota)
        self.reach = divmod(self.tolerance, self.quota)
        self.most = 2 * max(self.quota, self.capacity) * self.window
        self.furthest = self.most // self.quota + 1

    @cached_property
    def shape(self) -> tuple[object, ...]:
        return (*super().shape, self.quota)  # the remainder is counted in 1/quota

    @cached_property
    def horizon(self) -> int:
        return max(self.quota, self.capacity) * self.window // self.quota

    def ahead(self, arrival: int, rest: int, now: int) -> int:
        """How far the arrival time lies ahead of now, in 1/quota ticks."""
        ahead = arrival - now
        if ahead < 0:
            return 0
        if ahead > self.furthest:  # no call wrote that: the clock went back
            return self.tolerance
        return ahead * self.quota + rest

    def at(self, ahead: int, now: int) -> State:
        return now + ahead // self.quota, ahead % self.quota, 0

    def take(self, a: int, b: int, c: int, now: int, cost: int, max_wait: int) -> Outcome:
        if cost > self.capacity:  # before anything is multiplied
            return REFUSED, a, b, c
        if cost == 1:
            arrival, rest = self.step
        else:
            arrival, rest = divmod(cost * self.window, self.quota)
        if a >= now:
            arrival, rest = arrival + a, rest + b
            if rest >= self.quota:
                arrival, rest = arrival + 1, rest - self.quota
        else:
            arrival += now
        limit, part = self.reach
        if arrival < now + limit or (arrival == now + limit and rest <= part):
            return 0, arrival, rest, 0
        if max_wait or a - now > self.furthest:
            return self.book(a, b, c, now, cost, max_wait)
        return REFUSED, a, b, c

    def book(self, a: int, b: int, c: int, now: int, cost: int, max_wait: int) -> Outcome:
        """A call that comes too early: for a later instant, if the caller may wait for it."""
        ahead = self.ahead(a, b, now) + cost * self.window
        wait = max(0, -(-(ahead - self.tolerance) // self.quota))
        if wait > max_wait:
            return (
                (REFUSED, a, b, c)
                if a - now <= self.furthest
                else (REFUSED, *self.at(self.tolerance, now))
            )
        return wait, now + ahead // self.quota, ahead % self.quota, 0

    def look(self, a: int, b: int, c: int, now: int, cost: int) -> tuple[int, int, int]:
        ahead = self.ahead(a, b, now)
        retry = NEVER
        if cost <= self.capacity:
            over = ahead + cost * self.window - self.tolerance
            retry = -(-over // self.quota) if over > 0 else 0
        left = max(0, (self.tolerance - ahead) // self.window)
        return left, retry, -(-ahead // self.quota)

    def charge(self, a: int, b: int, c: int, now: int, cost: int) -> State:
        # Beyond `most` an arrival time would pass for a broken clock.
        return self.at(min(self.most, self.ahead(a, b, now) + cost * self.window), now)

    def refund(self, a: int, b: int, c: int, now: int, cost: int, at: int) -> State:
        ahead = self.ahead(a, b, now)
        back = cost * self.window
        if at > now:  # a booking is undone only as far as nobody has booked behind it
            back -= max(0, ahead - (self.tolerance + (at - now) * self.quota))
        return self.at(max(0, ahead - max(0, back)), now)

    def forecast(self, a: int, b: int, c: int, now: int, ahead: int, cost: int) -> int:
        over = self.ahead(a, b, now) + (ahead + cost) * self.window - self.tolerance
        return max(0, -(-over // self.quota))

    def used(self, a: int, b: int, c: int, now: int) -> tuple[int, int]:
        return self.ahead(a, b, now), self.window

    def spent(self, now: int, top: int, bottom: int) -> State:
        return self.at(min(self.most, -(-top * self.window // bottom)), now)
