"""httpx: transports that wait for their turn, or refuse, before a request is sent.

    client = httpx.Client(transport=RateLimitTransport(httpx.HTTPTransport(), "10/second"))

Every request counts that goes out, those of redirects too. A request that may not be made raises
LimitExceeded. What it holds comes back when its response is closed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Unpack

import httpx

from ..facts import Facts
from ..limit import Limit
from ..paths import normal_path
from .outgoing import AskedToWait, Options, Outgoing
from .ticket import Ticket, over
from .told import header_map

__all__ = ["AskedToWait", "AsyncRateLimitTransport", "RateLimitTransport"]

UNSENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.UnsupportedProtocol)
"""Errors after which the server has surely seen nothing of the request."""


class RateLimitTransport(httpx.BaseTransport):
    """A transport with limits in front of it; `Outgoing` says what the options are."""

    def __init__(
        self, transport: httpx.BaseTransport, *limits: str | Limit, **options: Unpack[Options]
    ) -> None:
        self.transport = transport
        self.outgoing = Outgoing(False, limits, **options)  # noqa: FBT003 # plain functions

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request when its turn has come."""
        ticket = self.outgoing.enter(request, _facts(self.outgoing, request))
        try:
            response = self.transport.handle_request(request)
            _answered(ticket, response)
        except BaseException as error:
            ticket.end(**over(error, isinstance(error, UNSENT)))
            raise
        if response.is_closed:  # it came whole, from a cache or a test
            ticket.saw(response.content)
            ticket.end()
            return response
        assert isinstance(response.stream, httpx.SyncByteStream)
        response.stream = _Body(response.stream, ticket)
        return response

    def close(self) -> None:
        """Close the transport inside, and what was opened for the limits."""
        try:
            self.transport.close()
        finally:
            self.outgoing.close()


class AsyncRateLimitTransport(httpx.AsyncBaseTransport):
    """The same for tasks."""

    def __init__(
        self, transport: httpx.AsyncBaseTransport, *limits: str | Limit, **options: Unpack[Options]
    ) -> None:
        self.transport = transport
        self.outgoing = Outgoing(True, limits, **options)  # noqa: FBT003 # tasks

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request when its turn has come."""
        ticket = await self.outgoing.enter_async(request, _facts(self.outgoing, request))
        try:
            response = await self.transport.handle_async_request(request)
            _answered(ticket, response)
        except BaseException as error:
            await ticket.end_async(**over(error, isinstance(error, UNSENT)))
            raise
        if response.is_closed:  # it came whole, from a cache or a test
            ticket.saw(response.content)
            await ticket.end_async()
            return response
        assert isinstance(response.stream, httpx.AsyncByteStream)
        response.stream = _AsyncBody(response.stream, ticket)
        return response

    async def aclose(self) -> None:
        """Close the transport inside, and what was opened for the limits."""
        try:
            await self.transport.aclose()
        finally:
            await self.outgoing.aclose()


class _Body(httpx.SyncByteStream):
    """A body as it passes; when it is closed the call is over."""

    def __init__(self, stream: httpx.SyncByteStream, ticket: Ticket) -> None:
        self._stream = stream
        self._ticket = ticket
        self._ended = False

    def __iter__(self) -> Iterator[bytes]:
        try:
            for piece in self._stream:
                self._ticket.saw(piece)
                yield piece
        except Exception:
            self._ticket.end("failure", ended=False)
            raise
        self._ended = True

    def close(self) -> None:
        try:
            self._stream.close()
        finally:
            self._ticket.end(ended=self._ended)


class _AsyncBody(httpx.AsyncByteStream):
    """The same for tasks."""

    def __init__(self, stream: httpx.AsyncByteStream, ticket: Ticket) -> None:
        self._stream = stream
        self._ticket = ticket
        self._ended = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for piece in self._stream:
                self._ticket.saw(piece)
                yield piece
        except Exception:
            await self._ticket.end_async("failure", ended=False)
            raise
        self._ended = True

    async def aclose(self) -> None:
        try:
            await self._stream.aclose()
        finally:
            await self._ticket.end_async(ended=self._ended)


def _facts(outgoing: Outgoing, request: httpx.Request) -> Facts:
    url = request.url
    path = normal_path(url.raw_path.partition(b"?")[0])
    headers = header_map(request.headers.multi_items())
    return outgoing.facts(request, request.method, url.scheme, url.host, url.port, path, headers)


def _answered(ticket: Ticket, response: httpx.Response) -> None:
    headers = header_map(response.headers.multi_items())
    ticket.answered(response.status_code, headers, response)
