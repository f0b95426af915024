"""Flows: what happens around a call, written once, for threads and for tasks.

A flow is a generator that yields steps and is sent what came of them. Two drivers take the steps:
one blocks, one awaits.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import Any, Protocol, TypeVar

from ..clock import Clock
from .waiters import TaskWaiter, ThreadWaiter, pause, pause_async

__all__ = [
    "Block",
    "Call",
    "Ended",
    "Flow",
    "Pause",
    "Step",
    "drive",
    "drive_async",
    "passing",
    "real",
]

Result = TypeVar("Result")


class Step(Protocol):
    """Something a flow has done for it."""

    def plain(self) -> Any:
        """Do it, in this thread."""
        ...

    async def awaited(self) -> Any:
        """Do it, in this task."""
        ...


Flow = Generator[Step, Any, Result]


class Ended(Exception):
    """Carries a StopIteration, which a call may raise and no generator can let pass."""

    def __init__(self, error: StopIteration) -> None:
        super().__init__(error)
        self.error = error


def passing(error: Exception) -> Exception:
    """An exception as a flow may raise it."""
    return Ended(error) if isinstance(error, StopIteration) else error


def real(error: Exception) -> Exception:
    """An exception as a call raised it."""
    return error.error if isinstance(error, Ended) else error


class Call:
    """Calls a function; in a task its result is awaited."""

    __slots__ = ("_args", "_function", "_kwargs")

    def __init__(
        self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> None:
        self._function = function
        self._args = args
        self._kwargs = kwargs

    def plain(self) -> Any:
        return self._function(*self._args, **self._kwargs)

    async def awaited(self) -> Any:
        return await self._function(*self._args, **self._kwargs)


class Pause:
    """Lets time pass."""

    __slots__ = ("_clock", "_seconds")

    def __init__(self, clock: Clock, seconds: float) -> None:
        self._clock = clock
        self._seconds = seconds

    def plain(self) -> None:
        pause(self._clock, self._seconds)

    async def awaited(self) -> None:
        await pause_async(self._clock, self._seconds)


class Block:
    """Joins a line as a waiter, and waits for an answer or an instant."""

    __slots__ = ("_clock", "_join", "_until", "waiter")

    def __init__(self, join: Callable[[Any], bool], clock: Clock, until: int | None = None) -> None:
        self._join = join
        """Puts a waiter into the line; False if there is nothing to wait for."""
        self._clock = clock
        self._until = until
        self.waiter: ThreadWaiter | TaskWaiter | None = None

    def plain(self) -> None:
        self.waiter = waiter = ThreadWaiter()
        if self._join(waiter):
            waiter.block(self._clock, self._until)

    async def awaited(self) -> None:
        import asyncio

        self.waiter = waiter = TaskWaiter(asyncio.get_running_loop())
        if self._join(waiter):
            await waiter.block(self._clock, self._until)


def drive(flow: Flow[Result]) -> Result:
    """Take the steps of a flow in this thread."""
    came: Any = None
    thrown: BaseException | None = None
    while True:
        try:
            step = flow.send(came) if thrown is None else flow.throw(thrown)
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return] # what the flow returned
        except Ended as ended:
            raise ended.error from ended.error.__cause__
        try:
            came, thrown = step.plain(), None
        except Exception as error:
            thrown = passing(error)
        except BaseException as error:
            thrown = error


async def drive_async(flow: Flow[Result]) -> Result:
    """Take the steps of a flow in this task."""
    came: Any = None
    thrown: BaseException | None = None
    while True:
        try:
            step = flow.send(came) if thrown is None else flow.throw(thrown)
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return] # what the flow returned
        try:
            came, thrown = await step.awaited(), None
        except BaseException as error:
            thrown = error
