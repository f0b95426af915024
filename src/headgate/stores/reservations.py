"""Reservations: costs taken for a while, which come back unless they are settled in time."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import Any, TypeAlias

__all__ = ["Reservations"]

Place: TypeAlias = tuple[tuple[str, str], Any]
"""A table's name, and a handle in it."""
Name: TypeAlias = tuple[int, tuple[str, str], Any]
"""A token, and its place."""


class Reservations:
    """What is reserved, by name, and in order of expiry."""

    def __init__(self) -> None:
        # What was taken, the instant it was taken at, and when it expires.
        self._taken: dict[Name, tuple[int, int, int]] = {}
        self._places: dict[Place, set[int]] = {}
        self._serial = 0
        self.expiries: list[tuple[int, int, Name]] = []

    def add(self, table: Any, handle: Any, token: int, cost: int, at: int, expires: int) -> None:
        """Remember `cost`, taken at the instant `at`, until it expires."""
        name = (token, table.name, handle)
        self._taken[name] = (cost, at, expires)
        self._places.setdefault(name[1:], set()).add(token)
        self._file(expires, name)

    def renew(self, table: Any, handle: Any, token: int, expires: int) -> bool:
        """Let a reservation live until `expires`; False if there is none any more."""
        name = (token, table.name, handle)
        if name not in self._taken:
            return False
        cost, at, _ = self._taken[name]
        self._taken[name] = (cost, at, expires)
        self._file(expires, name)
        return True

    def pop(self, table: Any, handle: Any, token: int) -> tuple[int, int]:
        """What was taken and when; nothing if it has expired or was forgotten."""
        return self._pop((token, table.name, handle))

    def drop(self, table: Any, handle: Any) -> None:
        """Forget what is reserved for a key, because the key was forgotten."""
        for token in list(self._places.get((table.name, handle), ())):
            self._pop((token, table.name, handle))

    def expired(self, now: int) -> Iterator[tuple[tuple[str, str], Any, int, int]]:
        """Take out whatever was not settled in time: table's name, handle, cost, instant."""
        while self.expiries and self.expiries[0][0] <= now:
            end, _, name = heapq.heappop(self.expiries)
            if name in self._taken and self._taken[name][2] == end:
                yield *name[1:], *self._pop(name)

    def clear(self) -> None:
        """Forget everything."""
        self._taken.clear()
        self._places.clear()
        self.expiries.clear()

    def _file(self, expires: int, name: Name) -> None:
        self._serial += 1  # handles of several kinds have no order among themselves
        heapq.heappush(self.expiries, (expires, self._serial, name))

    def _pop(self, name: Name) -> tuple[int, int]:
        cost, at, _ = self._taken.pop(name, (0, 0, 0))
        place = self._places.get(name[1:])
        if place is not None:
            place.discard(name[0])
            if not place:
                del self._places[name[1:]]
        if len(self.expiries) > 64 + 2 * len(self._taken):
            self.expiries[:] = [
                (end, number, name)
                for number, (name, (_, _, end)) in enumerate(self._taken.items())
            ]
            self._serial = len(self.expiries)
            heapq.heapify(self.expiries)
        return cost, at
