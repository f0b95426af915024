"""Sliding window: this window's count plus the part of the last one that still reaches in.

State: the start of the window last used, its count, and the count of the window before. The
weight of the last window falls evenly to nothing while the present one passes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .base import MOST, NEVER, REFUSED, Algorithm, Outcome, State

if TYPE_CHECKING:
    from ..limit import Limit

__all__ = ["SlidingWindow"]


class SlidingWindow(Algorithm):
    """Windows aligned to the epoch, the previous one weighted."""

    def __init__(self, limit: Limit, permille: int = 0) -> None:
        super().__init__(limit, permille)
        # The largest count: times a window, two of them fit 63 bits.
        self.most = MOST // (2 * self.window)

    def roll(self, start: int, count: int, before: int, now: int) -> tuple[int, int, int, int]:
        """The present window: its start and counts, and how much of it has passed."""
        window = self.window
        begin = now - now % window
        if start == begin:
            return begin, count, before, now - begin
        if start < begin:
            return begin, 0, count if begin - start == window else 0, now - begin
        if start - now <= window:  # the clock went back: it stands still
            return start, count, before, 0
        return begin, count, before, now - begin

    def take(self, a: int, b: int, c: int, now: int, cost: int, max_wait: int) -> Outcome:
        window, elapsed = self.window, now - a
        if 0 <= elapsed < window:  # the window last used is still the present one
            start, count, before = a, b, c
        else:
            start, count, before, elapsed = self.roll(a, b, c, now)
        if cost > self.quota:  # before anything is multiplied
            return REFUSED, a, b, c
        if (count + cost) * window + before * (window - elapsed) <= self.quota * window:
            return 0, start, count + cost, before
        if a - now <= window:
            return REFUSED, a, b, c
        return REFUSED, start, count, before

    def look(self, a: int, b: int, c: int, now: int, cost: int) -> tuple[int, int, int]:
        start, count, before, elapsed = self.roll(a, b, c, now)
        window = self.window
        free = (self.quota - count) * window - before * (window - elapsed)
        # `now` may lie before `start` after a clock that went back.
        reset = start - now + (2 * window if count else window) if count or before else 0
        return max(0, free // window), self.retry(count, before, start - now, elapsed, cost), reset

    def retry(self, count: int, before: int, lag: int, elapsed: int, cost: int) -> int:
        window, room = self.window, self.quota - cost
        if room < 0:
            return NEVER
        if count <= room:  # in this window, once enough of the last one has left
            needed = window - (room - count) * window // before if before else 0
            return 0 if needed <= elapsed else lag + needed
        return lag + window + max(0, window - room * window // count)

    def charge(self, a: int, b: int, c: int, now: int, cost: int) -> State:
        start, count, before, _ = self.roll(a, b, c, now)
        return start, min(self.most, count + cost), before

    def refund(self, a: int, b: int, c: int, now: int, cost: int, at: int) -> State:
        start, count, before, _ = self.roll(a, b, c, now)
        if at >= start or (start > now and at >= now):  # the clock went back and stands still
            count = max(0, count - cost)
        elif at >= start - self.window:
            before = max(0, before - cost)
        return start, count, before

    def forecast(self, a: int, b: int, c: int, now: int, ahead: int, cost: int) -> int:
        start, count, before, elapsed = self.roll(a, b, c, now)
        if count + ahead + cost <= self.quota:
            return self.retry(count, before, start - now, elapsed, ahead + cost)
        # No window admits more than the quota, so at least so many windows must begin.
        later = -(-(count + ahead + cost) // self.quota) - 1
        return start - now + later * self.window

    def used(self, a: int, b: int, c: int, now: int) -> tuple[int, int]:
        _, count, before, elapsed = self.roll(a, b, c, now)
        return count * self.window + before * (self.window - elapsed), self.window
