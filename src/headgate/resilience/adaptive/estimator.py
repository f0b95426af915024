"""Estimator: how many calls at once are right, learnt from how long calls take.

An estimator is pure: no clock, no lock, no call. It hears samples and has a limit; who enforces
the limit is another matter (`limiter`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Protocol, runtime_checkable

__all__ = ["Estimator", "Fixed", "checked", "log10_root"]


@runtime_checkable
class Estimator(Protocol):
    """What the limiter asks for; give it one of your own if you like."""

    @property
    def limit(self) -> int:
        """How many calls may be under way now."""
        ...

    def sample(self, rtt: int, in_flight: int, dropped: bool = False) -> int:
        """Hear of a call, or of many at once: how long they took in microseconds, how many were
        under way when it began, whether it was given up; returns the limit from now on."""
        ...


class Fixed:
    """A limit that stays what it was set to."""

    def __init__(self, limit: int) -> None:
        self.limit = checked("limit", limit)

    def sample(self, rtt: int, in_flight: int, dropped: bool = False) -> int:
        """Nothing is learnt."""
        return self.limit

    def __repr__(self) -> str:
        return f"Fixed({self.limit})"


def checked(what: str, value: int, least: int = 1) -> int:
    """A number of calls, or an error that says what it must be."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{what} is a whole number of calls, not {value!r}")
    if value < least:
        raise ValueError(f"{what} is at least {least}, not {value!r}")
    return value


def bounds(initial: int, least: int, most: int) -> None:
    """Check that a limit begins between its bounds."""
    checked("initial", initial)
    checked("least", least)
    checked("most", most)
    if not least <= initial <= most:
        raise ValueError(f"initial lies between least and most, not {least}, {initial}, {most}")


def share(what: str, value: float, least: float = 0.0, most: float = 1.0) -> float:
    """A number above `least` and up to `most`, or an error that says so."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{what} is a number, not {value!r}")
    if not least < value <= most:
        raise ValueError(f"{what} is above {least:g} and at most {most:g}, not {value!r}")
    return float(value)


def log10_root(limit: float) -> int:
    """The whole part of the decimal logarithm, at least 1: how Vegas grows its steps."""
    return max(1, int(math.log10(max(1.0, limit))))


Step = Callable[[float], float]
