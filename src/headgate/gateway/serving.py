"""Serving: the gateway as a process of its own, by uvicorn."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
from collections.abc import Callable
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from ..service.servers import Server, loop_factory, raise_file_limit
from ..service.settings import SettingsError
from .app import Gateway
from .settings import GatewaySettings, seconds_of

__all__ = ["run", "server_of"]

HEAD = 64 << 10
"""Bytes of a request's line and headers together, at most."""
KEEP_ALIVE = 60


class Watched(H11Protocol):
    """A connection whose requests must begin in time; how they go on is the gateway's to watch.

    h11 bounds the size of a request's head, and refuses whatever could be read in two ways.
    """

    since = 0.0
    """Since when the head of a request is awaited; 0 if none is."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.since = self.loop.time()

    def data_received(self, data: bytes) -> None:
        before = self.cycle
        super().data_received(data)
        if self.cycle is not before:
            self.since = 0.0
        elif not self.since and (self.cycle is None or self.cycle.response_complete):
            self.since = self.loop.time()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.cycle.response_complete and self.conn.trailing_data[0]:
            self.since = self.loop.time()  # the next request has begun already

    def is_slow(self, now: float, seconds: float) -> bool:
        """Whether the client takes longer than it may."""
        return self.since > 0 and now - self.since > seconds


def server_of(
    gateway: Gateway, *, head: float = 10.0, drain: float = 10.0, connections: int = 4096,
    tls_cert: str = "", tls_key: str = "",
) -> Server:  # fmt: skip
    """A server for a gateway: nobody but the gateway judges or writes headers."""
    config = uvicorn.Config(
        gateway, http=Watched, loop="none", ws="none", lifespan="on", interface="asgi3",
        log_config=None, access_log=False, server_header=False, date_header=False,
        proxy_headers=False, limit_concurrency=connections or None,
        timeout_keep_alive=KEEP_ALIVE, h11_max_incomplete_event_size=HEAD, backlog=2048,
        timeout_graceful_shutdown=max(1, round(drain)),
        ssl_certfile=tls_cert or None, ssl_keyfile=tls_key or None,
    )  # fmt: skip
    try:
        config.load()
    except OSError as error:
        raise SettingsError(f"the certificate or its key cannot be used: {error}") from None
    return Server(config, head or 86_400.0)


def run(
    settings: GatewaySettings,
    listener: socket.socket,
    ready: Callable[[], object],
    control: socket.socket | None = None,
) -> None:
    """Serve until a signal says otherwise; calls under way may end. SIGHUP reloads the rules.

    control   a connection to whoever started this process; if that ends, so does this
    """
    raise_file_limit()
    source = settings.source()
    gateway = settings.gateway(source)
    server = server_of(
        gateway, head=seconds_of(settings.head_timeout), drain=seconds_of(settings.drain),
        connections=settings.max_connections, tls_cert=settings.tls_cert,
        tls_key=settings.tls_key,
    )  # fmt: skip

    def stop() -> None:
        server.should_exit = True

    def reload() -> None:
        if source is not None:
            asyncio.get_running_loop().run_in_executor(None, lambda: source.check(again=True))

    async def main() -> None:
        loop = asyncio.get_running_loop()
        with contextlib.suppress(NotImplementedError):  # where there are no such signals
            loop.add_signal_handler(signal.SIGTERM, stop)
            if control is None:  # else it is told when to stop
                loop.add_signal_handler(signal.SIGINT, stop)
            loop.add_signal_handler(signal.SIGHUP, reload)
        if control is not None:
            loop.add_reader(control, stop)  # nothing is ever said on it
        serving = loop.create_task(server.serve(sockets=[listener]))
        while not server.started and not serving.done():
            await asyncio.sleep(0.005)
        if server.started:
            ready()
        await serving

    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(main())
