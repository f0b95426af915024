"""Children: the processes that a master starts, keeps there and ends.

A child inherits the listener and one end of a control connection, as numbers of open files on its
command line; its settings are in the environment. On the control connection it says that it is
ready, or what is wrong. When the master's end closes, the master is gone and the child ends too.
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
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple

from .settings import SettingsError

__all__ = ["READY", "Child", "Program", "end", "inherited", "keep", "say_broken"]

READY, BROKEN = b"ready\n", b"broken "
START = 30.0
"""Seconds that a child has to get ready."""
PAUSE, LONGEST, CALM = 0.1, 10.0, 30.0
"""The first pause before a process is started again, the longest, and after how long it is calm."""
LEAVE = 3.0
"""Seconds for the way out, beside those for requests under way."""


class Program(NamedTuple):
    """What children run, and what they are given."""

    module: str
    listener: socket.socket
    environment: Mapping[str, str]

    async def start(self, control: socket.socket) -> asyncio.subprocess.Process:
        """A process of it, with its end of the control connection."""
        files = self.listener.fileno(), control.fileno()
        return await asyncio.create_subprocess_exec(
            sys.executable, "-m", self.module, *map(str, files),
            pass_fds=files, env={**os.environ, **self.environment},
        )  # fmt: skip


class Child:
    """A worker, as the master sees it."""

    def __init__(self, number: int, program: Program) -> None:
        self.name = f"worker {number}"
        self._program = program
        self._process: asyncio.subprocess.Process | None = None
        self._control: socket.socket | None = None
        self._ready = False
        self._starts = 0

    async def start(self) -> None:
        """Start it and wait until it serves; a SettingsError if it cannot."""
        mine, its = socket.socketpair()
        try:
            mine.settimeout(0)
            self._process = await self._program.start(its)
        except BaseException:
            mine.close()
            raise
        finally:
            its.close()
        self.close()
        self._control, self._ready = mine, False
        self._starts += 1
        said = await _first_words(mine)
        if said != READY:
            self.tell(signal.SIGKILL)
            problem = said.removeprefix(BROKEN).decode(errors="replace").strip()
            raise SettingsError(problem or f"{self.name} did not get ready")
        self._ready = True

    async def ended(self) -> str:
        """Wait for its end, and say what ended it."""
        if self._process is None:
            return ""
        status = await self._process.wait()
        self._ready = False
        if status >= 0:
            return f"status {status}"
        with contextlib.suppress(ValueError):
            return signal.Signals(-status).name
        return f"signal {-status}"

    def tell(self, number: signal.Signals) -> None:
        """Send it a signal, if it is there."""
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)

    def close(self) -> None:
        """Let go of it; it then ends by itself."""
        if self._control is not None:
            self._control.close()

    def told(self) -> dict[str, Any]:
        """What is known of it."""
        running = self._process is not None and self._process.returncode is None
        return {
            "pid": self._process.pid if self._process is not None and running else None,
            "ready": self._ready and running,
            "starts": self._starts,
        }


async def _first_words(control: socket.socket) -> bytes:
    """What a child says at first; nothing if it ends, or takes too long."""
    loop, said = asyncio.get_running_loop(), b""
    try:
        async with asyncio.timeout(START):
            while not said.endswith(b"\n"):
                part = await loop.sock_recv(control, 4096)
                if not part:
                    break
                said += part
    except (TimeoutError, OSError):
        return b""
    return said


async def keep(
    name: str,
    ended: Callable[[], Awaitable[str | None]],
    start: Callable[[], Awaitable[object]],
    stopping: asyncio.Event,
    logger: logging.Logger,
) -> None:
    """Start a process again whenever it has ended, after a pause that grows."""
    pause = PAUSE
    while True:
        began = time.monotonic()
        how = await ended()
        if stopping.is_set():
            return
        if time.monotonic() - began > CALM:
            pause = PAUSE
        logger.error("%s ended%s; it is started again", name, f" by {how}" if how else "")
        await asyncio.sleep(pause)
        pause = min(pause * 2, LONGEST)
        if stopping.is_set():
            return
        try:
            await start()
        except Exception as error:  # whatever it is, the others serve on
            logger.error("%s cannot be started: %s", name, error)


async def end(children: Sequence[Child], drain: float, *others: Awaitable[object]) -> None:
    """Let children end, and other things with them; whoever takes too long is ended at once."""
    for child in children:
        child.tell(signal.SIGTERM)
    ends = [asyncio.ensure_future(each) for each in (*(c.ended() for c in children), *others)]
    if ends:
        await asyncio.wait(ends, timeout=drain + LEAVE)
    for child in children:
        child.tell(signal.SIGKILL)
        child.close()
    if ends:
        await asyncio.wait(ends, timeout=5)


# -- in a child


def inherited(arguments: Sequence[str]) -> tuple[socket.socket, socket.socket]:
    """The listener and the control connection; what this child starts does not get them."""
    listener, control = (socket.socket(fileno=int(each)) for each in arguments)
    for each in (listener, control):
        each.settimeout(0)
        each.set_inheritable(False)
    return listener, control


def say_broken(control: socket.socket, error: Exception) -> None:
    """Tell the master why there is nothing to serve."""
    control.settimeout(None)
    control.sendall(BROKEN + str(error).encode() + b"\n")
