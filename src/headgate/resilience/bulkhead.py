"""Bulkhead: so many calls at once and no more, so that one sick dependency cannot take all."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Hashable
from typing import Any

from ..clock import Clock, ticks_of
from .deadlines import DEADLINE, Span, clock_of, sooner, until_of
from .errors import BulkheadFull
from .faces import Faces
from .flows import Block, Flow, drive, drive_async
from .forking import begin_anew
from .rooms import Room

__all__ = ["Bulkhead", "Held", "whole"]


class Bulkhead(Faces):
    """At most `limit` calls at once; the others wait in line, or are refused: BulkheadFull.

    limit    how many calls may be under way at once
    timeout  how many seconds a call may wait for its turn (0: not at all; None: for ever)
    queue    how many calls may wait at once; None: any number
    key      a function of the call's arguments: each key has `limit` calls of its own
    name     what is protected; errors say it
    clock    what tells the time; a ManualClock in tests

    Threads and tasks may share one, and stand in the same line.
    """

    def __init__(
        self,
        limit: int,
        *,
        timeout: float | None = 0.0,
        queue: int | None = None,
        key: Callable[..., Hashable] | None = None,
        name: str = "",
        clock: Clock | None = None,
    ) -> None:
        whole(limit, "limit", 1)
        if queue is not None:
            whole(queue, "queue", 0)
        if key is not None and not callable(key):
            raise TypeError(f"key is a function of the call's arguments, not {key!r}")
        ticks = None if timeout is None else ticks_of(timeout, "timeout")
        if ticks is not None and ticks < 0:
            raise ValueError(f"timeout is a number of seconds from 0 on, not {timeout!r}")
        self.name = name
        self.key = key
        self._limit = limit
        self._queue = 0 if ticks == 0 else queue
        self._clock = clock_of(clock)
        self._span = None if ticks is None else Span(ticks, self._clock)
        self._lock = threading.RLock()
        self.room = Room(limit)
        """The permits of calls without a key."""
        self._rooms: dict[Hashable, Room] = {}
        begin_anew(self)

    @property
    def limit(self) -> int:
        """How many calls may be under way at once, for each key."""
        return self._limit

    @property
    def in_flight(self) -> int:
        """How many calls are under way, of all keys."""
        return sum(room.in_flight for room in self._all())

    @property
    def waiting(self) -> int:
        """How many calls wait, of all keys."""
        return sum(room.waiting for room in self._all())

    def resize(self, limit: int) -> None:
        """Change the limit while calls are under way; nobody is interrupted."""
        whole(limit, "limit", 1)
        with self._lock:
            self._limit = limit
            for room in self._all():
                room.resize(limit)

    # -- one permit; what `enter` returns is given to `leave`

    def enter(self, key: Hashable = None) -> Room:
        """Take a permit, waiting for it as long as it may take; BulkheadFull if it cannot be."""
        room = self.room if key is None else self._open(key)
        if not room.take():
            drive(self.line_up(room))
        return room

    async def enter_async(self, key: Hashable = None) -> Room:
        """`enter` for a task."""
        room = self.room if key is None else self._open(key)
        if not room.take():
            await drive_async(self.line_up(room))
        return room

    def leave(self, room: Room) -> None:
        """Give a permit back, once; where none is out, nothing changes."""
        if not room.in_flight:
            return
        room.give()
        if room.key is not None:
            self._close(room)

    def hold(self, key: Hashable = None) -> Held:
        """A permit of a key for a block: `with bulkhead.hold("a"):`, also `async with`."""
        return Held(self, key)

    def line_up(self, room: Room) -> Flow[None]:
        """Wait for a permit of a room that `take` did not give; BulkheadFull if it cannot be."""
        deadline = DEADLINE.get()
        if self._span is not None:
            deadline = sooner((self._span.read(), self._span), deadline)
        until, clock = until_of(deadline, self._clock)
        step = Block(lambda waiter: room.join(waiter, self._queue), clock, until)
        mine = False
        try:
            try:
                yield step
            except BaseException:
                if room.leave(step.waiter):
                    room.give()
                raise
            mine = room.leave(step.waiter)
        finally:
            if not mine and room.key is not None:
                self._close(room)
        if not mine:
            raise self._full(room)

    def _full(self, room: Room) -> BulkheadFull:
        whose = "" if room.key is None else f" of key {room.key!r}"
        said = f"{room.limit} calls{whose} are under way, as many as may be"
        if self._queue == 0:
            said += ", and none may wait"
        elif self._queue is not None and room.waiting >= self._queue:
            said += f", and {self._queue} wait already"
        else:
            said += ", and the turn did not come in time"
        return BulkheadFull(f"{said}; the call was not made", self.name)

    # -- the rooms of keys; one that nobody uses is forgotten

    def _open(self, key: Hashable) -> Room:
        with self._lock:
            room = self._rooms.get(key)
            if room is None:
                room = self._rooms[key] = Room(self._limit, key)
            room.users += 1
            return room

    def _close(self, room: Room) -> None:
        with self._lock:
            room.users -= 1
            if not room.users and self._rooms.get(room.key) is room:
                del self._rooms[room.key]

    def _all(self) -> list[Room]:
        with self._lock:
            return [self.room, *self._rooms.values()]

    def after_fork(self) -> None:
        """In a child: whoever waits or calls stayed behind. Permits taken before go to no one."""
        self._lock = threading.RLock()
        self.room = Room(self._limit)
        self._rooms = {}

    # -- faces

    def _plain(self, function: Callable[..., Any]) -> Callable[..., Any]:
        key = self.key

        def wrapper(*args: Any, **kwargs: Any) -> Any:
            room = self.enter(None if key is None else key(*args, **kwargs))
            try:
                return function(*args, **kwargs)
            finally:
                self.leave(room)

        return wrapper

    def _async(self, function: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        key = self.key

        async def wrapper(*args: Any, **kwargs: Any) -> Any:
            room = await self.enter_async(None if key is None else key(*args, **kwargs))
            try:
                return await function(*args, **kwargs)
            finally:
                self.leave(room)

        return wrapper

    def __enter__(self) -> None:
        self.enter()

    def __exit__(self, *error: object) -> None:
        self.leave(self.room)

    async def __aenter__(self) -> None:
        await self.enter_async()

    async def __aexit__(self, *error: object) -> None:
        self.leave(self.room)

    def __repr__(self) -> str:
        return f"<Bulkhead {self.name!r} {self.in_flight} of {self._limit}>"


class Held:
    """A permit of a key for one block."""

    __slots__ = ("_bulkhead", "_key", "_room")

    def __init__(self, bulkhead: Bulkhead, key: Hashable) -> None:
        self._bulkhead = bulkhead
        self._key = key
        self._room: Room | None = None

    def __enter__(self) -> None:
        self._room = self._bulkhead.enter(self._key)

    def __exit__(self, *error: object) -> None:
        room, self._room = self._room, None
        if room is not None:
            self._bulkhead.leave(room)

    async def __aenter__(self) -> None:
        self._room = await self._bulkhead.enter_async(self._key)

    async def __aexit__(self, *error: object) -> None:
        self.__exit__()


def whole(value: Any, what: str, least: int) -> None:
    """Raise unless a value is a whole number from `least` on."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{what} is a whole number, not {type(value).__name__}")
    if value < least:
        raise ValueError(f"{what} is a whole number from {least} on, not {value}")
