"""Waiters: a thread or a task that waits for one answer, and how it is told.

Whoever keeps a line of them tells an answer while holding the line's lock. A waiter that gives
up (its time has passed, it was cancelled or interrupted) has to look under the same lock whether
it was answered in the last moment: what was given to it is then its own to give back.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from ..clock import MICROSECONDS, Clock, ManualClock

if TYPE_CHECKING:
    import asyncio

__all__ = ["TaskWaiter", "ThreadWaiter", "Waiter", "pause", "pause_async"]


class Waiter:
    """Somebody who waits for one answer."""

    __slots__ = ("answer",)

    def __init__(self) -> None:
        self.answer: Any = None

    def tell(self, answer: Any) -> bool:
        """Answer; False if nobody is there any more to hear it."""
        raise NotImplementedError


class ThreadWaiter(Waiter):
    """A thread that waits."""

    __slots__ = ("_event",)

    def __init__(self) -> None:
        super().__init__()
        self._event = threading.Event()

    def tell(self, answer: Any) -> bool:
        self.answer = answer
        self._event.set()
        return True

    def block(self, clock: Clock, until: int | None) -> None:
        """Wait for the answer, or until an instant of the clock."""
        if until is None:
            self._event.wait()
        elif isinstance(clock, ManualClock):
            timer = clock.call_at(until, self._event.set)
            try:
                self._event.wait()
            finally:
                timer.cancel()
        else:
            left = (until - clock.micros()) / MICROSECONDS
            self._event.wait(min(max(left, 0.0), threading.TIMEOUT_MAX))


class TaskWaiter(Waiter):
    """A task that waits on its event loop, and is told from any thread."""

    __slots__ = ("_future", "_loop", "_thread")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._loop = loop
        self._thread = threading.get_ident()
        self._future: asyncio.Future[None] = loop.create_future()

    def tell(self, answer: Any) -> bool:
        self.answer = answer
        if not self._wake():
            self.answer = None
            return False
        return True

    async def block(self, clock: Clock, until: int | None) -> None:
        """Wait for the answer, or until an instant of the clock."""
        if until is None:
            await self._future
            return
        timer: Any
        if isinstance(clock, ManualClock):
            timer = clock.call_at(until, self._wake)
        else:
            left = (until - clock.micros()) / MICROSECONDS
            timer = self._loop.call_later(max(left, 0.0), self._ring)
        try:
            await self._future
        finally:
            timer.cancel()

    def _wake(self) -> bool:
        try:
            if threading.get_ident() == self._thread:
                self._ring()
            else:
                self._loop.call_soon_threadsafe(self._ring)
        except RuntimeError:  # a closed loop wakes nobody
            return False
        return not self._loop.is_closed()

    def _ring(self) -> None:
        if not self._future.done():
            self._future.set_result(None)


def pause(clock: Clock, seconds: float) -> None:
    """Let so much time of a clock pass, in this thread."""
    if seconds > 0:
        ThreadWaiter().block(clock, clock.micros() + round(seconds * MICROSECONDS))


async def pause_async(clock: Clock, seconds: float) -> None:
    """Let so much time of a clock pass, in this task."""
    import asyncio

    if seconds > 0:
        waiter = TaskWaiter(asyncio.get_running_loop())
        await waiter.block(clock, clock.micros() + round(seconds * MICROSECONDS))
