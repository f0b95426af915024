"""Worker: one process that serves HTTP on a socket it was given.

    python -m headgate.service.worker LISTENER CONTROL

Both are numbers of open files; `children.py` says what is said on the control connection.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from typing import Any

from ..addresses import Trusted
from ..errors import HeadgateError
from ..gate import AsyncGate
from ..telemetry import Telemetry
from ..telemetry.logs import RefusalLog
from ..telemetry.stream import Stream
from .app import Service
from .children import READY, inherited, say_broken
from .forward import Forward
from .logs import set_up
from .servers import Server, loop_factory, raise_file_limit, serve_with, spare_collector
from .settings import Settings
from .sources import source_of

__all__ = ["SETTINGS", "Parts", "main"]

SETTINGS = "HEADGATE_SERVICE"
"""The variable of the environment that has the settings, as JSON."""


class Parts:
    """What a worker is made of: rules, store, gate, and what counts."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.source = source_of(settings.rules)
        self.gate = AsyncGate(self.source, settings.store_url, name=settings.name)
        self.telemetry = Telemetry(settings.counts or None, keys=settings.keys).watch(self.gate)
        self.refusals = RefusalLog(keys=settings.keys).watch(self.gate)
        self.stream = Stream(self.telemetry)

    def service(self) -> Service:
        """The HTTP of the data side."""
        settings = self.settings
        service = Service(self.gate, settings, self.telemetry)
        trusted = Trusted(*settings.trusted) if settings.trusted else None
        forward = Forward(self.gate, trusted=trusted, token=settings.api_token())
        service.routes.update(forward.routes)
        return service

    async def begin(self) -> None:
        """Tick, on the loop that runs."""
        self.stream.start()
        self._flushing = asyncio.get_running_loop().create_task(self._flush())

    async def _flush(self) -> None:
        while True:
            await asyncio.sleep(1)
            self.refusals.flush()

    def reload(self) -> None:
        """Look at the rules now."""
        asyncio.get_running_loop().run_in_executor(None, _check, self.source)

    async def end(self) -> None:
        """Let go of everything."""
        self._flushing.cancel()
        await self.stream.stop()
        self.telemetry.tick()
        self.refusals.close()
        await self.gate.close()
        self.telemetry.close()


def _check(source: Any) -> None:
    source.check(again=True)


async def _serve(parts: Parts, listener: socket.socket, control: socket.socket) -> None:
    service = parts.service()
    server = serve_with(service.answer, parts.settings)
    loop = asyncio.get_running_loop()

    def stop() -> None:
        service.draining = True
        server.should_exit = True

    loop.add_signal_handler(signal.SIGTERM, stop)
    loop.add_signal_handler(signal.SIGHUP, parts.reload)
    await parts.begin()
    watching = loop.create_task(_watch(control, stop))
    telling = loop.create_task(_tell(server, control))
    try:
        await server.serve(sockets=[listener])
    finally:
        watching.cancel()
        telling.cancel()
        await parts.end()


async def _tell(server: Server, control: socket.socket) -> None:
    """Say that it is ready, once it is."""
    while not server.started:
        await asyncio.sleep(0.01)
    spare_collector()
    await asyncio.get_running_loop().sock_sendall(control, READY)


async def _watch(control: socket.socket, stop: Any) -> None:
    """End when the master has gone."""
    loop = asyncio.get_running_loop()
    try:
        while await loop.sock_recv(control, 64):
            pass
    except OSError:
        pass
    stop()


def main(arguments: list[str]) -> int:
    """Run until told otherwise."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the master tells when to stop
    settings = Settings.from_json(os.environ[SETTINGS])
    set_up(settings.log, settings.log_level)
    raise_file_limit()
    listener, control = inherited(arguments)
    try:
        parts = Parts(settings)
    except HeadgateError as error:
        say_broken(control, error)
        return 2
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(_serve(parts, listener, control))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
