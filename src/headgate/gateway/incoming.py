"""Incoming: the body of a request, read as fast as the upstream takes it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

from ..integrations.scopes import Receive
from ..service.faults import Fault
from .heads import Pairs
from .pace import Flow
from .patience import Patience
from .plan import Plan

__all__ = ["Incoming", "length_of"]

UNKNOWN = -1


def length_of(pairs: Pairs, most: int = 0) -> int | None:
    """How long a request's body will be: None if it has none, -1 if nobody knows.

    A request that says so in two ways is refused, whatever the server thinks of it.
    """
    lengths = {value for name, value in pairs if name == b"content-length"}
    coded = [value.strip().lower() for name, value in pairs if name == b"transfer-encoding"]
    if (lengths and coded) or len(lengths) > 1 or (coded and coded != [b"chunked"]):
        raise Fault(400, "The length of the request is not clear.", close=True)
    if coded:
        return UNKNOWN
    if not lengths:
        return None
    digits = lengths.pop()
    if not digits.isdigit() or len(digits) > 18:
        raise Fault(400, "The length of the request is not clear.", close=True)
    if most and int(digits) > most:
        raise Fault(413, f"A request has at most {most} bytes.", close=True)
    return int(digits)


class Gone(ConnectionError):
    """The client has gone, or sent what it must not: the request will never be complete."""


class Incoming:
    """An asynchronous iterator over the pieces of a body; then it watches for the client's going.

    Whoever leaves, sends too much, or sends too slowly ends the whole call by `patience`.
    """

    def __init__(
        self, receive: Receive, plan: Plan, patience: Patience, flow: Flow | None,
        length: int | None,
    ) -> None:  # fmt: skip
        self._receive, self._plan, self._patience, self._flow = receive, plan, patience, flow
        self.expected = length is not None and length != 0
        self._size = 0
        self._more = self.expected
        self._pieces: AsyncIterator[bytes] | None = None
        self._watch: asyncio.Task[None] | None = None
        self.over_at = 0.0
        """When all of it had been sent; 0 while it is not."""

    def begin(self) -> None:
        """Called before the request is sent."""
        if self.expected:
            # Connecting has a time-out of its own.
            self._patience.allow(self._plan.connect + self._plan.between, "upstream")
        else:
            self._over()

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        while True:
            if self._pieces is not None:
                self._patience.allow(0, "pace")
                with suppress(StopAsyncIteration):
                    piece = await anext(self._pieces)
                    self._patience.allow(self._plan.between, "upstream")
                    return piece
                self._pieces = None
            if not self._more:
                self._over()
                raise StopAsyncIteration
            chunk = await self._next()
            if chunk and self._flow is not None:
                self._pieces = self._flow.pieces(chunk)
            elif chunk:
                self._patience.allow(self._plan.between, "upstream")
                return chunk

    async def _next(self) -> bytes:
        self._patience.allow(self._plan.between, "client")
        message = await self._receive()
        if message["type"] == "http.disconnect":
            self._patience.stop("gone")
            raise Gone
        chunk: bytes = message.get("body", b"")
        self._more = message.get("more_body", False)
        self._size += len(chunk)
        if self._plan.max_body and self._size > self._plan.max_body:
            self._patience.stop("too large")
            raise Gone
        return chunk

    def _over(self) -> None:
        """All was sent: now it is the upstream's turn."""
        if self._watch is None:
            plan = self._plan
            wait = plan.first_byte + (0 if self.expected else plan.connect)
            self._patience.allow(wait if plan.first_byte else 0, "first byte")
            loop = asyncio.get_running_loop()
            self.over_at = loop.time()
            self._watch = loop.create_task(self._until_gone())

    async def _until_gone(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass  # an empty end of a request without a body
        self._patience.stop("gone")

    def close(self) -> None:
        """The call is over."""
        self._more = False
        if self._watch is not None:
            self._watch.cancel()
