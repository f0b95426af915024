"""Meter: what a call to a metered API costs, estimated before it and read from the reply after it.

The reply's body is copied as it passes, up to a bound, and nobody waits for that.
"""

from __future__ import annotations

import json
import zlib
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

__all__ = ["Copy", "Cost", "Reply", "Settle", "estimate"]

MOST = 1 << 20
"""So many bytes of a body are kept at most: the last ones, where a stream tells what it used."""

Cost = int | Callable[[Any], int]
"""A cost, or a function of the request that estimates it."""


class Reply(NamedTuple):
    """A response that has ended, as a function that settles its cost sees it."""

    status: int
    headers: Mapping[str, str]
    """By lower-case name."""
    body: bytes
    """What was read of it, at most its last MiB."""
    whole: bool
    """Whether that is all of it."""

    def json(self) -> Any:
        """The body, read as JSON."""
        return json.loads(self.body)


Settle = Callable[[Any], int | None]
"""Finds the real cost in a Reply; None if it is not there, and then the estimate stays."""


def estimate(cost: Cost, request: Any) -> int:
    """What a call may cost."""
    return cost(request) if callable(cost) else cost


class Copy:
    """What has passed of a body."""

    def __init__(self, most: int = MOST) -> None:
        self._pieces: deque[bytes] = deque()
        self._size = 0
        self._most = most
        self._lost = False

    def saw(self, piece: bytes) -> None:
        """Keep a piece, and drop old ones for it if there are too many."""
        self._pieces.append(bytes(piece[-self._most :]))
        self._lost = self._lost or len(piece) > self._most
        self._size += len(self._pieces[-1])
        while self._size > self._most:
            self._size -= len(self._pieces.popleft())
            self._lost = True

    def reply(self, status: int, headers: Mapping[str, str], ended: bool) -> Reply:
        """The response, with what was kept of its body."""
        body, whole = b"".join(self._pieces), ended and not self._lost
        if body[:2] == b"\x1f\x8b":  # as it travelled; a transport may see it before it is undone
            unpack = zlib.decompressobj(wbits=31)
            try:
                body = unpack.decompress(body, self._most)
            except zlib.error:
                body, whole = b"", False
            whole = whole and not unpack.unconsumed_tail
        return Reply(status, headers, body, whole)
