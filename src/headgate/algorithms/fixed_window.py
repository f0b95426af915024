"""Fixed window: a count that starts again at each boundary.

State: the start of the window last used, and what was used in it. Boundaries are multiples of
the window from the epoch or from an anchor, the calendar's, or begin with the first hit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import calendar
from .base import MOST, NEVER, REFUSED, Algorithm, Outcome, State

if TYPE_CHECKING:
    from ..limit import Limit

__all__ = ["CalendarWindow", "FirstHitWindow", "FixedWindow"]


class FixedWindow(Algorithm):
    """Windows aligned to the epoch, or to an anchor before which nothing passes."""

    def __init__(self, limit: Limit, permille: int = 0) -> None:
        super().__init__(limit, permille)
        self.anchor = (limit.anchor or 0) // limit.tick
        self.shape = (*self.shape, self.anchor)

    def bounds(self, start: int, used: int, now: int) -> tuple[int, int]:
        """The window that holds `now`: its start and its end."""
        begin = now - (now - self.anchor) % self.window
        return max(0, begin), begin + self.window

    def roll(self, start: int, used: int, now: int) -> tuple[int, int, int]:
        """The window to count in, what it holds, and its end."""
        begin, end = self.bounds(start, used, now)
        if start == begin:
            return begin, used, end
        if start < begin or not used:
            return begin, 0, end
        # The clock went back. Up to a window it stands still; further, the count is kept here.
        if start - now <= end - begin:
            return start, used, start + end - begin
        return begin, used, end

    def take(self, a: int, b: int, c: int, now: int, cost: int, max_wait: int) -> Outcome:
        if b and self.anchor <= a <= now < a + self.window:  # still in the window last used
            used = b + cost
            if used <= self.quota:
                return 0, a, used, 0
            return REFUSED, a, b, c
        start, used, end = self.roll(a, b, now)
        if used + cost <= self.quota and now >= self.anchor:
            return 0, start, used + cost, 0
        if a < end:
            return REFUSED, a, b, c
        return REFUSED, start, used, 0

    def look(self, a: int, b: int, c: int, now: int, cost: int) -> tuple[int, int, int]:
        _, used, end = self.roll(a, b, now)
        reset = end - now if used else 0
        left = max(0, self.quota - used)
        if now < self.anchor:
            left, end = 0, self.anchor
        if cost > self.quota:
            return left, NEVER, reset
        return left, 0 if cost <= left else end - now, reset

    def charge(self, a: int, b: int, c: int, now: int, cost: int) -> State:
        start, used, _ = self.roll(a, b, now)
        return start, min(MOST, used + cost), 0

    def refund(self, a: int, b: int, c: int, now: int, cost: int, at: int) -> State:
        start, used, end = self.roll(a, b, now)
        if start <= at < end or (start > now and at >= now):  # the clock went back and stands still
            used = max(0, used - cost)
        return start, used, 0

    def forecast(self, a: int, b: int, c: int, now: int, ahead: int, cost: int) -> int:
        if now < self.anchor:
            return self.anchor - now
        _, used, end = self.roll(a, b, now)
        later = -(-(used + ahead + cost) // self.quota) - 1
        return end - now + (later - 1) * self.window if later > 0 else 0

    def used(self, a: int, b: int, c: int, now: int) -> tuple[int, int]:
        return self.roll(a, b, now)[1], 1


class FirstHitWindow(FixedWindow):
    """A window that begins with the first hit and leaves no trace when it ends."""

    def __init__(self, limit: Limit, permille: int = 0) -> None:
        super().__init__(limit, permille)
        self.shape = (*self.shape, "first-hit")

    def bounds(self, start: int, used: int, now: int) -> tuple[int, int]:
        begin = start if used and start <= now < start + self.window else now
        return begin, begin + self.window


class CalendarWindow(FixedWindow):
    """The natural hour, day, week, month or year of a time zone."""

    def __init__(self, limit: Limit, permille: int = 0) -> None:
        super().__init__(limit, permille)
        self.last = (0, 0)
        self.shape = (*self.shape, limit.calendar, limit.tz)

    def bounds(self, start: int, used: int, now: int) -> tuple[int, int]:
        begin, end = self.last  # one tuple, so that a race reads one window or the other
        if not begin <= now < end:
            limit = self.limit
            assert limit.calendar is not None
            assert limit.tz is not None
            begin, end = calendar.bounds(limit.calendar, limit.tz, now * self.tick)
            begin, end = max(0, -(-begin // self.tick)), -(-end // self.tick)
            self.last = begin, end
        return begin, end

    def take(self, a: int, b: int, c: int, now: int, cost: int, max_wait: int) -> Outcome:
        # Windows differ in length, so only the calendar knows whether one has ended.
        start, used, end = self.roll(a, b, now)
        if used + cost <= self.quota:
            return 0, start, used + cost, 0
        if a < end:
            return REFUSED, a, b, c
        return REFUSED, start, used, 0

    def forecast(self, a: int, b: int, c: int, now: int, ahead: int, cost: int) -> int:
        _, used, end = self.roll(a, b, now)
        return end - now if used + ahead + cost > self.quota else 0
