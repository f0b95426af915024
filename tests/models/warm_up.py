"""Guava's smooth warming up, from its published mathematics, in fractions."""

from __future__ import annotations

from fractions import Fraction

from .base import Model

__all__ = ["WarmUp"]


class WarmUp(Model):
    """Stored permits cost more the more are stored; who comes next waits for who came before."""

    def __init__(self, amount: int, window: int, warm_up: int, cold: int) -> None:
        super().__init__()
        self.stable = Fraction(window, amount)
        self.threshold = Fraction(1, 2) * warm_up / self.stable
        self.most = self.threshold + Fraction(2 * warm_up) / (self.stable + cold * self.stable)
        self.slope = (cold * self.stable - self.stable) / (self.most - self.threshold)
        self.cooling = warm_up / self.most
        """How long a resting key takes to store one permit."""

    def interval(self, stored: Fraction) -> Fraction:
        """The height of the line over so many stored permits."""
        return self.stable + max(Fraction(0), stored - self.threshold) * self.slope

    def price(self, stored: Fraction, permits: Fraction) -> Fraction:
        """The area under the line while so many stored permits are taken."""
        left = stored - permits
        knee = min(stored, max(left, self.threshold))
        steep = (self.interval(stored) + self.interval(knee)) / 2 * (stored - knee)
        return steep + self.stable * (knee - left)

    def replay(self, now: int) -> tuple[Fraction, Fraction]:
        """When the next caller is free to pass, and what is stored by now."""
        free, stored = Fraction(0), self.most
        for at, cost in self.events:
            free, stored = self.rested(free, stored, at)
            taken = min(Fraction(cost), stored)
            free += self.price(stored, taken) + (cost - taken) * self.stable
            stored -= taken
        return self.rested(free, stored, now)

    def rested(self, free: Fraction, stored: Fraction, now: int) -> tuple[Fraction, Fraction]:
        if now <= free:
            return free, stored
        return Fraction(now), min(self.most, stored + (now - free) / self.cooling)

    def fits(self, now: int, cost: int) -> bool:
        return self.replay(now)[0] <= now

    def ever(self, cost: int) -> bool:
        return True

    def unused(self, now: int) -> bool:
        free, stored = self.replay(now)
        return free == now and stored == self.most
