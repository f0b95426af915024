"""Wires: one connection of redis-py's, spoken to directly."""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
from time import monotonic
from typing import Any

from ....errors import StoreError, StoreUnavailable
from .greeting import HELLO, REPLIES, greeted
from .replies import PENDING, reader
from .routes import Node

__all__ = ["IDLE", "READ", "Wire", "broken", "late"]

READ = 65536
IDLE = 0.25
"""Seconds after which a connection is looked at before use: the server may have closed it."""
SLACK = 0.0005
"""Seconds by which a socket's own limit may be off before it is worth setting again."""


class Wire:
    """A connected socket and the reader of its replies."""

    __slots__ = (
        "__weakref__", "connection", "feed", "gets", "limit", "node", "recv", "send", "shown",
        "sock", "used",
    )  # fmt: skip

    def __init__(self, connection: Any, node: Node, shown: str) -> None:
        self.connection = connection
        self.node = node
        self.shown = shown
        self.sock: Any = connection._sock
        if not isinstance(self.sock, socket.socket):
            raise StoreError(f"{type(connection).__name__} has no socket to speak through")
        # Bound once: they are called for every decision.
        self.send = self.sock.sendall
        self.recv = self.sock.recv
        self.feed, self.gets = reader()
        self.limit: float | None = None
        self.used = monotonic()

    def greet(self, timeout: float) -> None:
        """Make sure that a server answers, and is ready."""
        self.send(HELLO)
        greeted(self.read(REPLIES, monotonic() + timeout), self.shown)

    def write(self, data: bytes, deadline: float) -> None:
        """Send bytes, or raise by the deadline."""
        self.until(deadline)
        self.send(data)

    def read(self, count: int, deadline: float) -> list[Any]:
        """So many replies, or TimeoutError at the deadline however slowly bytes arrive."""
        replies: list[Any] = []
        gets = self.gets
        while True:
            reply = gets()
            if reply is not PENDING:
                replies.append(reply)
                if len(replies) == count:
                    return replies
                continue
            data = self._more(deadline)
            if not data:
                raise ConnectionError("the server closed the connection")
            self.feed(data)

    def _more(self, deadline: float) -> bytes:
        """What has arrived; a thread that was kept from running takes what came meanwhile."""
        if deadline > monotonic():
            self.until(deadline)
            return self.recv(READ)
        self.sock.settimeout(0)
        self.limit = 0.0
        try:
            return self.recv(READ)
        except (BlockingIOError, ssl.SSLWantReadError):
            raise TimeoutError from None

    def until(self, deadline: float) -> None:
        """Limit the socket's next operation."""
        left = deadline - monotonic()
        if left <= 0:
            raise TimeoutError
        if self.limit is None or not -SLACK < self.limit - left < SLACK:
            self.sock.settimeout(left)
            self.limit = left

    def within(self, seconds: float) -> bool:
        """Limit the socket's operations from now on; false if it was closed meanwhile."""
        try:
            self.sock.settimeout(seconds)
        except OSError:
            return False
        self.limit = seconds
        return True

    def fresh(self) -> bool:
        """Whether the connection can be used: nothing to read means that it is still open."""
        if monotonic() - self.used < IDLE:
            return True
        try:
            if hasattr(select, "poll"):  # no select: it fails for descriptors above 1023
                poll = select.poll()
                poll.register(self.sock, select.POLLIN)
                return not poll.poll(0)
            return not select.select([self.sock], [], [], 0)[0]
        except (OSError, ValueError):
            return False

    def close(self) -> None:
        """Close it; a reader in another thread is woken. A forked child wakes nobody."""
        with contextlib.suppress(Exception):
            self.connection.disconnect()


def late(where: str, *, sent: bool = True) -> StoreUnavailable:
    """The error of a server that did not answer in time."""
    return StoreUnavailable(f"{where} did not answer in time", sent=sent)


def broken(where: str, error: BaseException, *, sent: bool) -> StoreUnavailable:
    """The error of a connection that failed."""
    if isinstance(error, TimeoutError):
        return late(where, sent=sent)
    return StoreUnavailable(f"{where} was lost: {error}", sent=sent)
