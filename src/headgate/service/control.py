"""Control: how the master reaches a process that inherits no file and whose signals are taken.

Envoy, with Python inside, is such a process. A named pipe lies in a folder that is this user's
alone; the master writes to it, the process reads. When the master is gone, however it went, the
pipe has ended, and the process ends too.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable

__all__ = ["Line", "listen"]


class Line:
    """The master's end of the pipe."""

    def __init__(self) -> None:
        self._folder = tempfile.mkdtemp(prefix="headgate-")
        self.path = os.path.join(self._folder, "control")
        os.mkfifo(self.path, 0o600)
        # For reading as well, though nobody does: so it can be opened before anybody listens,
        # and stays open while one process goes and the next one comes.
        self._file = os.open(self.path, os.O_RDWR | os.O_NONBLOCK)

    def say(self) -> None:
        """Tell whoever listens, now or soon, to look."""
        with contextlib.suppress(BlockingIOError):  # thousands of words that nobody has read yet
            os.write(self._file, b"\n")

    def close(self) -> None:
        """Let go of it; whoever listens then ends."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
            shutil.rmtree(self._folder, ignore_errors=True)


def listen(path: str, told: Callable[[], object], gone: Callable[[], object]) -> Callable[[], None]:
    """Listen on the loop that runs, until what is returned is called.

    `told` is called when the master has said something, `gone` when there is no master any more.
    """
    loop = asyncio.get_running_loop()
    file = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    open_ = True

    def stop() -> None:
        nonlocal open_
        if open_:
            open_ = False
            loop.remove_reader(file)
            os.close(file)

    def read() -> None:
        try:
            words = os.read(file, 4096)
        except BlockingIOError:
            return
        if words:
            told()
        else:
            stop()
            gone()

    loop.add_reader(file, read)
    return stop
