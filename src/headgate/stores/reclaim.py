"""Which key to forget: idle ones a few at a time, then the one that resets soonest.

Keys are filed under a time not later than their reset, in grains of about 1/64 of their window.
A key that is used again is not moved; its entry is looked at when its time comes and filed
anew. So a hit costs nothing here, an insert a little, and there is no background thread.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any, TypeAlias

__all__ = ["Reclaimer"]

Reset: TypeAlias = Callable[[Any, Any], int]
"""The instant at which a key of a table is as if never used; 0 if it is gone; negative if the
key must be kept at least until the instant's opposite."""

BATCH = 1024
"""How many keys of one grain are put in exact order at a time."""
ALL = 1 << 62


class Reclaimer:
    """Every key of a store exactly once, by the time it may be forgotten."""

    def __init__(self, reset: Reset) -> None:
        self._reset = reset
        # A flat list, table and key in turn: 16 bytes a key.
        self._grains: dict[int, list[Any]] = {}
        self._times: list[int] = []
        # Keys of the present grain, and those about to be evicted, in exact order.
        self._next: list[tuple[int, int, Any, Any]] = []
        self._serial = 0

    def file(self, table: Any, key: Any, reset: int, now: int) -> None:
        """Enter a key that resets at an instant, or must be kept until then."""
        reset = abs(reset)
        time = reset >> table.grain << table.grain
        if time <= now:
            self._serial += 1
            heapq.heappush(self._next, (reset, self._serial, table, key))
        elif time in self._grains:
            entries = self._grains[time]
            entries.append(table)
            entries.append(key)
        else:
            self._grains[time] = [table, key]
            heapq.heappush(self._times, time)

    def idle(self, now: int, tries: int = ALL) -> tuple[Any, Any] | None:
        """A key that is as if never used, if one turns up within so many tries."""
        while tries > 0:
            tries -= 1
            if self._next and self._next[0][0] <= now:
                _, _, table, key = heapq.heappop(self._next)
            elif self._times and self._times[0] <= now:
                table, key = self._pop()
            else:
                return None
            reset = self._reset(table, key)
            if 0 < reset <= now:
                return table, key
            if reset:
                self.file(table, key, reset, now)
        return None

    def soonest(self, now: int) -> tuple[Any, Any] | None:
        """The key that resets first; idle keys before all others."""
        found = self.idle(now)
        kept = []
        while found is None and (self._times or self._next):
            if self._times and (not self._next or self._times[0] <= self._next[0][0]):
                self._order(now)
                continue
            recorded, _, table, key = heapq.heappop(self._next)
            reset = self._reset(table, key)
            if reset == recorded:
                found = table, key
            elif reset < 0:
                kept.append((table, key, reset))
            elif reset:
                self.file(table, key, reset, now)
        for entry in kept:
            self.file(*entry, now)
        return found

    def _order(self, now: int) -> None:
        """Put keys of the first grain in exact order; those used since are filed anew."""
        time = self._times[0]
        for _ in range(BATCH):
            if not self._times or self._times[0] != time:
                break
            table, key = self._pop()
            reset = self._reset(table, key)
            if abs(reset) >> table.grain << table.grain > time:
                self.file(table, key, reset, now)
            elif reset:
                self._serial += 1
                heapq.heappush(self._next, (abs(reset), self._serial, table, key))

    def _pop(self) -> tuple[Any, Any]:
        entries = self._grains[self._times[0]]
        key, table = entries.pop(), entries.pop()
        if not entries:
            del self._grains[heapq.heappop(self._times)]
        return table, key
