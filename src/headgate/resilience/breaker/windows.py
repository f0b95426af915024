"""Windows: how the last calls went, counted by number or by time; integers only."""

from __future__ import annotations

from typing import Any

__all__ = ["CountWindow", "TimeWindow", "window_of"]

FAILED = 1
SLOW = 2
NO_EDGE = 2**53
"""Later than any instant, in microseconds; and in nanoseconds still a number of C."""


class CountWindow:
    """The last `size` calls."""

    __slots__ = ("_at", "_ring", "_size", "edge", "failed", "slow", "total")

    def __init__(self, size: int) -> None:
        self._size = size
        self._ring = bytearray(size)
        self._at = 0
        self.total = 0
        self.failed = 0
        self.slow = 0
        self.edge = NO_EDGE
        """Until when calls that went well may be added later, all at once."""

    def clear(self, now: int) -> None:
        """Forget everything."""
        self._ring = bytearray(self._size)
        self._at = self.total = self.failed = self.slow = 0

    def add(self, kind: int, now: int) -> None:
        """One call, FAILED, SLOW, both or neither; the oldest gives way."""
        at = self._at
        old = self._ring[at]
        if old:
            self.failed -= old & 1
            self.slow -= old >> 1
        self._ring[at] = kind
        self.failed += kind & 1
        self.slow += kind >> 1
        self._at = at + 1 if at + 1 < self._size else 0
        if self.total < self._size:
            self.total += 1

    def add_good(self, count: int) -> None:
        """Calls that went well, and before anything that is added after this."""
        if self.failed == 0 and self.slow == 0:  # nothing but zeros, wherever it begins
            self.total = min(self._size, self.total + count)
            return
        for _ in range(min(count, self._size)):
            self.add(0, 0)

    def roll(self, now: int) -> None:
        """Forget what is too old: here nothing ever is."""

    def harmless(self, least: int) -> bool:
        """Whether further calls that go well can trip nobody."""
        return (self.failed == 0 and self.slow == 0) or self.total >= least


class TimeWindow:
    """The calls of the last `cells` spans of `cell` microseconds, the present one included.

    Spans begin at multiples of their length, since the epoch.
    """

    __slots__ = ("_cell", "_failed", "_newest", "_size", "_slow", "_total", "edge", "failed",
                 "slow", "total")  # fmt: skip

    def __init__(self, cells: int, cell: int) -> None:
        self._size = cells
        self._cell = cell
        self.clear(0)

    def clear(self, now: int) -> None:
        """Forget everything."""
        self._total = [0] * self._size
        self._failed = [0] * self._size
        self._slow = [0] * self._size
        self._newest = now // self._cell
        self.edge = (self._newest + 1) * self._cell
        self.total = self.failed = self.slow = 0

    def roll(self, now: int) -> None:
        """Forget what is too old; a clock that goes back changes nothing."""
        if now < self.edge:
            return
        newest = now // self._cell
        steps = newest - self._newest
        if steps >= self._size:
            self.clear(now)
            return
        for step in range(1, steps + 1):
            at = (self._newest + step) % self._size
            self.total -= self._total[at]
            self.failed -= self._failed[at]
            self.slow -= self._slow[at]
            self._total[at] = self._failed[at] = self._slow[at] = 0
        self._newest = newest
        self.edge = (newest + 1) * self._cell

    def add(self, kind: int, now: int) -> None:
        """One call, FAILED, SLOW, both or neither."""
        self.roll(now)
        at = self._newest % self._size
        self._total[at] += 1
        self.total += 1
        if kind & 1:
            self._failed[at] += 1
            self.failed += 1
        if kind & 2:
            self._slow[at] += 1
            self.slow += 1

    def add_good(self, count: int) -> None:
        """Calls that went well in the present span, before its edge."""
        self._total[self._newest % self._size] += count
        self.total += count

    def harmless(self, least: int) -> bool:
        """Whether further calls that go well can trip nobody: older ones that went well leave."""
        return self.failed == 0 and self.slow == 0


def window_of(settings: Any) -> Any:
    """The window that settings ask for."""
    span = settings.window_seconds
    if span is None:
        return CountWindow(settings.window)
    cells = settings.cells or max(1, round(span))
    return TimeWindow(cells, max(1, round(span * 1_000_000 / cells)))
