"""Which key to forget: idle ones a few at a time, then the one that resets soonest.

Keys are filed by the instant of their reset, in grains of about 1/64 of their window. A key
that is used again is not moved; its entry is looked at when its time comes and filed anew. So
a hit costs nothing here, an insert a little, and there is no background thread.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from typing import Any, TypeAlias

__all__ = ["Reclaimer"]

Reset: TypeAlias = Callable[[Any, Any], int]
"""The instant at which a key of a table is as if never used; 0 if it is gone; negative if that
is not foreseen and the key must be kept."""

BATCH = 1024
"""How many keys of one grain are put in exact order at a time."""


class Reclaimer:
    """Every key of a store exactly once, by the time it may be forgotten."""

    def __init__(self, reset: Reset, most: int) -> None:
        self._reset = reset
        self.most = most
        self.keys = 0
        self.evicted = 0
        self.closed = False
        # By the end of a grain; a flat list, table and key in turn: 16 bytes a key.
        self._grains: dict[int, list[Any]] = {}
        self._ends: list[int] = []
        self._widest = 0
        # Keys that cannot be forgotten yet, a few of which are looked at in turn.
        self._held: deque[tuple[Any, Any]] = deque()
        # Keys of the first grains in exact order, once the store is full.
        self._ordered: list[tuple[int, int, Any, Any]] = []
        self._serial = 0

    def file(self, table: Any, key: Any, reset: int) -> None:
        """Enter a key that resets at an instant, or must be kept."""
        if reset < 0:
            self._held.append((table, key))
            return
        end = -(-reset >> table.grain) << table.grain
        entries = self._grains.get(end)
        if entries is None:
            self._grains[end] = [table, key]
            heapq.heappush(self._ends, end)
            self._widest = max(self._widest, 1 << table.grain)
        else:
            entries.append(table)
            entries.append(key)

    def idle(self, now: int, tries: int) -> tuple[Any, Any] | None:
        """A key that is as if never used, if one turns up within so many tries."""
        while tries > 0:
            tries -= 1
            if self._ordered and self._ordered[0][0] <= now:
                _, _, table, key = heapq.heappop(self._ordered)
            elif self._ends and self._ends[0] <= now:
                table, key = self._pop()
            elif self._held:
                table, key = self._held.popleft()
                tries = 0
            else:
                return None
            reset = self._reset(table, key)
            if 0 < reset <= now:
                return table, key
            if reset:
                self.file(table, key, reset)
        return None

    def soonest(self, now: int) -> tuple[Any, Any, int] | None:
        """The key that resets first, and when; it leaves these books."""
        found = None
        while found is None and (self._ends or self._ordered):
            if self._ends and (
                not self._ordered or self._ends[0] - self._widest <= self._ordered[0][0]
            ):
                self._order()
                continue
            recorded, _, table, key = heapq.heappop(self._ordered)
            reset = self._reset(table, key)
            if reset == recorded:
                found = table, key, reset
            elif reset:
                self.file(table, key, reset)
        return found

    def _order(self) -> None:
        """Put keys of the first grain in exact order; those used since are filed anew."""
        end = self._ends[0]
        for _ in range(BATCH):
            if not self._ends or self._ends[0] != end:
                break
            table, key = self._pop()
            reset = self._reset(table, key)
            if reset < 0 or -(-reset >> table.grain) << table.grain > end:
                self.file(table, key, reset)
            elif reset:
                self._serial += 1
                heapq.heappush(self._ordered, (reset, self._serial, table, key))

    def _pop(self) -> tuple[Any, Any]:
        entries = self._grains[self._ends[0]]
        key, table = entries.pop(), entries.pop()
        if not entries:
            del self._grains[heapq.heappop(self._ends)]
        return table, key
