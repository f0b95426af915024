"""Waiters: somebody who waits, as a thread or as a task, and how they are woken."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .clock import Clock, Timer
from .decision import Ask, Decision

if TYPE_CHECKING:
    import asyncio

__all__ = ["AsyncWaiter", "ThreadWaiter", "Waiter"]


class Waiter:
    """Somebody who waits: what they ask for, until when, and how they are woken."""

    def __init__(self, asks: Sequence[Ask], deadline: int | None, priority: int = 0) -> None:
        self.asks = asks
        # The least of them, or those behind would be told of a longer wait than theirs.
        self.cost = min(ask.cost for ask in asks)
        self.deadline = deadline
        self.priority = priority
        self.decision: Decision | None = None
        self.error: Exception | None = None
        self.planned: Decision | None = None
        self.ready = 0
        self.queued = self.left = False
        self.expiry: Timer | None = None
        self.line: Any = None

    def finished(self) -> bool:
        """Whether the waiting is over: served, refused, failed or given up."""
        return self.decision is not None or self.error is not None or self.left

    def gone(self) -> bool:
        """Whether nobody is there any more to be served."""
        return False

    def wake(self) -> bool:
        """Tell the waiter that it is done; False if it is not there to be told."""
        raise NotImplementedError

    def plan(self, micros: int, call: Any) -> Timer:
        """Have `call` made at an instant of the system's clock."""
        raise NotImplementedError


class _Alarm:
    """A planned call of a waiter, made by its own thread."""

    __slots__ = ("call", "micros")

    def __init__(self, micros: int, call: Any) -> None:
        self.micros = micros
        self.call = call

    def cancel(self) -> None:
        self.call = None


class _LoopAlarm(_Alarm):
    """A call planned on another thread's event loop."""

    __slots__ = ("handle", "loop")

    def __init__(self, micros: int, call: Any, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(micros, call)
        self.loop = loop
        self.handle: asyncio.TimerHandle | None = None

    def set(self, left: float) -> None:
        if self.call is not None:
            self.handle = self.loop.call_later(left, self.ring)

    def ring(self) -> None:
        if self.call is not None:
            self.call()

    def cancel(self) -> None:
        super().cancel()
        if self.handle is not None:
            with contextlib.suppress(RuntimeError):  # a closed loop has forgotten it anyway
                self.loop.call_soon_threadsafe(self.handle.cancel)


class ThreadWaiter(Waiter):
    """A thread that waits, and makes the planned calls itself while it does."""

    def __init__(self, asks: Sequence[Ask], deadline: int | None, priority: int = 0) -> None:
        super().__init__(asks, deadline, priority)
        self._event = threading.Event()
        self._alarms: list[_Alarm] = []

    def wake(self) -> bool:
        self._event.set()
        return True

    def plan(self, micros: int, call: Any) -> Timer:
        alarm = _Alarm(micros, call)
        self._alarms = [other for other in self._alarms if other.call is not None]
        self._alarms.append(alarm)
        self._event.set()
        return alarm

    def block(self, clock: Clock) -> None:
        """Wait until done."""
        while not self.finished():
            self._event.clear()
            if self.finished():  # between the question and the clearing
                return
            pending = [alarm for alarm in list(self._alarms) if alarm.call is not None]
            soonest = min(pending, key=lambda alarm: alarm.micros, default=None)
            left = None if soonest is None else (soonest.micros - clock.micros()) / 1_000_000
            if left is None or left > 0:
                self._event.wait(None if left is None else min(left, threading.TIMEOUT_MAX))
            elif soonest is not None:
                call, soonest.call = soonest.call, None
                if call is not None:
                    call()


class AsyncWaiter(Waiter):
    """A task that waits on its event loop."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        asks: Sequence[Ask],
        deadline: int | None,
        priority: int,
        clock: Clock,
    ) -> None:
        super().__init__(asks, deadline, priority)
        self._loop = loop
        self._clock = clock
        self._thread = threading.get_ident()
        self.future: asyncio.Future[None] = loop.create_future()

    def wake(self) -> bool:
        try:
            if threading.get_ident() == self._thread:
                self._set()
            else:
                self._loop.call_soon_threadsafe(self._set)
        except RuntimeError:  # its loop was closed over it
            return False
        return True

    def gone(self) -> bool:
        return self._loop.is_closed()

    def _set(self) -> None:
        if not self.future.done():
            self.future.set_result(None)

    def plan(self, micros: int, call: Any) -> Timer:
        left = max(0.0, (micros - self._clock.micros()) / 1_000_000)
        if threading.get_ident() == self._thread and not self._loop.is_closed():
            return self._loop.call_later(left, call)
        alarm = _LoopAlarm(micros, call, self._loop)
        # A loop closed a moment ago: its waiter is passed over when its line moves next.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(alarm.set, left)
        return alarm
