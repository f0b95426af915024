"""The token bucket: a level that rises, replayed from the first call on."""

from __future__ import annotations

from fractions import Fraction
from math import ceil, floor

from .base import Model

__all__ = ["Bucket", "DebtBucket"]


class Bucket(Model):
    """Tokens flow in steadily, or a batch at every multiple of `step`; a call takes its cost."""

    def __init__(
        self,
        amount: int,
        window: int,
        capacity: int,
        initial: int | None = None,
        step: int = 0,
    ) -> None:
        super().__init__()
        self.rate = Fraction(amount, window)
        self.capacity = capacity
        self.initial = capacity if initial is None else initial
        self.step = step
        self.first: int | None = None
        """When the key was first seen."""

    def inflow(self, since: int, now: int) -> Fraction:
        if not self.step:
            return self.rate * (now - since)
        batches = floor(Fraction(now, self.step)) - floor(Fraction(since, self.step))
        return self.rate * self.step * batches

    def level(self, now: int) -> Fraction:
        level = Fraction(self.initial)
        if self.first is None:
            return level
        at = self.first
        for when, cost in [*self.events, (now, 0)]:
            level = min(Fraction(self.capacity), level + self.inflow(at, when)) - cost
            level = min(Fraction(self.capacity), level)  # a refund is a negative cost
            at = when
        return level

    def take(self, now: int, cost: int) -> bool:
        if self.first is None and cost:
            self.first = now
        return super().take(now, cost)

    def fits(self, now: int, cost: int) -> bool:
        return self.level(now) >= cost

    def ever(self, cost: int) -> bool:
        return cost <= self.capacity

    def enter(self, now: int, cost: int) -> None:
        if self.first is None:
            self.first = now
        super().enter(now, cost)

    def unused(self, now: int) -> bool:
        return self.level(now) == self.capacity

    def seen(self) -> bool:
        return self.first is not None or self.initial == self.capacity

    def used(self, now: int) -> Fraction:
        return self.capacity - self.level(now)

    def refund(self, now: int, cost: int, at: int) -> None:
        self.events.append((now, -cost))

    def wait(self, now: int, cost: int) -> int:
        """How many ticks until the whole cost is there."""
        lacking = cost - self.level(now)
        if lacking <= 0:
            return 0
        if not self.step:
            return ceil(lacking / self.rate)
        batches = ceil(lacking / (self.rate * self.step))
        return (floor(Fraction(now, self.step)) + batches) * self.step - now

    def book(self, now: int, cost: int, patience: int) -> int | None:
        """Take for a later instant, if it comes soon enough: in how many ticks."""
        if not self.ever(cost):
            return None
        wait = self.wait(now, cost)
        if wait > patience:
            return None
        self.enter(now, cost)
        return wait


class DebtBucket(Bucket):
    """Any cost passes while nothing is owed."""

    def fits(self, now: int, cost: int) -> bool:
        return self.level(now) >= 0

    def ever(self, cost: int) -> bool:
        return True

    def wait(self, now: int, cost: int) -> int:
        return super().wait(now, 0)
