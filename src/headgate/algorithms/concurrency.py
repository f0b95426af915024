"""Concurrency: at most so many at once; each permit is given back, or its lease runs out.

State: the permits in use by their token, each with its cost and the instant of its expiry (0:
none), and a heap of expiries. A release names its token, so releasing twice, or after the
lease ran out, changes nothing.
"""

from __future__ import annotations

import heapq
from functools import cached_property

from .base import NEVER, REFUSED, Spread, State

__all__ = ["Concurrency", "Permits"]


class Permits:
    """The permits of one key."""

    __slots__ = ("expiries", "held", "total")

    def __init__(self) -> None:
        self.held: dict[int, tuple[int, int]] = {}
        self.total = 0
        self.expiries: list[tuple[int, int]] = []


class Concurrency(Spread):
    """A counted set of leases."""

    @cached_property
    def shape(self) -> tuple[object, ...]:
        return (self.limit.algorithm, self.tick)

    def empty(self) -> Permits:
        return Permits()

    def roll(self, state: Permits, now: int) -> int:
        """Take back what was not renewed in time."""
        while state.expiries and state.expiries[0][0] <= now:
            expires, token = heapq.heappop(state.expiries)
            if state.held.get(token, (0, 0))[1] == expires:
                self.release(state, token)
        return now

    def take(self, state: Permits, now: int, cost: int) -> int:
        self.roll(state, now)
        return 0 if state.total + cost <= self.quota else REFUSED

    def put(self, state: Permits, now: int, cost: int, token: int = 0, expires: int = 0) -> None:
        if token in state.held:  # the same client-made id again: nothing new is taken
            return
        state.held[token] = (cost, expires)
        state.total += cost
        if expires:
            heapq.heappush(state.expiries, (expires, token))

    def release(self, state: Permits, token: int) -> bool:
        """Give a permit back; False if it was not held any more."""
        cost, _ = state.held.pop(token, (-1, 0))
        if cost < 0:
            return False
        state.total -= cost
        if len(state.expiries) > 16 + 2 * len(state.held):
            live = [(end, name) for name, (_, end) in state.held.items() if end]
            heapq.heapify(live)
            state.expiries = live
        return True

    def renew(self, state: Permits, token: int, expires: int) -> bool:
        """Let a held permit live until `expires`; False if it was not held any more."""
        if token not in state.held:
            return False
        state.held[token] = (state.held[token][0], expires)
        if expires:
            heapq.heappush(state.expiries, (expires, token))
        return True

    def view(self, state: Permits, now: int, cost: int) -> State:
        ends = [expires for _, expires in state.held.values()]
        last = 0 if not ends else -1 if 0 in ends else max(ends)
        first = 0
        if state.total + cost > self.quota:
            first = min((end for end in ends if end), default=0)
        return state.total, first, last

    def look(self, a: int, b: int, c: int, now: int, cost: int) -> tuple[int, int, int]:
        left = max(0, self.quota - a)
        retry = 0 if cost <= left else b - now if b and cost <= self.quota else NEVER
        return left, retry, c - now if c > 0 else c

    def refund(self, state: Permits, now: int, cost: int, at: int) -> None:
        """Nothing: a permit comes back by its token alone."""

    def forecast(self, state: Permits, now: int, ahead: int, cost: int) -> int:
        return 0  # nobody knows when a holder is done

    def used(self, state: Permits, now: int) -> tuple[int, int]:
        self.roll(state, now)
        return state.total, 1

    def spent(self, now: int, top: int, bottom: int) -> Permits:
        return Permits()  # what another algorithm counted holds no permit
