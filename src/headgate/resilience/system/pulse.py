"""Pulse: how late an event loop is, and a thread that looks at the machine now and then.

Both hold their owner weakly: they end when it is closed, or when nobody has it any more.
"""

from __future__ import annotations

import asyncio
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

__all__ = ["LoopPulse", "start_thread"]


class LoopPulse:
    """A task that sleeps, and notes how much later than planned it was woken."""

    def __init__(self, every: float) -> None:
        if not every > 0:
            raise ValueError(f"every is a number of seconds above 0, not {every!r}")
        self.every = every
        self._late = 0.0
        self._due: float | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin, on the loop that runs now."""
        if self._task is None or self._task.done():
            self._due = time.monotonic() + self.every
            loop = asyncio.get_running_loop()
            beat = _beat(weakref.ref(self), self.every)
            self._task = loop.create_task(beat, name="headgate-pulse")
            weakref.finalize(self, _cancel, self._task, loop).atexit = False

    def stop(self) -> None:
        """Come to an end."""
        task, self._task, self._due, self._late = self._task, None, None, 0.0
        if task is not None:
            _cancel(task, task.get_loop())

    def woken(self) -> None:
        """The task is awake."""
        now = time.monotonic()
        if self._due is not None:
            late = max(0.0, now - self._due)
            # A peak is forgotten by and by: one slow moment is not the last one, as a rule.
            self._late = max(late, self._late * 0.5)
        self._due = now + self.every

    def lag(self) -> float | None:
        """Seconds that the loop is behind, of late or just now; None if nobody looks."""
        if self._due is None or self._task is None or self._task.done():
            return None
        # A loop that hangs now has not told so itself.
        return max(self._late, time.monotonic() - self._due)


async def _beat(pulse: weakref.ref[LoopPulse], every: float) -> None:
    while True:
        await asyncio.sleep(every)
        mine = pulse()
        if mine is None:
            return
        mine.woken()
        del mine  # or it would live as long as we sleep


def _cancel(task: asyncio.Task[None], loop: asyncio.AbstractEventLoop) -> None:
    if not task.done() and not loop.is_closed():
        try:
            loop.call_soon_threadsafe(task.cancel)
        except RuntimeError:  # closed in this moment
            return


def start_thread(owner: Any, look: Callable[[Any], object], every: float) -> threading.Event:
    """A thread that calls look(owner) again and again; set the event to end it."""
    end = threading.Event()
    thread = threading.Thread(
        target=_run, args=(weakref.ref(owner, lambda _: end.set()), look, every, end),
        name="headgate-system", daemon=True,
    )  # fmt: skip
    thread.start()
    return end


def _run(
    owner: weakref.ref[Any], look: Callable[[Any], object], every: float, end: threading.Event
) -> None:
    while not end.wait(every):
        mine = owner()
        if mine is None:
            return
        try:
            look(mine)
        except Exception:  # one look that failed is not worth the next ones
            continue
        finally:
            del mine
