"""Sliding windows: the weighted counter, the cells, and the exact log."""

from __future__ import annotations

from fractions import Fraction
from math import floor

from .base import Model

__all__ = ["Cells", "Counter", "Log"]


class _Sliding(Model):
    def __init__(self, amount: int, window: int) -> None:
        super().__init__()
        self.amount = amount
        self.window = window

    def used(self, now: int) -> Fraction:
        raise NotImplementedError

    def fits(self, now: int, cost: int) -> bool:
        return self.used(now) + cost <= self.amount

    def ever(self, cost: int) -> bool:
        return cost <= self.amount

    def refund(self, now: int, cost: int, at: int) -> None:
        self.strike(cost, at)


class Counter(_Sliding):
    """This window's count, and the last one's by the share of it that still reaches in."""

    def count(self, number: int) -> int:
        return sum(cost for at, cost in self.events if floor(Fraction(at, self.window)) == number)

    def counts(self, now: int) -> tuple[int, int, Fraction]:
        """The last window's count, this one's, and the elapsed share of this one."""
        windows = Fraction(now, self.window)
        number = floor(windows)
        return self.count(number - 1), self.count(number), windows - number

    def used(self, now: int) -> Fraction:
        before, count, elapsed = self.counts(now)
        return count + before * (1 - elapsed)

    def unused(self, now: int) -> bool:
        before, count, _ = self.counts(now)
        return before == 0 and count == 0

    def formula(self, now: int, cost: int) -> Fraction:
        """The published time until a refused call passes."""
        before, count, f = self.counts(now)
        if count + cost <= self.amount:
            return ((1 - Fraction(self.amount - cost - count, before)) - f) * self.window
        rest = max(Fraction(0), 1 - Fraction(self.amount - cost, count))
        return (1 - f) * self.window + rest * self.window


class Cells(_Sliding):
    """The sum over the cell of now and the n - 1 before it."""

    def __init__(self, amount: int, window: int, cells: int) -> None:
        super().__init__(amount, window)
        self.length = Fraction(window, cells)
        self.cells = cells

    def used(self, now: int) -> Fraction:
        here = floor(now / self.length)
        inside = range(here - self.cells + 1, here + 1)
        return Fraction(sum(cost for at, cost in self.events if floor(at / self.length) in inside))

    def unused(self, now: int) -> bool:
        return self.used(now) == 0


class Log(_Sliding):
    """The sum over everything less than a window ago."""

    def used(self, now: int) -> Fraction:
        return Fraction(sum(cost for at, cost in self.events if now - self.window < at <= now))

    def unused(self, now: int) -> bool:
        return self.used(now) == 0
