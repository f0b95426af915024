"""Callers: who makes a call on a store that blocks, as a thread or as a task.

A caller knows how it sleeps and is woken, and how it sends what nobody has to wait for. A task
may be cancelled in the middle of a store's call, whose effect is then unknown. So a take runs
in a task of its own, and what it turns out to have been granted for nobody goes back.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from .answers import by_token, given_back
from .clock import ManualClock
from .decision import Ask, Decision, joined

if TYPE_CHECKING:
    import asyncio

    from .stores.base import BlockingStore

__all__ = [
    "Caller", "Sleep", "Take", "TaskCaller", "ThreadCaller", "errand", "errands_done", "shielded",
]  # fmt: skip

Result = TypeVar("Result")


class Caller:
    """Who calls: on which store, and whom to tell when something came back."""

    def __init__(self, store: BlockingStore, came_back: Callable[[], None]) -> None:
        self.store = store
        self._came_back = came_back

    def sleep(self, until: int | None) -> Any:
        """Sleep until an instant of the store's clock, or until woken; to be awaited by a task."""
        raise NotImplementedError

    def take(self, asks: Sequence[Ask]) -> Any:
        """Ask for something that must not get lost; to be awaited by a task."""
        raise NotImplementedError

    def wake(self) -> bool:
        """End the sleep, or the next one if there is none; False if nobody is there."""
        raise NotImplementedError

    def gone(self) -> bool:
        """Whether nobody is there any more to be woken."""
        return False

    def give(self, asks: Sequence[Ask]) -> None:
        """Give something back; a task does not wait for it."""
        raise NotImplementedError


class Take(NamedTuple):
    """The step that takes."""

    caller: Caller
    asks: Sequence[Ask]

    def ask(self, store: Any) -> Any:
        return self.caller.take(self.asks)

    def ask_async(self, store: Any) -> Any:
        return self.caller.take(self.asks)


class Sleep(NamedTuple):
    """The step that sleeps."""

    caller: Caller
    until: int | None

    def ask(self, store: Any) -> Any:
        return self.caller.sleep(self.until)

    def ask_async(self, store: Any) -> Any:
        return self.caller.sleep(self.until)


class ThreadCaller(Caller):
    """A thread."""

    def __init__(self, store: BlockingStore, came_back: Callable[[], None]) -> None:
        super().__init__(store, came_back)
        # Open when woken. Not an Event: an interrupt in the middle of one can leave it locked.
        self._gate = threading.Lock()
        self._gate.acquire()

    def sleep(self, until: int | None) -> None:
        clock, timer, left = self.store.clock, None, -1.0
        if until is not None and isinstance(clock, ManualClock):
            timer = clock.call_at(until, self.wake)
        elif until is not None:
            left = min(max(0.0, (until - clock.micros()) / 1_000_000), threading.TIMEOUT_MAX)
        try:
            self._gate.acquire(timeout=left)
        finally:
            if timer is not None:
                timer.cancel()

    def take(self, asks: Sequence[Ask]) -> list[Decision]:
        return self.store.decide(asks)

    def wake(self) -> bool:
        with contextlib.suppress(RuntimeError):  # open already
            self._gate.release()
        return True

    def give(self, asks: Sequence[Ask]) -> None:
        # Whatever made the caller give up is what it wants to hear of.
        with contextlib.suppress(Exception):
            self.store.decide(asks)
        self._came_back()


class TaskCaller(Caller):
    """A task of an event loop."""

    def __init__(
        self,
        store: BlockingStore,
        came_back: Callable[[], None],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        super().__init__(store, came_back)
        self._loop = loop
        self._thread = threading.get_ident()
        self._woken = False
        self._sleep: asyncio.Future[None] | None = None

    async def sleep(self, until: int | None) -> None:
        if not self._woken:
            clock = self.store.clock
            timer: Any = None
            self._sleep = self._loop.create_future()
            try:
                if until is not None and isinstance(clock, ManualClock):
                    timer = clock.call_at(until, self.wake)
                elif until is not None:
                    left = max(0.0, (until - clock.micros()) / 1_000_000)
                    timer = self._loop.call_later(left, self._ring)
                await self._sleep
            finally:
                self._sleep = None
                if timer is not None:
                    timer.cancel()
        self._woken = False

    async def take(self, asks: Sequence[Ask]) -> list[Decision]:
        import asyncio

        call = self._loop.create_task(self.store.decide_async(asks))
        try:
            return await asyncio.shield(call)
        except asyncio.CancelledError:
            errand(self._undo(call, asks))
            raise

    async def _undo(self, call: asyncio.Task[list[Decision]], asks: Sequence[Ask]) -> None:
        """Give back what a call that nobody waits for any more turns out to have been granted."""
        import asyncio

        try:
            decision = joined(tuple(await call))
        except (Exception, asyncio.CancelledError):
            back = by_token(asks)
        else:
            back = given_back(asks, decision) if decision.allowed else by_token(asks)
        if back:
            await self._give(back)

    async def _give(self, asks: Sequence[Ask]) -> None:
        try:
            await self.store.decide_async(asks)
        finally:
            self._came_back()

    def wake(self) -> bool:
        try:
            if threading.get_ident() == self._thread:
                self._ring()
            else:
                self._loop.call_soon_threadsafe(self._ring)
        except RuntimeError:  # its loop was closed over it
            return False
        return not self._loop.is_closed()

    def gone(self) -> bool:
        return self._loop.is_closed()

    def _ring(self) -> None:
        self._woken = True
        if self._sleep is not None and not self._sleep.done():
            self._sleep.set_result(None)

    def give(self, asks: Sequence[Ask]) -> None:
        import asyncio

        with contextlib.suppress(RuntimeError):  # no loop runs: what is leased comes back by itself
            asyncio.get_running_loop()
            errand(self._give(asks))


# -- errands: what a task has sent on its way without waiting for it

_errands: set[asyncio.Task[Any]] = set()
"""An event loop knows its tasks only weakly."""


def errand(work: Coroutine[Any, Any, Result]) -> asyncio.Task[Result]:
    """Have something done, whether or not somebody waits for it."""
    import asyncio

    task = asyncio.get_running_loop().create_task(work)
    _errands.add(task)
    task.add_done_callback(_over)
    return task


def _over(task: asyncio.Task[Any]) -> None:
    _errands.discard(task)
    if not task.cancelled():
        task.exception()  # seen; whoever waits for it is told too


async def shielded(task: asyncio.Task[Result]) -> Result:
    """The result of a task that goes on if whoever waits for it is cancelled."""
    import asyncio

    return await asyncio.shield(task)


async def errands_done() -> None:
    """Wait for the errands of this event loop."""
    import asyncio

    loop = asyncio.get_running_loop()
    while mine := [task for task in list(_errands) if task.get_loop() is loop]:
        await asyncio.wait(mine)
