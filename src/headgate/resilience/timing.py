"""Time limit: how long a call may take.

An async call that takes longer is cancelled, as `asyncio.timeout` would do it. A plain call
cannot be stopped: no thread can be ended from outside. It is either made in a thread of a pool,
and no longer waited for when its time is over (`pools.Pool`), or it is told until when it is of
use, and has to look itself (`time_left`, `check_deadline`, and every headgate part inside it).

All calls of one limit take the same span, so they end their time in the order in which they
began. A loop therefore has one timer for each limit, however many calls are under way.
"""

from __future__ import annotations

import sys
import threading
from asyncio import CancelledError, current_task, get_running_loop, tasks
from collections.abc import Awaitable, Callable
from contextvars import Token
from typing import TYPE_CHECKING, Any

from ..clock import MICROSECONDS, Clock, ManualClock
from .deadlines import (
    DEADLINE,
    Deadline,
    Span,
    check_deadline,
    clock_of,
    deadline_in,
    sooner,
    span_of,
    ticks_left,
    time_left,
)
from .errors import TimeLimitExceeded
from .faces import Blocks, Faces
from .forking import begin_anew

if TYPE_CHECKING:
    import asyncio

    from .pools import Pool

__all__ = ["TimeLimit", "check_deadline", "deadline_in", "task_of", "time_left"]

task_of: Callable[[Any], asyncio.Task[Any] | None] = current_task
"""The task that a loop is running."""
if sys.version_info < (3, 12):  # where `current_task` is not compiled yet, and four times as slow
    task_of = tasks._current_tasks.get  # type: ignore[attr-defined] # not for everybody

Before = Token[Deadline | None]
Lease = tuple["Watch", "asyncio.Task[Any]", int, Before]
"""A call under way: who watches it, its task, how often that was cancelled, the old deadline."""


class Watch:
    """The calls of one limit on one event loop, the earliest first."""

    __slots__ = ("alone", "expired", "loop", "running", "span", "thread", "timer")

    def __init__(self, loop: asyncio.AbstractEventLoop, span: Span, alone: bool = False) -> None:
        self.loop = loop
        self.alone = alone
        """Whether it is for one call only."""
        self.thread = threading.get_ident()
        self.running: dict[asyncio.Task[Any], float] = {}
        """Each task, and the reading at which its call began."""
        self.expired: set[asyncio.Task[Any]] = set()
        """The tasks that were cancelled because their time was over, and have not left yet."""
        self.span = span
        """How long they may take."""
        self.timer: Any = None

    def arm(self, begun: float) -> None:
        """Have the loop look when the time of a call that began at a reading is over."""
        until, clock = self.span.until(begun), self.span.clock
        if isinstance(clock, ManualClock):
            self.timer = clock.call_at(until, self._ring)
        else:
            left = (until - clock.micros()) / MICROSECONDS
            self.timer = self.loop.call_later(max(0.0, left), self.look)

    def look(self) -> None:
        """Cancel the tasks whose time is over."""
        self.timer = None
        if threading.get_ident() != self.thread:  # the loop has moved: these are not its tasks
            return
        now = self.span.clock.micros()
        while self.running:
            task, begun = next(iter(self.running.items()))
            if self.span.until(begun) > now:
                self.arm(begun)
                return
            del self.running[task]
            self.expired.add(task)
            task.cancel()

    def _ring(self) -> None:
        if not self.loop.is_closed():
            self.loop.call_soon_threadsafe(self.look)


