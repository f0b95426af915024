"""aiohttp as a client: a middleware that waits for its turn, or refuses, before a request is sent.

    session = aiohttp.ClientSession(middlewares=(RateLimitMiddleware("10/second"),))

Needs aiohttp 3.12, the first with middlewares for clients; with an older one put
`async with limiter.hold("api.example.com"):` around the call. Every request counts that goes
out, those of redirects too. A request that may not be made raises LimitExceeded. What it holds
comes back when its response was read to its end, released or closed.
"""

from __future__ import annotations

from typing import Any, Unpack

import aiohttp
from aiohttp import ClientHandlerType, ClientRequest, ClientResponse

from ..facts import Facts
from ..limit import Limit
from ..paths import normal_path
from .outgoing import AskedToWait, Options, Outgoing
from .ticket import Ticket, over
from .told import header_map

__all__ = ["AskedToWait", "RateLimitMiddleware"]


class RateLimitMiddleware:
    """A middleware with limits; `Outgoing` says what the options are.

    With `settle=` the body is read before the response is handed on, for aiohttp shows it to one
    reader only: `read`, `text` and `json` work as ever, `content` has nothing left.
    """

    def __init__(self, *limits: str | Limit, **options: Unpack[Options]) -> None:
        self.outgoing = Outgoing(True, limits, **options)  # noqa: FBT003 # tasks

    async def __call__(self, request: ClientRequest, handler: ClientHandlerType) -> ClientResponse:
        """Send a request when its turn has come."""
        ticket = await self.outgoing.enter_async(request, self._facts(request))
        response: ClientResponse | None = None
        try:
            response = await handler(request)
            ticket.answered(response.status, header_map(response.headers.items()), response)
            if ticket.metered:
                ticket.saw(await response.read())
        except BaseException as error:
            if response is not None:
                response.close()
            unsent = isinstance(error, aiohttp.ClientConnectorError)
            await ticket.end_async(**over(error, unsent))
            raise
        connection = response.connection
        if connection is None:  # there is no more to come
            await ticket.end_async()
        else:
            connection.add_callback(_Ended(ticket, response))
        return response

    async def close(self) -> None:
        """Let go of what was opened for the limits; a session does not do so by itself."""
        await self.outgoing.aclose()

    def _facts(self, request: ClientRequest) -> Facts:
        url = request.url
        return self.outgoing.facts(
            request, request.method, url.scheme, url.host or "", url.port,
            normal_path(url.raw_path), header_map(request.headers.items()),
        )  # fmt: skip


class _Ended:
    """Called when a response lets its connection go."""

    def __init__(self, ticket: Ticket, response: ClientResponse) -> None:
        self._ticket = ticket
        self._content: Any = response.content

    def __call__(self) -> None:
        self._ticket.end_soon(ended=self._content.is_eof())
