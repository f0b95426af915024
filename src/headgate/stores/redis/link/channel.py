"""Channels: one connection of redis.asyncio's, shared by all tasks of a loop.

Replies arrive in the order of the calls, so each is handed to whoever is next in line. A task
that was cancelled keeps its place: its reply is read and dropped, never given to another.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

from ....errors import StoreUnavailable
from .exchange import Answer
from .replies import PENDING, reader
from .routes import Node
from .wire import broken, late

__all__ = ["Channel"]


class _Due:
    """Replies that are owed, and whom to tell."""

    __slots__ = ("count", "deadline", "done", "replies")

    def __init__(self, count: int, deadline: float, done: Callable[[Answer], None]) -> None:
        self.count = count
        self.deadline = deadline
        self.done = done
        self.replies: list[Any] = []


class Channel(asyncio.Protocol):
    """Takes over a connected connection's transport, and reads its replies itself."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        connection: Any,
        node: Node,
        shown: str,
        lost: Callable[[Channel, StoreUnavailable], None],
    ) -> None:
        self._loop = loop
        self._connection = connection
        self._transport: Any = connection._writer.transport
        self.node = node
        self._shown = shown
        self._lost = lost
        self._feed, self._gets = reader()
        self._due: deque[_Due] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self.closed = False
        self._transport.set_protocol(self)

    def ask(self, data: bytes, count: int, deadline: float, done: Callable[[Answer], None]) -> None:
        """Send calls; `done` is called with their replies, or with the error for all of them."""
        if self.closed:
            done(StoreUnavailable(f"{self._shown} was lost", sent=False))
            return
        self._due.append(_Due(count, deadline, done))
        timer = self._timer
        if timer is None or deadline < timer.when():  # the greeting may take longer than a call
            if timer is not None:
                timer.cancel()
            self._timer = self._loop.call_at(deadline, self._expire)
        self._transport.write(data)

    def data_received(self, data: bytes) -> None:
        """Hand each reply to the one that it is owed to."""
        self._feed(data)
        due = self._due
        try:
            reply = self._gets()
            while reply is not PENDING:
                first = due[0]  # an IndexError is a reply that nobody is owed
                replies = first.replies
                replies.append(reply)
                if len(replies) == first.count:
                    due.popleft()
                    first.done(replies)
                reply = self._gets()
        except Exception as error:
            self._fail(broken(self._shown, error, sent=True))

    def connection_lost(self, exc: Exception | None) -> None:
        """All that are owed a reply learn that none will come."""
        error = exc or ConnectionError("the server closed the connection")
        self._fail(broken(self._shown, error, sent=True))

    def close(self) -> None:
        """Close the connection."""
        self._fail(StoreUnavailable("the store was closed", sent=True), quiet=True)

    def _expire(self) -> None:
        """Look at the oldest call's deadline; one timer serves all."""
        self._timer = None
        if not self._due:
            return
        first = self._due[0].deadline
        if self._loop.time() < first:
            self._timer = self._loop.call_at(first, self._expire)
        else:
            # Its reply would come late, and those behind it later still.
            self._fail(late(self._shown))

    def _fail(self, error: StoreUnavailable, *, quiet: bool = False) -> None:
        if self.closed:
            return
        self.closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._transport.abort()
        # The connection is done with; so its finalizer does not warn of an open one.
        self._connection._reader = self._connection._writer = None
        owed = list(self._due)
        self._due.clear()
        if not quiet:
            self._lost(self, error)
        for due in owed:
            due.done(error)
