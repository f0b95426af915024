"""Fixed windows: the sum of what was admitted in the window of an instant."""

from __future__ import annotations

from fractions import Fraction
from math import floor

from .base import Model

__all__ = ["FirstHitWindow", "FixedWindow"]


class FixedWindow(Model):
    """Windows in a row, counted from the epoch or from an anchor that opens the first."""

    def __init__(self, amount: int, window: int, anchor: int = 0) -> None:
        super().__init__()
        self.amount = amount
        self.window = window
        self.anchor = anchor

    def label(self, now: int) -> object:
        """What two instants of one window have in common."""
        return floor(Fraction(now - self.anchor, self.window))

    def used(self, now: int) -> int:
        here = self.label(now)
        return sum(cost for at, cost in self.events if self.label(at) == here)

    def fits(self, now: int, cost: int) -> bool:
        return now >= self.anchor and self.used(now) + cost <= self.amount

    def ever(self, cost: int) -> bool:
        return cost <= self.amount

    def unused(self, now: int) -> bool:
        return self.used(now) == 0

    def refund(self, now: int, cost: int, at: int) -> None:
        self.strike(cost, at)


class FirstHitWindow(Model):
    """A window opens with a hit that finds none open, and closes by itself."""

    def __init__(self, amount: int, window: int) -> None:
        super().__init__()
        self.amount = amount
        self.window = window
        self.windows: list[list[tuple[int, int]]] = []
        """The windows, each as the list of its hits; it opened at the first of them."""

    def open(self, now: int) -> list[tuple[int, int]] | None:
        for hits in self.windows:
            opened = hits[0][0]
            left = sum(cost for _, cost in hits)
            if left > 0 and opened <= now < opened + self.window:
                return hits
        return None

    def used(self, now: int) -> int:
        return sum(cost for _, cost in self.open(now) or [])

    def fits(self, now: int, cost: int) -> bool:
        return self.used(now) + cost <= self.amount

    def ever(self, cost: int) -> bool:
        return cost <= self.amount

    def enter(self, now: int, cost: int) -> None:
        super().enter(now, cost)
        hits = self.open(now)
        if hits is None:
            self.windows.append([(now, cost)])
        else:
            hits.append((now, cost))

    def unused(self, now: int) -> bool:
        return self.open(now) is None

    def refund(self, now: int, cost: int, at: int) -> None:
        self.strike(cost, at)
        hits = self.open(now)
        if hits is not None and at >= hits[0][0]:
            hits.append((at, -cost))

    def copy(self) -> FirstHitWindow:
        twin = super().copy()
        twin.windows = [list(hits) for hits in self.windows]
        return twin
