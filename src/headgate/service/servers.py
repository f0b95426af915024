"""Servers: how an ASGI application is served over HTTP/1.1, within limits on time and size.

uvicorn does it, with httptools and uvloop where they are installed. What it does not watch is
watched here: a request whose head does not arrive in time or is too large, and a client that
does not read its answer, lose their connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import socket
import stat
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import uvicorn

from .settings import Listen, SettingsError

if TYPE_CHECKING:
    from .settings import Settings

__all__ = [
    "Server", "bound", "loop_factory", "raise_file_limit", "serve_with", "spare_collector",
]  # fmt: skip

HEAD = 64 << 10
"""Bytes of a request's line and headers together, at most."""
KEEP_ALIVE = 60
"""Seconds that a connection may stand idle between two requests."""
LOOK = 5
"""Connections are looked at each so many ticks of a tenth of a second."""


class _Corked:
    """A transport that sends the head of a response together with what follows it.

    uvicorn writes them one after the other, and a write costs more than all else.
    """

    __slots__ = ("_head", "_inner", "_write", "written")

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self._write = inner.write
        self._head = b""
        self.written = 0
        """Bytes that were ever handed on."""

    def write(self, data: bytes) -> None:
        """Send, unless it is a head that has a body behind it."""
        if self._head:
            data = self._head + data
            self._head = b""
        elif data[:9] == b"HTTP/1.1 " and data[9:10] != b"1":
            self._head = data
            return
        self.written += len(data)
        self._write(data)

    def flush(self) -> None:
        """Send what is held back."""
        if self._head:
            head, self._head = self._head, b""
            self.written += len(head)
            self._write(head)

    def close(self) -> None:
        """Send what is held back, and close."""
        self.flush()
        self._inner.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class _Watched:
    """What a protocol of uvicorn's is mixed with."""

    loop: Any
    cycle: Any
    transport: Any
    since = 0.0
    """Since when the head of a request is awaited; 0 if none is."""
    size = 0
    stuck = 0.0
    """Since when the client has read nothing of what was written to it."""
    taken = 0
    """Bytes that had left by then."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(_Corked(transport))  # type: ignore[misc] # that of uvicorn's
        self.since = self.loop.time()

    def on_message_complete(self) -> None:
        """The body has arrived; who begins only now need not ask for it (httptools)."""
        super().on_message_complete()  # type: ignore[misc] # that of uvicorn's
        cycle = self.cycle
        if cycle.body:
            cycle.scope["headgate.body"] = cycle.body

    def on_response_complete(self) -> None:
        self.transport.flush()
        super().on_response_complete()  # type: ignore[misc] # that of uvicorn's

    def data_received(self, data: bytes) -> None:
        before = self.cycle
        super().data_received(data)  # type: ignore[misc] # that of uvicorn's
        cycle = self.cycle
        if cycle is not before:  # the head is there
            self.since = 0.0
            self.size = 0
        elif cycle is None or not cycle.more_body:
            if not self.since:
                self.since = self.loop.time()
            self.size += len(data)
            if self.size > HEAD:
                self.transport.abort()

    def is_slow(self, now: float, seconds: float) -> bool:
        """Whether the client takes longer than it may."""
        if self.since and now - self.since > seconds:
            return True
        transport = self.transport
        left = 0 if transport is None else transport.get_write_buffer_size()
        if not left:
            self.stuck = 0.0
            return False
        # A long answer may keep the buffer full for as long as it lasts: what counts is whether
        # anything leaves it.
        taken = transport.written - left
        if not self.stuck or taken > self.taken:
            self.stuck, self.taken = now, taken
        return now - self.stuck > seconds


def _protocol() -> type[Any]:
    try:
        from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol as Protocol
    except ImportError:
        from uvicorn.protocols.http.h11_impl import (  # type: ignore[assignment] # either of them
            H11Protocol as Protocol,
        )

    return type("Protocol", (_Watched, Protocol), {})


class Server(uvicorn.Server):
    """A server whose signals are somebody else's."""

    def __init__(self, config: uvicorn.Config, seconds: float) -> None:
        super().__init__(config)
        self._seconds = seconds

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals alone."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to listen; a handshake has no more time than a request."""
        await self.lifespan.startup()
        config, state = self.config, self.server_state

        def protocol() -> Any:
            made: Any = config.http_protocol_class
            return made(config=config, server_state=state, app_state=self.lifespan.state)

        loop = asyncio.get_running_loop()
        self.servers = [
            await loop.create_server(
                protocol, sock=each, ssl=config.ssl, backlog=config.backlog,
                ssl_handshake_timeout=self._seconds if config.ssl else None,
            )
            for each in sockets or []
        ]  # fmt: skip
        self.started = True

    async def on_tick(self, counter: int) -> bool:
        """Ten times a second."""
        if counter % LOOK == 0:
            now = asyncio.get_running_loop().time()
            watched: Any = list(self.server_state.connections)
            for each in watched:
                if each.is_slow(now, self._seconds):
                    each.transport.abort()
        return await super().on_tick(counter)


def serve_with(app: Any, settings: Settings, *, tls: bool = True, drain: float = -1.0) -> Server:
    """A server for an application, to be run by `await server.serve(sockets=[...])`."""
    config = uvicorn.Config(
        app, http=_protocol(), loop="none", ws="none", lifespan="off", interface="asgi3",
        log_config=None, access_log=False, server_header=False, proxy_headers=False,
        limit_concurrency=settings.connections, timeout_keep_alive=KEEP_ALIVE, backlog=2048,
        h11_max_incomplete_event_size=HEAD,
        timeout_graceful_shutdown=max(1, round(settings.drain if drain < 0 else drain)),
        ssl_certfile=settings.tls_cert or None if tls else None,
        ssl_keyfile=settings.tls_key or None if tls else None,
    )  # fmt: skip
    try:
        config.load()
    except OSError as error:
        raise SettingsError(f"the certificate or its key cannot be used: {error}") from None
    return Server(config, settings.timeout)


def bound(listen: Listen) -> socket.socket:
    """A socket that listens, and that other processes can inherit."""
    try:
        if listen.path:
            return _unix(listen.path)
        family = socket.AF_INET6 if ":" in listen.host else socket.AF_INET
        made = socket.socket(family, socket.SOCK_STREAM)
        try:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            made.bind((listen.host, listen.port))
            made.listen(2048)
        except BaseException:
            made.close()
            raise
    except OSError as error:
        raise SettingsError(f"nobody can listen at {listen}: {error}") from None
    made.settimeout(0)
    return made


def _unix(path: str) -> socket.socket:
    """A socket of the file system; one that nobody listens on any more is replaced."""
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with contextlib.suppress(FileNotFoundError):
            if stat.S_ISSOCK(os.stat(path).st_mode):
                with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
                    try:
                        probe.connect(path)
                    except ConnectionRefusedError:
                        os.unlink(path)
        made.bind(path)
        made.listen(2048)
    except BaseException:
        made.close()
        raise
    made.settimeout(0)
    return made


def loop_factory() -> Any:
    """What makes an event loop; the fast one where there is one."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


def spare_collector() -> None:
    """Set apart what lives as long as the process, which is all that is there by now.

    To look at it time and again takes tens of milliseconds, in which nobody is answered.
    """
    gc.collect()
    gc.freeze()


def raise_file_limit() -> None:
    """As many connections as the system lets us have."""
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
