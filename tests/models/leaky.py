"""Leaky buckets: a level that drains, refusing what overflows or making it wait."""

from __future__ import annotations

from fractions import Fraction
from math import ceil

from .base import Model

__all__ = ["Meter", "Queue"]


class Meter(Model):
    """What drains; a call passes if it does not overflow the one in service and the burst."""

    def __init__(self, amount: int, window: int, burst: int) -> None:
        super().__init__()
        self.rate = Fraction(amount, window)
        self.size = burst + 1

    def level(self, now: int) -> Fraction:
        level, since = Fraction(0), 0
        for at, cost in [*self.events, (now, 0)]:
            level = max(Fraction(0), level - self.rate * (at - since))
            level = max(Fraction(0), level + cost)
            since = at
        return level

    def used(self, now: int) -> Fraction:
        return self.level(now)

    def fits(self, now: int, cost: int) -> bool:
        return self.level(now) + cost <= self.size

    def ever(self, cost: int) -> bool:
        return cost <= self.size

    def unused(self, now: int) -> bool:
        return self.level(now) == 0

    def refund(self, now: int, cost: int, at: int) -> None:
        self.events.append((now, -cost))


class Queue(Model):
    """What is above the rate waits for its turn, all but the first `delay` of it.

    Turns are whole ticks. `ideal` is the level if they were not, which is what the queue holds;
    `whole` the level in which each turn that was moved to a tick counts from there, unless a
    tick has room for several; the one is never above the other.
    """

    def __init__(self, amount: int, window: int, queue: int, delay: int = 0) -> None:
        super().__init__()
        self.rate = Fraction(amount, window)
        self.size = queue + 1
        self.delay = delay

    def levels(self, now: int) -> tuple[Fraction, Fraction]:
        ideal = whole = Fraction(0)
        since = 0
        for at, cost in [*self.events, (now, 0)]:
            drained = self.rate * (at - since)
            ideal, whole = max(Fraction(0), ideal - drained), max(Fraction(0), whole - drained)
            if cost:
                if whole > self.delay and self.rate < 1:
                    whole = self.delay + self.rate * ceil((whole - self.delay) / self.rate)
                ideal, whole = ideal + cost, whole + cost
            since = at
        return ideal, whole

    def turn(self, now: int) -> int:
        """Ticks until a call that comes now has its turn."""
        above = self.levels(now)[1] - self.delay
        return ceil(above / self.rate) if above > 0 else 0

    def holds(self, now: int, cost: int) -> bool:
        """Whether there is a place in the queue."""
        return self.levels(now)[0] + cost <= self.size

    def ever(self, cost: int) -> bool:
        return cost <= self.size

    def unused(self, now: int) -> bool:
        return self.levels(now)[1] == 0
