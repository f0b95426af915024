"""Upstream: the other end of the gateway, through aiohttp's client."""

from __future__ import annotations

from types import SimpleNamespace

import aiohttp
from aiohttp import ClientHandlerType, ClientRequest, ClientResponse
from multidict import CIMultiDict
from yarl import URL

from .plan import Plan, Target

__all__ = ["Lost", "Upstream"]

BUFFER = 64 << 10
BROKEN = (
    aiohttp.ClientOSError, aiohttp.ServerDisconnectedError, aiohttp.ClientConnectionResetError,
)  # fmt: skip
SAFE_TWICE = frozenset({"GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"})
"""Methods whose effect is the same when a request arrives twice (RFC 9110, 9.2.2)."""


class Lost(aiohttp.ClientError):
    """The connection broke."""


class Response(ClientResponse):
    """A response that leaves nothing behind when it is given up."""

    def close(self) -> None:
        """Close it; what an upstream that does not read has not taken is thrown away."""
        transport = None if self.connection is None else self.connection.transport
        super().close()
        if transport is not None:
            transport.abort()  # else it would stay until all of it was taken


async def once(request: ClientRequest, handler: ClientHandlerType) -> ClientResponse:
    """Send a request once: aiohttp would repeat some whose connection broke."""
    try:
        return await handler(request)
    except aiohttp.ClientConnectorError:  # nothing was sent, and nothing is repeated
        raise
    except BROKEN as error:
        raise Lost(str(error) or "the connection was closed") from error


async def used_before(session: object, trace: SimpleNamespace, params: object) -> None:
    """Note that a request goes out on a connection that others used before it."""
    trace.trace_request_ctx.used_before = True


class Upstream:
    """Opens its connections when the first call comes; belongs to one event loop."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self.target = Target.parse(plan.upstream)
        self._session: aiohttp.ClientSession | None = None

    async def request(
        self, method: str, path: str, query: str, headers: list[tuple[str, str]], body: object
    ) -> ClientResponse:
        """Send a request; the response has begun, and its body is to be read.

        An upstream may close a connection at the very moment when its next request is sent. So
        what may arrive twice, and has no body, is sent once more if a used connection broke.
        """
        session = self._session
        if session is None:
            session = self._session = self._opened()
        target = self.target
        url = URL.build(
            scheme=target.scheme, host=target.host, port=target.port,
            path=target.prefix + path, query_string=query, encoded=True,
        )  # fmt: skip
        again = body is None and method in SAFE_TWICE
        while True:
            way = SimpleNamespace(used_before=False)
            try:
                return await session.request(
                    method, url, headers=CIMultiDict(headers), data=body,
                    allow_redirects=False, trace_request_ctx=way,
                )  # fmt: skip
            except Lost:
                if not (again and way.used_before):
                    raise
                again = False

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
        watch = aiohttp.TraceConfig()
        watch.on_connection_reuseconn.append(used_before)
        return aiohttp.ClientSession(
            connector=connector,
            trace_configs=[watch],
            # The rest of the time-outs is kept by Patience.
            timeout=aiohttp.ClientTimeout(total=None, connect=plan.connect or None),
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
            skip_auto_headers=("Accept", "Accept-Encoding", "Content-Type", "User-Agent"),
            max_line_size=plan.max_head,
            max_field_size=plan.max_head,
            read_bufsize=BUFFER,
            response_class=Response,
            middlewares=(once,),
        )

    async def close(self) -> None:
        """Close all connections."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()
