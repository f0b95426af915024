"""Lanes: what the tasks of an event loop ask at once, gathered into few requests.

All tasks that are ready in one turn of the loop join one request. While requests are on their
way in threads, new calls gather for the next. What is about a permit waits until the request
that asked for the permit is back: a release must never overtake its take.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from time import monotonic
from typing import Any

from ..redis.link.wire import late
from .link import Link
from .plan import LARGE, Call

__all__ = ["Lane"]

FLYING = 4
"""Requests of a lane on their way at once: more only make each smaller."""


class Entry:
    """Calls of one task."""

    __slots__ = ("calls", "deadline", "future", "gone", "size", "tokens")

    def __init__(
        self, calls: Sequence[Call], future: asyncio.Future[list[Any]], deadline: float
    ) -> None:
        self.calls = calls
        self.future = future
        self.deadline = deadline
        self.size = sum(len(call.data) + 1 for call in calls)
        self.tokens: frozenset[int] = frozenset().union(*(call.tokens for call in calls))
        self.gone = False
        """Whether it has been sent."""


class Lane:
    """The way of one event loop to the service."""

    def __init__(self, loop: asyncio.AbstractEventLoop, link: Link) -> None:
        self._loop = loop
        self._link = link
        self._queue: list[Entry] = []
        self._open: deque[Entry] = deque()
        self._aboard: set[int] = set()
        """Tokens that requests on their way are about."""
        self._timer: asyncio.TimerHandle | None = None
        self._flying = 0
        self._soon = False

    def submit(self, calls: Sequence[Call]) -> asyncio.Future[list[Any]]:
        """The future of the replies; an exception stands for each call that failed."""
        options = self._link.options
        budget = options.budget + (0.0 if self._link.met else options.connect_timeout)
        entry = Entry(calls, self._loop.create_future(), monotonic() + budget)
        self._queue.append(entry)
        self._open.append(entry)
        if self._timer is None:
            self._timer = self._loop.call_later(budget, self._expire)
        self._plan()
        return entry.future

    def _plan(self) -> None:
        if not self._soon and self._flying < FLYING:
            self._soon = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        """Send what has gathered."""
        self._soon = False
        while self._queue and self._flying < FLYING:
            batch = self._boarding()
            if not batch:
                return
            tokens = frozenset().union(*(entry.tokens for entry in batch))
            calls = [call for entry in batch for call in entry.calls]
            deadline = max(entry.deadline for entry in batch)
            try:
                flight = self._link.pool().submit(self._link.carry, calls, deadline)
            except Exception as error:  # closed meanwhile, or no thread to be had
                self._answer(batch, [error] * len(calls))
                continue
            self._flying += 1
            self._aboard |= tokens
            flight.add_done_callback(lambda done, batch=batch: self._back(done, batch))  # type: ignore[misc] # its type is that of the batch

    def _boarding(self) -> list[Entry]:
        """Those who go next; the others stay in the queue."""
        batch: list[Entry] = []
        rest: list[Entry] = []
        room, held = LARGE, set(self._aboard)
        for number, entry in enumerate(self._queue):
            if entry.future.done():
                continue  # cancelled before it left: it has asked nothing
            if batch and entry.size > room:
                rest += self._queue[number:]
                break
            if held.isdisjoint(entry.tokens):
                batch.append(entry)
                room -= entry.size
                entry.gone = True
            else:
                rest.append(entry)
                held |= entry.tokens
        self._queue = rest
        return batch

    def _back(self, flight: Future[list[Any]], batch: list[Entry]) -> None:
        """A request has ended; called in the thread that carried it."""
        with contextlib.suppress(RuntimeError):  # the loop has ended first
            self._loop.call_soon_threadsafe(self._landed, flight, batch)

    def _landed(self, flight: Future[list[Any]], batch: list[Entry]) -> None:
        self._flying -= 1
        for entry in batch:
            self._aboard -= entry.tokens
        error = flight.exception()
        count = sum(len(entry.calls) for entry in batch)
        self._answer(batch, flight.result() if error is None else [error] * count)
        if self._queue:
            self._plan()

    def _answer(self, batch: list[Entry], replies: list[Any]) -> None:
        at = 0
        for entry in batch:
            count = len(entry.calls)
            if not entry.future.done():  # else cancelled, or told that it is late
                entry.future.set_result(replies[at : at + count])
            at += count
        while self._open and self._open[0].future.done():
            self._open.popleft()

    def _expire(self) -> None:
        """Answer those whose time is over; one timer serves all."""
        self._timer = None
        now = monotonic()
        shown = str(self._link.place)
        while self._open:
            entry = self._open[0]
            if not entry.future.done():
                if now < entry.deadline:
                    break
                entry.future.set_result([late(shown, sent=entry.gone)] * len(entry.calls))
            self._open.popleft()
        if self._open:
            left = max(0.0, self._open[0].deadline - now)
            self._timer = self._loop.call_later(left, self._expire)
