"""Even spacing: after a call of cost c nobody passes for c intervals."""

from __future__ import annotations

from fractions import Fraction
from math import ceil

from .base import Model

__all__ = ["Even"]


class Even(Model):
    """A list of passing instants; the last one says when the next may follow."""

    def __init__(self, amount: int, window: int) -> None:
        super().__init__()
        self.amount = amount
        self.interval = Fraction(window, amount)

    def free(self) -> Fraction:
        return max((at + cost * self.interval for at, cost in self.events), default=Fraction(0))

    def fits(self, now: int, cost: int) -> bool:
        return cost <= self.amount and now >= self.free()

    def ever(self, cost: int) -> bool:
        return cost <= self.amount

    def unused(self, now: int) -> bool:
        return now >= self.free()

    def book(self, now: int, cost: int, patience: int) -> int | None:
        """Take for a later instant, if it comes soon enough: in how many ticks."""
        turn = max(now, ceil(self.free()))
        if cost > self.amount or turn - now > patience:
            return None
        self.enter(turn, cost)
        return turn - now
