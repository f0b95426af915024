"""Calendar windows: two instants share one when their wall clocks say so."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from fractions import Fraction
from zoneinfo import ZoneInfo

from .base import Model

__all__ = ["CalendarWindow", "wall"]

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
QUARTER = 15 * 60 * 1_000_000
"""Clocks of our time are put forward or back only at whole quarters of an hour."""
DAY = 86_400 * 1_000_000


def wall(micros: int, zone: ZoneInfo) -> datetime:
    """What the clock on the wall shows."""
    return (EPOCH + timedelta(microseconds=micros)).astimezone(zone)


class CalendarWindow(Model):
    """The natural hour, day, week, month or year; instants are ticks of `tick` microseconds."""

    def __init__(self, amount: int, unit: str, zone: str, tick: int = 1) -> None:
        super().__init__()
        self.amount = amount
        self.unit = unit
        self.zone = ZoneInfo(zone)
        self.tick = tick

    def label(self, now: int) -> object:
        """What two instants of one window have in common."""
        local = wall(now * self.tick, self.zone)
        if self.unit == "hour":  # the offset tells apart the two hours that autumn has
            return local.year, local.month, local.day, local.hour, local.utcoffset()
        if self.unit == "day":
            return local.date()
        if self.unit == "week":
            return local.isocalendar()[:2]
        return (local.year, local.month) if self.unit == "month" else local.year

    def end(self, now: int) -> int:
        """The first tick of the next window, found by walking there."""
        here = self.label(now)
        at = now * self.tick
        while self.label((at + DAY) // self.tick) == here:
            at += DAY
        at -= at % QUARTER
        while self.label(-(-at // self.tick)) == here or at < now * self.tick:
            at += QUARTER
        return int(-(-Fraction(at, self.tick) // 1))

    def used(self, now: int) -> int:
        here = self.label(now)
        return sum(cost for at, cost in self.events if self.label(at) == here)

    def fits(self, now: int, cost: int) -> bool:
        return self.used(now) + cost <= self.amount

    def ever(self, cost: int) -> bool:
        return cost <= self.amount

    def unused(self, now: int) -> bool:
        return self.used(now) == 0

    def refund(self, now: int, cost: int, at: int) -> None:
        self.strike(cost, at)