class TimeLimit(Faces, Blocks):
    """A call may take so many seconds: TimeLimitExceeded if it takes longer.

    seconds  how long; an earlier deadline of whoever calls counts as well
    pool     where plain calls are made; without one a plain call is not interrupted: it and
             what it calls can see how much time is left, and begin nothing when none is
    name     what is protected; errors say it
    clock    what tells the time; a ManualClock in tests
    """

    def __init__(
        self,
        seconds: float,
        *,
        pool: Pool | None = None,
        name: str = "",
        clock: Clock | None = None,
    ) -> None:
        self.name = name
        self.pool = pool
        self.span = Span(span_of(seconds, "a time limit"), clock_of(clock))
        self.local = threading.local()
        """The watch of the loop that runs in a thread."""
        begin_anew(self)

    @property
    def seconds(self) -> float:
        """How long a call may take."""
        return self.span.ticks / MICROSECONDS

    def after_fork(self) -> None:
        """In a child: the loops stayed behind."""
        self.local = threading.local()

    # -- plain calls: what `enter` returns is given to `leave`

    def enter(self) -> Before:
        """Tell what is called from here until when it is of use."""
        deadline = self._deadline()
        return DEADLINE.set(deadline)

    def leave(self, before: Before) -> None:
        """The call has ended."""
        DEADLINE.reset(before)

    def _deadline(self) -> Deadline:
        deadline = self.span.read(), self.span
        outer = DEADLINE.get()
        if outer is not None:
            deadline = sooner(deadline, outer)
            if deadline is outer and ticks_left(outer) <= 0:
                raise TimeLimitExceeded("no time was left, the call was not made", self.name)
        return deadline

    # -- async calls: what `begin` returns is given to `end` or `broken`

    def begin(self) -> Lease:
        """Watch the task at hand until it ends the call."""
        loop = get_running_loop()
        task = current_task(loop)
        if task is None:
            raise RuntimeError("a time limit for async calls needs a task to cancel")
        watch: Watch | None = getattr(self.local, "watch", None)
        if watch is None or watch.loop is not loop:
            watch = self.local.watch = Watch(loop, self.span)
        deadline = self._deadline()
        if deadline[1] is not self.span or task in watch.running:
            # Somebody's earlier deadline, or a call of ours inside another one.
            watch = Watch(loop, deadline[1], alone=True)
        watch.running[task] = deadline[0]
        if watch.timer is None:
            watch.arm(deadline[0])
        return watch, task, task.cancelling(), DEADLINE.set(deadline)

    def end(self, lease: Lease) -> None:
        """The call has returned."""
        watch, task, _, before = lease
        DEADLINE.reset(before)
        if watch.alone and watch.timer is not None:
            watch.timer.cancel()
        if watch.running.pop(task, None) is None:
            self.late(lease)

    def late(self, lease: Lease) -> None:
        """The call was cancelled by us and has returned all the same: its result counts."""
        watch, task, _, _ = lease
        watch.expired.discard(task)
        task.uncancel()

    def broken(self, lease: Lease, error: BaseException) -> TimeLimitExceeded | None:
        """The call has raised; what to raise instead, if it was cancelled by us."""
        watch, task, cancelled, before = lease
        DEADLINE.reset(before)
        if watch.alone and watch.timer is not None:
            watch.timer.cancel()
        if watch.running.pop(task, None) is not None:
            return None
        watch.expired.discard(task)
        if task.uncancel() <= cancelled and isinstance(error, CancelledError):
            return self.exceeded(watch.span)
        return None

    def exceeded(self, span: Span | None = None) -> TimeLimitExceeded:
        """The error of a call that took too long; `span` is the one that was over, if not ours."""
        if span is None or span is self.span:
            problem = f"the call took longer than {self.seconds:g} s"
        else:
            problem = "the deadline of whoever calls has passed"
        return TimeLimitExceeded(problem, self.name)

    # -- faces

    def _plain(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            before = self.enter()
            try:
                if self.pool is not None:
                    return self.pool.call(function, *args, **kwargs)
                return function(*args, **kwargs)
            finally:
                self.leave(before)

        return wrapper

    def _async(self, function: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def wrapper(*args: Any, **kwargs: Any) -> Any:
            lease = self.begin()
            try:
                result = await function(*args, **kwargs)
            except BaseException as error:
                late = self.broken(lease, error)
                if late is not None:
                    raise late from error
                raise
            self.end(lease)
            return result

        return wrapper

    def _enter(self) -> Any:
        return self.enter()

    async def _enter_async(self) -> Any:
        return self.begin()

    def _leave(self, kept: Any, error: BaseException | None) -> None:
        if isinstance(kept, Token):
            self.leave(kept)
        elif error is None:
            self.end(kept)
        else:
            late = self.broken(kept, error)
            if late is not None:
                raise late from error

    def __repr__(self) -> str:
        return f"<TimeLimit {self.name!r} {self.seconds:g} s>"
