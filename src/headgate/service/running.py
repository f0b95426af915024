"""Running: the master, which starts workers, keeps them there, and ends them in order.

It opens the sockets, which workers inherit; so a worker that dies takes no listener along, and
the others go on. The admin listener is served by the master itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
import signal
import socket
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import version
from typing import Any

from ..gate import AsyncGate
from ..telemetry import Telemetry
from .admin import Admin
from .children import Child, Program, end, keep
from .grpc import server_of
from .servers import Server, bound, raise_file_limit, serve_with
from .settings import Listen, Settings, SettingsError
from .sources import source_of
from .worker import SETTINGS

__all__ = ["Master", "Where", "run"]

logger = logging.getLogger("headgate.service")

Where = dict[str, str]
"""By listener: where it listens."""


class _Counts(Telemetry):
    """What all workers count, read by somebody who is none of them."""

    gate: Any = None

    def rules(self) -> set[str]:
        rules = getattr(getattr(self.gate, "snapshot", None), "rules", ())
        rules = [getattr(rule, "compiled", rule) for rule in rules]
        return {rule.name for rule in rules if not rule.feeds}

    def totals(self, *, own: bool = False) -> Any:
        totals = super().totals(own=own)
        totals.workers = max(0, totals.workers - 1)
        return totals


class Master:
    """The service as a whole."""

    def __init__(self, settings: Settings, ready: Callable[[Where], object] | None = None) -> None:
        self._folder = tempfile.mkdtemp(prefix="headgate-")
        counts = os.path.join(self._folder, "counts")
        self.settings = replace(settings, counts=counts, store=settings.store_url)
        self._ready = ready
        self._children: list[Child] = []
        self._stopping = asyncio.Event()
        self._tasks: list[asyncio.Task[Any]] = []
        self._where: Where = {}
        self._tell_grpc: Callable[[], object] | None = None
        self._began = time.time()

    async def run(self) -> None:
        """Serve until a signal says otherwise."""
        settings = self.settings
        loop = asyncio.get_running_loop()
        sockets: list[socket.socket] = []
        admin: Server | None = None
        grpc = None
        try:
            listen = Listen.parse(settings.listen, "listen")
            if listen is None:
                raise SettingsError("listen cannot be off")
            listener = bound(listen)
            sockets.append(listener)
            self._where["http"] = _named(listen, listener)
            self._source = source_of(settings.rules)
            self._gate = AsyncGate(self._source, settings.store, name=settings.name)
            counts = _Counts(settings.counts, keys=settings.keys)
            counts.gate = self._gate
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, self._stopping.set)
            loop.add_signal_handler(signal.SIGHUP, self._hang_up)
            program = Program("headgate.service.worker", listener, {SETTINGS: settings.as_json()})
            self._children += [Child(each, program) for each in range(1, settings.workers + 1)]
            await asyncio.gather(*(child.start() for child in self._children))
            for child in self._children:
                self._keep(child.name, child.ended, child.start)
            place = Listen.parse(settings.grpc, "grpc")
            if place is not None:
                grpc = server_of(place, settings)
            if grpc is not None:
                self._where["grpc"] = await grpc.start()
                self._tell_grpc = grpc.reload
                self._keep("the gRPC process", grpc.wait, grpc.start)
            place = Listen.parse(settings.admin, "admin")
            if place is not None:
                sockets.append(bound(place))
                self._where["admin"] = _named(place, sockets[-1])
                admin = await self._administer(sockets[-1], counts)
            if self._ready is not None:
                self._ready(self._where)
            await self._stopping.wait()
        finally:
            await self._end(sockets, admin, grpc)

    async def _administer(self, listener: socket.socket, counts: Telemetry) -> Server:
        settings = self.settings
        app = Admin(self._gate, settings, counts, reload=self.reload, status=self.told)
        app.stream.start()
        server = serve_with(app, settings, drain=1.0)
        self._tasks.append(asyncio.get_running_loop().create_task(server.serve(sockets=[listener])))
        while not server.started:
            await asyncio.sleep(0.005)
        return server

    # -- while it runs

    def _keep(self, name: str, ended: Any, start: Any) -> None:
        """Start a process again whenever it has ended."""
        keeping = keep(name, ended, start, self._stopping, logger)
        self._tasks.append(asyncio.get_running_loop().create_task(keeping))

    def _hang_up(self) -> None:
        self._tasks.append(asyncio.get_running_loop().create_task(self.reload()))

    async def reload(self) -> dict[str, Any]:
        """Look at the rules now, in all processes."""
        for child in self._children:
            child.tell(signal.SIGHUP)
        if self._tell_grpc is not None:
            self._tell_grpc()
        await asyncio.to_thread(self._source.check, again=True)
        found: dict[str, Any] = self._gate.status()
        return found

    def told(self) -> dict[str, Any]:
        """What there is to say of the processes."""
        return {
            "version": version("headgate"),
            "pid": os.getpid(),
            "began": self._began,
            "listeners": self._where,
            "store": _without_password(self.settings.store),
            "workers": [child.told() for child in self._children],
        }

    # -- the end

    async def _end(self, sockets: list[socket.socket], admin: Any, grpc: Any) -> None:
        """Nobody new is let in; whoever is under way may end."""
        self._stopping.set()
        for each in sockets[:1]:
            each.close()
        others = () if grpc is None else (grpc.stop(),)
        await end(self._children, self.settings.drain, *others)
        if admin is not None:
            await admin.config.loaded_app.stream.stop()
            admin.should_exit = True
            await asyncio.wait(self._tasks, timeout=3)
        for task in self._tasks:
            task.cancel()
        if hasattr(self, "_gate"):
            await self._gate.close()
        self._clean(sockets)

    def _clean(self, sockets: list[socket.socket]) -> None:
        for each in sockets:
            each.close()
        for what in ("listen", "admin"):
            place = Listen.parse(getattr(self.settings, what), what)
            if place is not None and place.path and what.replace("listen", "http") in self._where:
                with contextlib.suppress(OSError):
                    os.unlink(place.path)
        shutil.rmtree(self._folder, ignore_errors=True)


def run(settings: Settings, ready: Callable[[Where], object] | None = None) -> None:
    """Serve until a signal says otherwise."""
    raise_file_limit()

    async def main() -> None:
        await Master(settings, ready).run()

    asyncio.run(main())


def _named(listen: Listen, listener: socket.socket) -> str:
    if listen.path:
        return str(listen)
    return str(Listen(listen.host, listener.getsockname()[1]))


def _without_password(url: str) -> str:
    from urllib.parse import urlsplit

    try:
        password = urlsplit(url).password
    except ValueError:
        return url.partition("://")[0]
    return url.replace(f":{password}@", ":***@") if password else url
