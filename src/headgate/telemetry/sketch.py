"""Sketch: the busiest keys of a stream of any length, in bounded memory (space-saving).

A sketch keeps at most twice `size` keys. When it has more the lesser ones go, and `floor` is
the largest count among all that ever went. A key that comes (again) is counted from there on,
and remembers how much of its count may not be its own. So for every key that is kept

    count - error <= true count <= count,    and    floor <= calls / size

and whoever has more calls than `floor` is certainly kept. Dropping by halves makes it a
constant number of steps for each call, on average.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from operator import itemgetter
from typing import Any, NamedTuple

__all__ = ["Busy", "Sketch", "merged"]

ROOM = 32_768
"""So many characters of keys are kept, however few they are."""
_COUNT = itemgetter(1)


class Busy(NamedTuple):
    """A key, how often it was seen at most, and how much of that may be somebody else's."""

    key: Any
    count: int  # type: ignore[assignment] # a tuple has a method of this name
    error: int


class Sketch(dict[Any, int]):
    """Counts by key: `sketch[key] += 1` counts a call. One thread writes."""

    # A dict, so that the usual case of a key already there costs no call at all.
    __slots__ = ("_room", "errors", "floor", "size")

    def __init__(self, size: int = 50) -> None:
        super().__init__()
        self.size = size
        self.floor = 0
        self.errors: dict[Any, int] = {}
        self._room = ROOM

    def __missing__(self, key: Any) -> int:
        long = _length(key)
        self._room -= long
        if len(self) >= 2 * self.size or self._room < 0:
            self._halve()
            self._room -= long
        if self.floor:
            self.errors[key] = self.floor
        return self.floor

    def add(self, keys: Iterable[Any]) -> None:
        """Count many calls at once, which takes a tenth of the time."""
        floor, errors = self.floor, self.errors
        for key, count in Counter(keys).items():
            held = self.get(key)
            if held is None:
                self._room -= _length(key)
                if floor:
                    errors[key] = floor
                held = floor
            self[key] = held + count
        if len(self) > 2 * self.size or self._room < 0:
            self._halve()

    def with_more(self, keys: Iterable[Any]) -> Sketch:
        """A copy that has counted these calls too."""
        made = Sketch(self.size)
        # Another thread may be counting. An error is noted before its count and goes with it, so
        # one of the two copies of errors has it.
        before = dict(self.errors)
        made.update(dict(self))
        made.errors = before | self.errors
        made.floor, made._room = self.floor, self._room
        made.add(keys)
        return made

    def _halve(self) -> None:
        """Keep the busier ones, as far as there is room for their names."""
        order = sorted(self.items(), key=_COUNT, reverse=True)
        self._room, kept = ROOM, 0
        for key, _ in order[: self.size]:
            self._room -= _length(key)
            if self._room < ROOM // 2:
                self._room += _length(key)
                break
            kept += 1
        gone = order[kept:]
        if gone:
            self.floor = max(self.floor, gone[0][1])
        for key, _ in gone:
            del self[key]
            self.errors.pop(key, None)

    def top(self, most: int = 10) -> list[Busy]:
        """The busiest keys, busiest first."""
        return merged((self,), most)


def merged(sketches: Iterable[Sketch], most: int = 10) -> list[Busy]:
    """The busiest keys of several streams together."""
    counts: dict[Any, int] = {}
    errors: dict[Any, int] = {}
    copies = []
    for sketch in sketches:
        own = sketch.with_more(())  # as other threads may be counting
        copies.append((own, own.floor))
        for key, count in own.items():
            counts[key] = counts.get(key, 0) + count
            errors[key] = errors.get(key, 0) + own.errors.get(key, 0)
    if len(copies) > 1:
        for own, floor in copies:
            if floor:
                for key in counts:
                    if key not in own:  # it may have been counted there, and dropped
                        counts[key] += floor
                        errors[key] += floor
    order = sorted(counts.items(), key=_COUNT, reverse=True)[:most]
    return [Busy(key, count, errors[key]) for key, count in order]


def _length(key: Any) -> int:
    return sum(map(len, key)) if key.__class__ is tuple else len(key)
