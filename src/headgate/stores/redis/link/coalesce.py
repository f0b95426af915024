"""Coalescing: calls of concurrent tasks gathered into one write, and merged where they can be.

All tasks that are ready in one turn of the event loop join one batch. While batches are on
their way new calls gather for the next. A call that is alone leaves in the same turn.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from ....errors import StoreUnavailable
from .calls import AnyCall
from .channel import Channel
from .exchange import Answer, Renew, Steps, Trip, exchange
from .gathering import Takes, Way
from .wire import broken, late

if TYPE_CHECKING:
    from .routes import Node, Routes

__all__ = ["Entry", "Lane", "Merge"]

Merge: TypeAlias = Callable[
    [list[AnyCall]], tuple[Sequence[AnyCall], Callable[[list[Any]], list[Any]]]
]
"""From calls to fewer calls, and a function from the replies of those to replies of all."""
Drive: TypeAlias = Callable[[Steps, Any, float], Coroutine[Any, Any, list[Any]]]
_STOPPED = ConnectionError("the event loop stopped")
ENOUGH = 22
"""Calls that are sent without waiting for the others of the same turn."""
TOGETHER = 0.001
"""Seconds between the first and the last of takes that share one deadline, the first one's."""
FLYING = 4
"""Batches of a lane on their way at once: more only make each smaller, fewer make calls wait."""


class Entry(NamedTuple):
    """Calls of one task, and the future of their replies."""

    calls: Sequence[AnyCall]
    future: asyncio.Future[list[Any]]
    deadline: float


class Lane:
    """The way of one event loop to one node."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, routes: Routes, node: Node, drive: Drive
    ) -> None:
        self._loop = loop
        self.routes = routes
        self._shown = routes.shown(node)
        self._drive = drive
        self.node = node
        self.merge: Merge | None = None
        self.channel: Channel | None = None
        self._queue: list[Entry | Takes] = []
        self._open: deque[Entry | Takes] = deque()
        self._takes: Takes | None = None
        """Takes that have not left yet."""
        self._timer: asyncio.TimerHandle | None = None
        self._gathered = 0
        self._flying = 0
        self._soon = False
        self._tasks: set[asyncio.Task[None]] = set()

    def submit(self, calls: Sequence[AnyCall], deadline: float) -> asyncio.Future[list[Any]]:
        """The future of the replies; an exception stands for each call that failed."""
        entry = Entry(calls, self._loop.create_future(), deadline)
        self._enter(entry)
        self._came()
        return entry.future

    def take(self, way: Way, name: bytes, deadline: float) -> asyncio.Future[Any]:
        """The future of the reply to one take, or of the exception that stands for it."""
        future: asyncio.Future[Any] = self._loop.create_future()
        takes = self._takes
        if takes is None or deadline > takes.deadline + TOGETHER:
            takes = self._takes = Takes(deadline)
            self._enter(takes)
        takes.add(way, name, future)
        self._came()
        return future

    def _enter(self, entry: Entry | Takes) -> None:
        self._queue.append(entry)
        self._open.append(entry)
        if self._timer is None:
            self._timer = self._loop.call_at(entry.deadline, self._expire)

    def _came(self) -> None:
        """One more waits to be sent."""
        self._gathered += 1
        if self._flying < FLYING:
            if self._gathered >= ENOUGH:
                self._flush()  # so that the server works while the rest of the tasks ask
            elif not self._soon:
                self._soon = True
                self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        """Send what has gathered."""
        self._soon = False
        self._takes, self._gathered = None, 0
        for entry in self._queue:
            if entry.__class__ is Takes:
                entry.leave()
        # A task that was cancelled before its call left has asked nothing.
        batch = [entry for entry in self._queue if not entry.future.done()]
        self._queue = []
        if not batch:
            return
        self._flying += 1
        flight = _Flight(self, batch)
        try:
            flight.start(batch[-1].deadline)
        except Exception as error:  # calls that cannot be packed or merged
            flight.fail(error)

    def landed(self) -> None:
        """A batch has its replies."""
        self._flying -= 1
        while self._open and self._open[0].future.done():
            self._open.popleft()
        if self._queue and not self._soon:
            self._soon = True
            self._loop.call_soon(self._flush)

    def fly(self, steps: Steps, step: Any, deadline: float, done: Callable[[Any], None]) -> None:
        """Drive an exchange that takes more than one trip on a channel that is there."""

        async def work() -> None:
            replies: list[Any] | StoreUnavailable = broken(self._shown, _STOPPED, sent=True)
            try:
                replies = await self._drive(steps, step, deadline)
            finally:
                done(replies)

        task = self._loop.create_task(work())
        self._tasks.add(task)  # a loop keeps only weak references to its tasks
        task.add_done_callback(self._tasks.discard)

    def _expire(self) -> None:
        """Raise for calls past their deadline; one timer serves all."""
        self._timer = None
        now = self._loop.time()
        self.routes.remind(now)
        while self._open:
            entry = self._open[0]
            if not entry.future.done():
                if now < entry.deadline:
                    break
                sent = not any(entry is waiting for waiting in self._queue)
                if entry.__class__ is Takes and not sent:
                    entry.leave()
                    self._takes = None if entry is self._takes else self._takes
                entry.future.set_result([late(self._shown, sent=sent)] * len(entry.calls))
            self._open.popleft()
        if self._open:
            self._timer = self._loop.call_at(self._open[0].deadline, self._expire)


class _Flight:
    """One batch on its way."""

    __slots__ = ("_batch", "_deadline", "_lane", "_split", "_steps")

    def __init__(self, lane: Lane, batch: Sequence[Entry | Takes]) -> None:
        self._lane = lane
        self._batch = batch
        self._split: Callable[[list[Any]], list[Any]] | None = None

    def start(self, deadline: float) -> None:
        """The first trip, without a task of its own if the channel is there."""
        self._deadline = deadline
        lane = self._lane
        calls: Sequence[AnyCall] = [call for entry in self._batch for call in entry.calls]
        if lane.merge is not None and len(calls) > 1 and len(self._batch) > 1:
            calls, self._split = lane.merge(list(calls))
        self._steps = exchange(lane.routes, calls)
        step = next(self._steps)
        if not isinstance(step, Renew) and len(step) == 1 and step[0].node == lane.node:
            channel = lane.channel
            if channel is not None:
                trip: Trip = step[0]
                channel.ask(trip.data, trip.replies, deadline, self._answered)
                return
        lane.fly(self._steps, step, deadline, self._finish)

    def _answered(self, answer: Answer) -> None:
        try:
            step = self._steps.send([answer])
        except StopIteration as done:
            self._finish(done.value)
        else:
            self._lane.fly(self._steps, step, self._deadline, self._finish)

    def fail(self, error: Exception) -> None:
        """No replies at all."""
        for entry in self._batch:
            if entry.future.done():
                continue
            if isinstance(error, StoreUnavailable):
                entry.future.set_result([error] * len(entry.calls))
            else:
                entry.future.set_exception(error)
        self._lane.landed()

    def _finish(self, replies: list[Any] | StoreUnavailable) -> None:
        try:
            if isinstance(replies, StoreUnavailable):
                raise replies
            if self._split is not None:
                replies = self._split(replies)
        except Exception as error:
            self.fail(error)
            return
        at = 0
        for entry in self._batch:
            count = len(entry.calls)
            if not entry.future.done():  # else cancelled, or told that it is late
                entry.future.set_result(replies[at : at + count])
            at += count
        self._lane.landed()
