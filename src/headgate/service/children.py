"""Children: the processes that a master starts, and what it knows of them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
import time
from typing import TYPE_CHECKING, Any

from .settings import SettingsError
from .worker import BROKEN, READY, SETTINGS

if TYPE_CHECKING:
    from .settings import Settings

__all__ = ["Child"]

START = 30.0
"""Seconds that a worker has to get ready."""


class Child:
    """A worker, as the master sees it."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.process: asyncio.subprocess.Process | None = None
        self.control: socket.socket | None = None
        self.ready = False
        self.starts = 0
        self.started_at = 0.0

    async def start(self, listener: socket.socket, settings: Settings) -> None:
        """Start it and wait until it serves; a SettingsError if it cannot."""
        mine, its = socket.socketpair()
        try:
            mine.settimeout(0)
            self.process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "headgate.service.worker", str(listener.fileno()),
                str(its.fileno()), pass_fds=(listener.fileno(), its.fileno()),
                env={**os.environ, SETTINGS: settings.as_json()},
            )  # fmt: skip
        except BaseException:
            mine.close()
            raise
        finally:
            its.close()
        if self.control is not None:
            self.control.close()
        self.control, self.ready = mine, False
        self.starts += 1
        self.started_at = time.monotonic()
        loop = asyncio.get_running_loop()
        said = b""
        try:
            async with asyncio.timeout(START):
                while not said.endswith(b"\n"):
                    part = await loop.sock_recv(mine, 4096)
                    if not part:
                        break
                    said += part
        except (TimeoutError, OSError):
            said = b""
        if said != READY:
            self.kill()
            problem = said.removeprefix(BROKEN).decode(errors="replace").strip()
            raise SettingsError(problem or f"worker {self.number} did not get ready")
        self.ready = True

    def tell(self, number: signal.Signals) -> None:
        """Send it a signal, if it is there."""
        if self.process is not None and self.process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self.process.send_signal(number)

    def kill(self) -> None:
        """End it at once."""
        self.tell(signal.SIGKILL)

    def told(self) -> dict[str, Any]:
        """What is known of it."""
        running = self.process is not None and self.process.returncode is None
        return {
            "pid": self.process.pid if self.process is not None and running else None,
            "ready": self.ready and running,
            "starts": self.starts,
        }
