"""Reservations: costs taken for a while, which come back unless they are settled in time."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import TypeAlias

from ..keys import Canonical

__all__ = ["Name", "Reservations"]

Name: TypeAlias = tuple[int, str, str, Canonical]
"""Token, namespace, limit id, key."""


class Reservations:
    """What is reserved, by name, and in order of expiry."""

    def __init__(self) -> None:
        self._taken: dict[Name, tuple[int, int]] = {}
        self.expiries: list[tuple[int, Name]] = []

    def add(self, name: Name, cost: int, at: int, expires: int) -> None:
        """Remember `cost`, taken at the instant `at`, until it expires."""
        self._taken[name] = (cost, at)
        heapq.heappush(self.expiries, (expires, name))

    def pop(self, name: Name) -> tuple[int, int]:
        """What was taken and when; nothing if it has expired."""
        found = self._taken.pop(name, (0, 0))
        if len(self.expiries) > 64 + 2 * len(self._taken):
            self.expiries[:] = [entry for entry in self.expiries if entry[1] in self._taken]
            heapq.heapify(self.expiries)
        return found

    def expired(self, now: int) -> Iterator[tuple[Name, tuple[int, int]]]:
        """Take out whatever was not settled in time."""
        while self.expiries and self.expiries[0][0] <= now:
            name = heapq.heappop(self.expiries)[1]
            if name in self._taken:
                yield name, self._taken.pop(name)

    def clear(self) -> None:
        self._taken.clear()
        self.expiries.clear()
