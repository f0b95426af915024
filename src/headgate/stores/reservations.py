"""Reservations: costs taken for a while, which come back unless they are settled in time."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import TypeAlias

from ..keys import Canonical

__all__ = ["Name", "Place", "Reservations"]

Name: TypeAlias = tuple[int, str, str, Canonical]
"""Token, namespace, limit id, key."""
Place: TypeAlias = tuple[str, str, Canonical]
"""Namespace, limit id, key."""


class Reservations:
    """What is reserved, by name, and in order of expiry."""

    def __init__(self) -> None:
        # What was taken, the instant it was taken at, and when it expires.
        self._taken: dict[Name, tuple[int, int, int]] = {}
        self._places: dict[Place, set[int]] = {}
        self.expiries: list[tuple[int, Name]] = []

    def add(self, name: Name, cost: int, at: int, expires: int) -> None:
        """Remember `cost`, taken at the instant `at`, until it expires."""
        self._taken[name] = (cost, at, expires)
        self._places.setdefault(name[1:], set()).add(name[0])
        heapq.heappush(self.expiries, (expires, name))

    def renew(self, name: Name, expires: int) -> bool:
        """Let a reservation live until `expires`; False if there is none any more."""
        if name not in self._taken:
            return False
        cost, at, _ = self._taken[name]
        self._taken[name] = (cost, at, expires)
        heapq.heappush(self.expiries, (expires, name))
        return True

    def pop(self, name: Name) -> tuple[int, int]:
        """What was taken and when; nothing if it has expired or was forgotten."""
        cost, at, _ = self._taken.pop(name, (0, 0, 0))
        place = self._places.get(name[1:])
        if place is not None:
            place.discard(name[0])
            if not place:
                del self._places[name[1:]]
        if len(self.expiries) > 64 + 2 * len(self._taken):
            self.expiries[:] = [(end, name) for name, (_, _, end) in self._taken.items()]
            heapq.heapify(self.expiries)
        return cost, at

    def drop(self, place: Place) -> None:
        """Forget what is reserved for a key, because the key was forgotten."""
        for token in list(self._places.get(place, ())):
            self.pop((token, *place))

    def expired(self, now: int) -> Iterator[tuple[Name, tuple[int, int]]]:
        """Take out whatever was not settled in time."""
        while self.expiries and self.expiries[0][0] <= now:
            end, name = heapq.heappop(self.expiries)
            if name in self._taken and self._taken[name][2] == end:
                yield name, self.pop(name)

    def clear(self) -> None:
        """Forget everything."""
        self._taken.clear()
        self._places.clear()
        self.expiries.clear()
