"""Which key to forget: idle ones a few at a time, then the one that resets soonest.

Keys are filed by the instant of their reset, in grains of about 1/64 of their window, or of the
time until then where that is longer. A key that is used again is not moved; its entry is looked
at when its time comes and filed anew. So a hit costs nothing here, an insert a little, and there
is no background thread. Only a key whose reset comes forward, because something was given back,
is moved at once: a table has so few grains that it is found by looking into each.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, TypeAlias

__all__ = ["Reclaimer"]

Reset: TypeAlias = Callable[[Any, Any], int]
"""The instant at which a key of a table is as if never used; 0 if it is gone; -1 if that is not
foreseen and the key must be kept; -2 if it is, but the key goes only where room is needed."""

BATCH = 1024
"""How many keys of one grain are put in exact order at a time."""
IDLE = 0
"""The grain of keys that were as if never used when they were filed."""
ORDERED = -1
"""Where a table's keys are that stand in exact order."""
SMALLEST = 16
"""The width of the narrowest grain, as a power of two of microseconds. Grains end at multiples
of their width, so the lowest bits of an end are free to say the width."""


class Reclaimer:
    """Every key of a store exactly once, by the time it may be forgotten."""

    def __init__(self, reset: Reset, most: int) -> None:
        self._reset = reset
        self.most = most
        self.keys = 0
        self.evicted = 0
        self.closed = False
        self._now = 0
        # The ends of the tables' grains, by width; the keys themselves are filed with their table.
        self._ends: dict[int, list[tuple[int, int, Any]]] = {}
        # Keys that cannot be forgotten yet, a few of which are looked at in turn.
        self._held: OrderedDict[tuple[Any, Any], None] = OrderedDict()
        # Keys that are as if never used, and better kept while there is room.
        self._spare: dict[tuple[Any, Any], None] = {}
        # Keys of the first grains in exact order, once the store is full; and how many of these
        # entries are void because their key was moved.
        self._ordered: list[tuple[int, int, Any, Any]] = []
        self._void = 0
        self._serial = 0

    def file(self, table: Any, key: Any, reset: int) -> None:
        """Enter a key that resets at an instant, or must be kept."""
        if reset < 0:
            (self._held if reset == -1 else self._spare)[table, key] = None
            return
        if reset <= self._now:
            end = grain = IDLE
        else:
            grain = max(table.grain, SMALLEST, (reset - self._now).bit_length() - 6)
            end = -(-reset >> grain) << grain
        entries = table.grains.get(end | grain)
        if entries is None:
            table.grains[end | grain] = {key: 0}
            self._serial += 1
            heapq.heappush(self._ends.setdefault(grain, []), (end, self._serial, table))
        else:
            entries[key] = 0

    def move(self, table: Any, key: Any, reset: int, now: int) -> None:
        """File a key anew whose reset may have come forward."""
        self._now = now
        if (table, key) in self._held:
            del self._held[table, key]
        elif (table, key) in self._spare:
            del self._spare[table, key]
        else:
            grains = table.grains
            for end in reversed(grains):  # the youngest first: it is found there as a rule
                if key in grains[end]:
                    del grains[end][key]
                    if end == ORDERED:
                        self._tidy()
                    break
        self.file(table, key, reset)

    def idle(self, now: int, tries: int) -> tuple[Any, Any] | None:
        """A key that is as if never used, if one turns up within so many tries."""
        self._now = now
        while tries > 0:
            if self._ordered and self._ordered[0][0] <= now:
                found = self._first()
            elif (grain := self._over(now)) is not None:
                found = self._pop(grain)
            elif self._spare and self.keys >= self.most:
                found = self._spare.popitem()[0]
            elif self._held:
                found = self._held.popitem(last=False)[0]
                tries = 0
            else:
                return None
            if found is None:
                continue
            tries -= 1
            table, key = found
            reset = self._reset(table, key)
            if 0 < reset <= now:
                return found
            if reset:
                self.file(table, key, reset)
        return None

    def soonest(self, now: int) -> tuple[Any, Any, int] | None:
        """The key that resets first, and when; it leaves these books."""
        self._now = now
        while True:
            begin, grain = min(
                ((ends[0][0] - (1 << grain), grain) for grain, ends in self._ends.items() if ends),
                default=(0, None),
            )
            if grain is not None and (not self._ordered or begin <= self._ordered[0][0]):
                self._order(grain)
                continue
            if not self._ordered:
                return None
            recorded = self._ordered[0][0]
            found = self._first()
            if found is None:
                continue
            reset = self._reset(*found)
            if reset == recorded:
                return *found, reset
            if reset:
                self.file(*found, reset)

    def _over(self, now: int) -> int | None:
        """A width whose first grain has ended."""
        for grain, ends in self._ends.items():
            if ends and ends[0][0] <= now:
                return grain
        return None

    def _order(self, grain: int) -> None:
        """Put keys of the first grain of a width in exact order; those used since go elsewhere."""
        ends = self._ends[grain]
        first = ends[0]
        for _ in range(BATCH):
            found = self._pop(grain)
            if found is not None:
                table, key = found
                reset = self._reset(table, key)
                if reset < 0 or reset > max(first[0], self._now):
                    self.file(table, key, reset)
                elif reset:
                    self._serial += 1
                    heapq.heappush(self._ordered, (reset, self._serial, table, key))
                    table.grains.setdefault(ORDERED, {})[key] = self._serial
            if not ends or ends[0] is not first:
                break

    def _pop(self, grain: int) -> tuple[Any, Any] | None:
        """A key of the first grain of a width; None if it was left empty."""
        end, _, table = self._ends[grain][0]
        entries = table.grains[end | grain]
        found = (table, entries.popitem()[0]) if entries else None
        if not entries:
            heapq.heappop(self._ends[grain])
            del table.grains[end | grain]
        return found

    def _first(self) -> tuple[Any, Any] | None:
        """The first key in exact order; None if its entry is void."""
        _, serial, table, key = heapq.heappop(self._ordered)
        if table.grains[ORDERED].get(key) != serial:
            self._void -= 1
            return None
        del table.grains[ORDERED][key]
        return table, key

    def _tidy(self) -> None:
        """Count one more void entry; if they are many, drop them all."""
        self._void += 1
        if self._void > 64 + len(self._ordered) // 2:
            self._ordered = [
                entry
                for entry in self._ordered
                if entry[2].grains[ORDERED].get(entry[3]) == entry[1]
            ]
            heapq.heapify(self._ordered)
            self._void = 0
