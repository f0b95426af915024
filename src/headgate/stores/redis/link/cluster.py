"""Routes in a cluster: keys by slot, slots by master."""

from __future__ import annotations

import contextlib
import random
from binascii import crc_hqx
from time import monotonic
from typing import Any

from ....errors import StoreUnavailable
from .routes import Node, Routes
from .target import Place, Target

__all__ = ["ClusterRoutes", "slot_of"]

SLOTS = 16384


def slot_of(key: bytes) -> int:
    """The slot of a key: that of the first part in braces, if there is one that is not empty."""
    start = key.find(b"{")
    if start >= 0:
        end = key.find(b"}", start + 1)
        if end > start + 1:
            key = key[start + 1 : end]
    return crc_hqx(key, 0) % SLOTS


class ClusterRoutes(Routes):
    """The masters of a cluster; node None stands for any of them."""

    def __init__(self, target: Target, timeout: float) -> None:
        super().__init__(target, timeout)
        self.slots: list[Node] = [None] * SLOTS
        self._masters: list[Node] = []
        self._learnt = 0.0

    def slot(self, key: bytes) -> int:
        return slot_of(key)

    def node(self, key: bytes | None) -> Node:
        return None if key is None else self.slots[slot_of(key)]

    def masters(self) -> list[Node]:
        return self._masters or [None]

    def named(self, text: str, asked: Node) -> Node:
        host, _, port = text.rpartition(":")
        host = host.strip("[]")
        if not host or host == "?":  # the host that was asked, by another port
            host = asked[0] if asked is not None else self.target.places[0][0]
        place = (host, int(port))
        return self.target.remap(place) if self.target.remap is not None else place

    def moved(self, slot: int, node: Node) -> None:
        self.slots[slot] = node
        if node not in self._masters:
            self._masters = [*self._masters, node]
        # Where one slot moved, others did or will; while many move, once a second is enough.
        if monotonic() - self._learnt > 1.0:
            self._learnt = monotonic()
            self.renewed()

    def known(self, node: Node) -> bool:
        return node is not None or bool(self._masters)

    def place(self, node: Node) -> Place | None:
        return node if node is not None else random.choice(self._masters or [None])

    def refresh(self) -> None:
        # In no fixed order: a node cut off from the others would tell old news every time.
        known = [node for node in self._masters if node is not None]
        random.shuffle(known)
        problem: object = "no node is known"
        for place in dict.fromkeys([*known, *self.target.places]):
            try:
                self._read(self._ask(place), place)
                return
            except Exception as error:
                problem = error
        raise StoreUnavailable(f"{self.target.shown} does not tell its slots: {problem}")

    def _ask(self, place: Place) -> Any:
        connection = self.target.connection(place, self._timeout)
        try:
            connection.connect()
            connection.send_command("CLUSTER", "SLOTS")
            return connection.read_response()
        finally:
            with contextlib.suppress(Exception):
                connection.disconnect()

    def _read(self, ranges: Any, asked: Place) -> None:
        slots: list[Node] = [None] * SLOTS
        for start, end, master, *_ in ranges:
            host = b"" if master[0] is None else bytes(master[0])
            node = self.named(f"{host.decode()}:{int(master[1])}", asked)
            slots[start : end + 1] = [node] * (end + 1 - start)
        masters: list[Node] = [node for node in dict.fromkeys(slots) if node is not None]
        if not masters:
            raise StoreUnavailable("no slot has a master")
        self.slots[:] = slots  # in place: the list is looked at by every call
        self._masters = masters
        self._learnt = monotonic()
