"""Deadlines: requests that take too long are ended, without a timer for each of them."""

from __future__ import annotations

import asyncio
from typing import Any

__all__ = ["Deadlines"]

LOOK = 0.1
"""Seconds between two looks; a request may take so much longer than it should."""


class Deadlines:
    """The requests under way, and when each is to have ended."""

    __slots__ = ("_ended", "_timer", "under_way")

    def __init__(self) -> None:
        self.under_way: dict[asyncio.Task[Any], float] = {}
        self._ended: set[asyncio.Task[Any]] = set()
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, seconds: float) -> asyncio.Task[Any]:
        """The task that is running now is to end within so many seconds."""
        task = asyncio.current_task()
        assert task is not None
        loop = task.get_loop()
        self.under_way[task] = loop.time() + seconds
        if self._timer is None:
            self._timer = loop.call_later(LOOK, self._look, loop)
        return task

    def late(self, task: asyncio.Task[Any]) -> bool:
        """Whether a task was cancelled because of its deadline, and by nobody else."""
        if task not in self._ended:
            return False
        self._ended.discard(task)
        return task.uncancel() == 0

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        now = loop.time()
        for task, deadline in list(self.under_way.items()):
            if deadline <= now:
                del self.under_way[task]
                self._ended.add(task)
                task.cancel()
        again = bool(self.under_way)
        self._timer = loop.call_later(LOOK, self._look, loop) if again else None
