"""Workers: a gateway in several processes that share one socket and one store.

    python -m headgate.gateway.workers LISTENER CONTROL

is one of them: both are numbers of open files, and the settings are in the environment.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import replace

from ..errors import HeadgateError
from ..service.logs import set_up
from ..service.settings import SettingsError
from .serving import run
from .settings import GatewaySettings, seconds_of

__all__ = ["SETTINGS", "run_workers"]

SETTINGS = "HEADGATE_GATEWAY"
READY, BROKEN = b"ready\n", b"broken "
START = 30.0
"""Seconds that a worker has to get ready."""
PAUSE, LONGEST, CALM = 0.1, 10.0, 30.0
"""The first pause before a worker is started again, the longest, and after how long it is calm."""
logger = logging.getLogger("headgate")


class Worker:
    """One of them, as the first process sees it."""

    def __init__(self, number: int, listener: socket.socket, settings: GatewaySettings) -> None:
        self._number, self._listener, self._settings = number, listener, settings
        self._process: asyncio.subprocess.Process | None = None
        self._control: socket.socket | None = None

    async def start(self) -> None:
        """Start it and wait until it serves; a SettingsError if it cannot."""
        mine, its = socket.socketpair()
        mine.settimeout(0)
        files = self._listener.fileno(), its.fileno()
        try:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "headgate.gateway.workers", *map(str, files),
                pass_fds=files, env={**os.environ, SETTINGS: self._settings.as_json()},
            )  # fmt: skip
        finally:
            its.close()
            self.close()
            self._control = mine
        said = b""
        with contextlib.suppress(TimeoutError, OSError):
            async with asyncio.timeout(START):
                while not said.endswith(b"\n"):
                    more = await asyncio.get_running_loop().sock_recv(mine, 4096)
                    if not more:
                        break
                    said += more
        if said != READY:
            self.tell(signal.SIGKILL)
            problem = said.removeprefix(BROKEN).decode(errors="replace").strip()
            raise SettingsError(problem or f"worker {self._number} did not get ready")

    async def keep(self, stopping: asyncio.Event) -> None:
        """Start it again whenever it has ended."""
        pause = PAUSE
        while self._process is not None:
            began = time.monotonic()
            status = await self._process.wait()
            if stopping.is_set():
                return
            pause = PAUSE if time.monotonic() - began > CALM else pause
            logger.error("worker %d ended (%d); it is started again", self._number, status)
            await asyncio.sleep(pause)
            pause = min(pause * 2, LONGEST)
            try:
                await self.start()
            except (HeadgateError, OSError) as error:
                logger.error("worker %d cannot be started: %s", self._number, error)

    async def ended(self) -> None:
        """Wait for its end."""
        if self._process is not None:
            await self._process.wait()

    def tell(self, number: signal.Signals) -> None:
        """Send it a signal, if it is there."""
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)

    def close(self) -> None:
        """Let go of it; it then ends by itself."""
        if self._control is not None:
            self._control.close()


async def _run(
    settings: GatewaySettings, listener: socket.socket, ready: Callable[[], object]
) -> None:
    loop, stopping = asyncio.get_running_loop(), asyncio.Event()
    workers = [Worker(each, listener, settings) for each in range(1, settings.workers + 1)]

    def reload() -> None:
        for worker in workers:
            worker.tell(signal.SIGHUP)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    loop.add_signal_handler(signal.SIGHUP, reload)
    keeping: list[asyncio.Task[None]] = []
    try:
        await asyncio.gather(*(worker.start() for worker in workers))
        keeping += [loop.create_task(worker.keep(stopping)) for worker in workers]
        ready()
        await stopping.wait()
    finally:
        stopping.set()
        for task in keeping:
            task.cancel()
        for worker in workers:
            worker.tell(signal.SIGTERM)
        ends = [loop.create_task(worker.ended()) for worker in workers]
        await asyncio.wait(ends, timeout=seconds_of(settings.drain) + 3)
        for worker in workers:
            worker.tell(signal.SIGKILL)
            worker.close()
        await asyncio.wait(ends, timeout=5)


def run_workers(
    settings: GatewaySettings, listener: socket.socket, ready: Callable[[], object]
) -> None:
    """Serve by several processes until a signal says otherwise."""
    settings = replace(settings, store=settings.store_url or "")
    asyncio.run(_run(settings, listener, ready))


def main(arguments: list[str]) -> int:
    """Be one of the workers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the first process tells when to stop
    settings = GatewaySettings.from_json(os.environ[SETTINGS])
    set_up(settings.log, settings.log_level)
    listener, control = (socket.socket(fileno=int(each)) for each in arguments)
    for each in (listener, control):
        each.set_inheritable(False)
    try:
        run(settings, listener, lambda: control.sendall(READY), control)
    except HeadgateError as error:
        control.sendall(BROKEN + str(error).encode() + b"\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
