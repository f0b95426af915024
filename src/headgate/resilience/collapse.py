"""Collapse: calls with the same arguments at the same time become one.

The first one, the leader, makes the call. Whoever comes while it is under way waits for what it
gives, be it a result or an exception. A leader that is cancelled or interrupted, or whose own
deadline has passed, hands over to the first of those who wait, who then makes the call for the
others.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from types import TracebackType
from typing import Any

from ..clock import Clock
from .deadlines import DEADLINE, clock_of, time_left, until_of
from .errors import TimeLimitExceeded
from .faces import Faces
from .flows import Block, Call, Flow, drive, drive_async
from .forking import begin_anew
from .kinds import key_of
from .notices import Listener, tell
from .waiters import Waiter

__all__ = ["Collapse"]

LEAD, DONE = "lead", "done"


class Flight:
    """A call that is under way, and who waits for it."""

    __slots__ = ("error", "leader", "result", "trace", "waiting")

    def __init__(self) -> None:
        self.leader: Any = None
        self.waiting: OrderedDict[Waiter, None] = OrderedDict()
        self.result: Any = None
        self.error: Exception | None = None
        self.trace: TracebackType | None = None

    def give(self) -> Any:
        """What the leader's call gave."""
        if self.error is not None:
            # Each from the same place, or the traceback would grow with everybody who raises it.
            raise self.error.with_traceback(self.trace)
        return self.result


class Collapse(Faces):
    """Makes one call of those that are under way at the same time with the same arguments.

    key  a function of the call's arguments; else the arguments themselves, which then have to be
         hashable. Calls of different users need different keys if they are answered differently
    name, clock, listeners   as for every part

    All get the same object, so it must not be changed. Threads and tasks may share one. A call
    of the same function with the same arguments inside itself is simply made.
    """

    def __init__(
        self,
        *,
        key: Callable[..., Hashable] | None = None,
        name: str = "",
        clock: Clock | None = None,
        listeners: list[Listener] | None = None,
    ) -> None:
        self._key = key
        self.name = name
        self.listeners = [] if listeners is None else listeners
        self._clock = clock_of(clock)
        self._flights: dict[Hashable, Flight] = {}
        self._lock = threading.RLock()
        begin_anew(self)

    @property
    def under_way(self) -> int:
        """How many calls are under way, after collapsing."""
        return len(self._flights)

    @property
    def waiting(self) -> int:
        """How many wait for somebody else's call."""
        with self._lock:
            return sum(len(flight.waiting) for flight in self._flights.values())

    def after_fork(self) -> None:
        """In a child: whoever calls stayed behind."""
        self._lock = threading.RLock()
        self._flights = {}

    def steps(
        self,
        function: Any,
        args: Any,
        kwargs: Any,
        inside: Callable[[], Flow[Any]],
        who: Any,
    ) -> Flow[Any]:
        """Lead a call, or wait for somebody else's; `inside` makes it, `who` asks."""
        key = key_of(function, self._key, args, kwargs)
        with self._lock:
            flight = self._flights.get(key)
            if flight is None:
                flight = self._flights[key] = Flight()
                flight.leader = who
                leading = True
            elif flight.leader == who:
                leading = False
                flight = None
            else:
                leading = False
        if flight is None:
            return (yield from inside())
        if not leading:
            if self.listeners:
                tell(self.listeners, "collapsed", self.name, self._clock.micros())
            leading = yield from self._follow(key, flight)
            if not leading:
                return flight.give()
            flight.leader = who
        return (yield from self._lead(key, flight, inside))

    def _lead(self, key: Hashable, flight: Flight, inside: Callable[[], Flow[Any]]) -> Flow[Any]:
        try:
            flight.result = yield from inside()
        except Exception as error:
            if time_left() == 0:  # our deadline, which is nobody else's: others may have more time
                self._hand_over(key, flight)
            else:
                flight.error, flight.trace = error, error.__traceback__
                self._land(key, flight)
            raise
        except BaseException:
            self._hand_over(key, flight)
            raise
        self._land(key, flight)
        return flight.result

    def _follow(self, key: Hashable, flight: Flight) -> Flow[bool]:
        """Wait for the leader; whether to lead instead."""

        def join(waiter: Waiter) -> bool:
            with self._lock:
                if self._flights.get(key) is not flight:
                    waiter.answer = DONE
                    return False
                flight.waiting[waiter] = None
                return True

        until, clock = until_of(DEADLINE.get(), self._clock)
        step = Block(join, clock, until)
        try:
            yield step
        except BaseException:
            if self._left(flight, step.waiter) == LEAD:
                self._hand_over(key, flight)
            raise
        answer = self._left(flight, step.waiter)
        if answer is None:
            raise TimeLimitExceeded(
                "the same call, made by somebody else, took too long", self.name
            )
        return bool(answer == LEAD)

    def _left(self, flight: Flight, waiter: Waiter | None) -> Any:
        """Stop waiting; what was answered in the last moment, if anything was."""
        if waiter is None:
            return None
        with self._lock:
            flight.waiting.pop(waiter, None)
            return waiter.answer

    def _land(self, key: Hashable, flight: Flight) -> None:
        """Tell those who wait that it is done."""
        with self._lock:
            if self._flights.get(key) is flight:
                del self._flights[key]
            while flight.waiting:
                flight.waiting.popitem(last=False)[0].tell(DONE)

    def _hand_over(self, key: Hashable, flight: Flight) -> None:
        """Let the first of those who wait lead."""
        with self._lock:
            flight.leader = None
            while flight.waiting:
                if flight.waiting.popitem(last=False)[0].tell(LEAD):
                    return
            if self._flights.get(key) is flight:
                del self._flights[key]

    def _plain(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            def inside() -> Flow[Any]:
                return (yield Call(function, args, kwargs))

            return drive(self.steps(function, args, kwargs, inside, threading.get_ident()))

        return wrapper

    def _async(self, function: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        from asyncio import current_task

        async def wrapper(*args: Any, **kwargs: Any) -> Any:
            def inside() -> Flow[Any]:
                return (yield Call(function, args, kwargs))

            return await drive_async(self.steps(function, args, kwargs, inside, current_task()))

        return wrapper

    def __repr__(self) -> str:
        return f"<Collapse {self.name!r} {self.under_way} under way>"
