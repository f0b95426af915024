"""ZoneReservations: what is reserved, in nodes of their own and a list in order of expiry.

The header keeps the earliest expiry, so a decision that finds nothing expired has done one
comparison. A key's node counts its reservations, and is not forgotten while it has any.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .engine import Engine, Full
from .places import COUNT, EARLIEST, FIRST, IS_KEY, IS_RESERVED, LAST, LINK, RESERVED

__all__ = ["ZoneReservations"]

TOKEN, COST, AT, EXPIRES, BEFORE, HANDLE = range(2, 8)
AFTER = 32  # the upper half of the same word as the one before
ODD = 0x9E3779B97F4A7C15  # a product with an odd number is never the same for two tokens


class ZoneReservations:
    """Costs taken for a while, which come back unless they are settled in time."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def add(self, table: Any, handle: int, token: int, cost: int, at: int, expires: int) -> None:
        """Remember `cost`, taken at the instant `at`, until it expires."""
        engine, name = self._engine, _name(handle, token)
        node = engine.find(name, IS_RESERVED)
        if node:
            self._unlink(node)
        else:
            node = engine.insert(name, IS_RESERVED)
            if not node:
                raise Full(f"the zone {engine.path} is full")
            engine.add(RESERVED, 1)
            self._count(handle, 1)
        engine.put(node + TOKEN, token)
        engine.put(node + COST, cost)
        engine.put(node + AT, at)
        engine.put(node + HANDLE, handle)
        self._link(node, expires)

    def renew(self, table: Any, handle: int, token: int, expires: int) -> bool:
        """Let a reservation live until `expires`; False if there is none any more."""
        node = self._engine.find(_name(handle, token), IS_RESERVED)
        if not node:
            return False
        self._unlink(node)
        self._link(node, expires)
        return True

    def pop(self, table: Any, handle: int, token: int) -> tuple[int, int]:
        """What was taken and when; nothing if it has expired or was forgotten."""
        node = self._engine.find(_name(handle, token), IS_RESERVED)
        return self._take_out(node) if node else (0, 0)

    def drop(self, table: Any, handle: int) -> None:
        """Forget what is reserved for a key, because the key was forgotten."""
        engine = self._engine
        key = engine.find(handle, IS_KEY)
        left = engine.get(key) >> COUNT if key else 0
        chunk = engine.get(FIRST)
        for _ in range(engine.chunks):
            if not left or not chunk:
                break
            node = self._node(chunk)
            chunk = engine.get(node + BEFORE) >> AFTER
            if engine.get(node + HANDLE) == handle:
                self._take_out(node)
                left -= 1

    def expired(self, now: int) -> Iterator[tuple[int, int, int]]:
        """Take out whatever was not settled in time: handle, cost, instant."""
        engine = self._engine
        while 0 < engine.get(EARLIEST) <= now:
            node = self._node(engine.get(FIRST))
            handle = engine.get(node + HANDLE)
            yield handle, *self._take_out(node)

    def _take_out(self, node: int) -> tuple[int, int]:
        engine = self._engine
        cost, at = engine.get(node + COST), engine.get(node + AT)
        self._unlink(node)
        self._count(engine.get(node + HANDLE), -1)
        engine.add(RESERVED, -1)
        engine.remove(node)
        return cost, at

    def _count(self, handle: int, change: int) -> None:
        key = self._engine.find(handle, IS_KEY)
        if key and self._engine.get(key) + (change << COUNT) > 0:
            self._engine.add(key, change << COUNT)

    # -- the list

    def _node(self, chunk: int) -> int:
        node = self._engine.at(chunk)
        if self._engine.kind(node) != IS_RESERVED:
            raise self._engine.damaged("its list of reservations")
        return node

    def _link(self, node: int, expires: int) -> None:
        """Enter a node behind those that expire no later, mostly at the end."""
        engine = self._engine
        before, after = engine.get(LAST), 0
        left = engine.chunks
        while before:
            place = self._node(before)
            if engine.get(place + EXPIRES) <= expires:
                break
            before, after = engine.get(place + BEFORE) & LINK, before
            left -= 1
            if left < 0:
                raise engine.damaged("its list of reservations")
        engine.put(node + EXPIRES, expires)
        engine.put(node + BEFORE, before | after << AFTER)
        self._join(before, after, engine.chunk(node), engine.chunk(node))

    def _unlink(self, node: int) -> None:
        links = self._engine.get(node + BEFORE)
        before, after = links & LINK, links >> AFTER & LINK
        self._join(before, after, after, before)

    def _join(self, before: int, after: int, behind: int, ahead: int) -> None:
        """Let `behind` follow the node `before`, and `ahead` precede the node `after`."""
        engine = self._engine
        if before:
            place = self._node(before) + BEFORE
            engine.put(place, (engine.get(place) & LINK) | behind << AFTER)
        else:
            engine.put(FIRST, behind)
        if after:
            place = self._node(after) + BEFORE
            engine.put(place, (engine.get(place) & ~LINK) | ahead)
        else:
            engine.put(LAST, ahead)
        first = engine.get(FIRST)
        engine.put(EARLIEST, engine.get(self._node(first) + EXPIRES) if first else 0)


def _name(handle: int, token: int) -> int:
    name = (handle ^ token * ODD) & (1 << 64) - 1
    return name - (1 << 64) if name >> 63 else name
