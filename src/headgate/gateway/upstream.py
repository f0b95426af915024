"""Upstream: the other end of the gateway, through aiohttp's client."""

from __future__ import annotations

import aiohttp
from aiohttp import ClientHandlerType, ClientRequest, ClientResponse
from multidict import CIMultiDict
from yarl import URL

from .plan import Plan, Target

__all__ = ["Lost", "Upstream"]

BUFFER = 64 << 10


class Lost(aiohttp.ClientError):
    """The connection broke."""


async def once(request: ClientRequest, handler: ClientHandlerType) -> ClientResponse:
    """Send a request once: aiohttp would repeat some whose connection broke."""
    try:
        return await handler(request)
    except aiohttp.ClientConnectorError:  # nothing was sent, and nothing is repeated
        raise
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
        raise Lost(str(error) or "the connection was closed") from error


class Upstream:
    """Opens its connections when the first call comes; belongs to one event loop."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self.target = Target.parse(plan.upstream)
        self._session: aiohttp.ClientSession | None = None

    async def request(
        self, method: str, path: str, query: str, headers: list[tuple[str, str]], body: object
    ) -> ClientResponse:
        """Send a request; the response has begun, and its body is to be read."""
        session = self._session
        if session is None:
            session = self._session = self._opened()
        target = self.target
        url = URL.build(
            scheme=target.scheme, host=target.host, port=target.port,
            path=target.prefix + path, query_string=query, encoded=True,
        )  # fmt: skip
        return await session.request(
            method, url, headers=CIMultiDict(headers), data=body, allow_redirects=False
        )

    def _opened(self) -> aiohttp.ClientSession:
        plan = self._plan
        connector: aiohttp.BaseConnector
        if self.target.socket:
            connector = aiohttp.UnixConnector(
                self.target.socket, limit=plan.connections, keepalive_timeout=plan.keepalive
            )
        else:
            connector = aiohttp.TCPConnector(
                limit=plan.connections, keepalive_timeout=plan.keepalive,
                ssl=True if plan.tls is None else plan.tls,
            )  # fmt: skip
        return aiohttp.ClientSession(
            connector=connector,
            # The rest of the time-outs is kept by Patience.
            timeout=aiohttp.ClientTimeout(total=None, connect=plan.connect or None),
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
            skip_auto_headers=("Accept", "Accept-Encoding", "Content-Type", "User-Agent"),
            max_line_size=plan.max_head,
            max_field_size=plan.max_head,
            read_bufsize=BUFFER,
            middlewares=(once,),
        )

    async def close(self) -> None:
        """Close all connections."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()
