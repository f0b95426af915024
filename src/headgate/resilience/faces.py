"""Faces: the ways to make a call through a part: a decorator, `call`, `call_async`, blocks.

A part says how it wraps a plain function and an async one, and, if it can guard a block, how a
block is entered and left. The rest is the same for all parts.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any, TypeVar

__all__ = ["Blocks", "Faces", "checked", "is_async", "plain_only"]

Function = TypeVar("Function", bound=Callable[..., Any])
Stack = tuple["Blocks", Any, Any]

SPECIAL = inspect.CO_COROUTINE | inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR
"""The flags of functions whose call does nothing yet."""

STACK: ContextVar[Stack | None] = ContextVar("headgate_blocks", default=None)
"""The blocks that this thread or task is in: (part, what it keeps for the block, those around)."""


def is_async(function: Any) -> bool:
    """Whether a call of a function is to be awaited."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(_called(function))


def checked(function: Any, what: str) -> None:
    """Raise unless a part can protect the calls of a function."""
    if not callable(function) or isinstance(function, type):
        raise TypeError(f"{what} decorates a function, not {function!r}")
    _no_generator(function)


def plain_only(function: Any) -> None:
    """Raise unless the work of a function is done when its call returns."""
    code = getattr(function, "__code__", None)
    if code is not None and not code.co_flags & SPECIAL:  # nearly always, and quick to see
        return
    if is_async(function):
        name = getattr(function, "__qualname__", repr(function))
        raise TypeError(f"{name} is async: it needs `await ...call_async({name}, ...)`")
    _no_generator(function)


def _no_generator(function: Any) -> None:
    called = _called(function)
    if inspect.isgeneratorfunction(called) or inspect.isasyncgenfunction(called):
        name = getattr(function, "__qualname__", repr(function))
        raise TypeError(
            f"{name} is a generator, whose call ends before its work begins; "
            f"protect a function that consumes it"
        )


def _called(function: Any) -> Any:
    while isinstance(function, functools.partial):
        function = function.func
    return function if inspect.isroutine(function) else type(function).__call__


class Faces:
    """How a part is used on functions."""

    def _plain(self, function: Callable[..., Any]) -> Callable[..., Any]:
        raise NotImplementedError

    def _async(self, function: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        raise NotImplementedError

    def call(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Call a plain function through this."""
        plain_only(function)
        return self._plain(function)(*args, **kwargs)

    async def call_async(
        self, function: Callable[..., Awaitable[Any]], /, *args: Any, **kwargs: Any
    ) -> Any:
        """Call an async function through this."""
        return await self._async(function)(*args, **kwargs)

    def __call__(self, function: Function) -> Function:
        """Decorate a function or an async function."""
        if isinstance(function, staticmethod | classmethod):
            return type(function)(self(function.__func__))
        checked(function, type(self).__name__)
        wrapper = self._async(function) if is_async(function) else self._plain(function)
        return functools.wraps(function)(wrapper)  # type: ignore[return-value] # the same signature


class Blocks:
    """How a part is used on blocks: `with part:` and `async with part:`.

    One part may guard many blocks at once, so what belongs to a block is kept in its context.
    """

    def _enter(self) -> Any:
        raise NotImplementedError

    async def _enter_async(self) -> Any:
        raise NotImplementedError

    def _leave(self, kept: Any, error: BaseException | None) -> None:
        raise NotImplementedError

    def __enter__(self) -> None:
        STACK.set((self, self._enter(), STACK.get()))

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._leave(self._pop(), error)

    async def __aenter__(self) -> None:
        STACK.set((self, await self._enter_async(), STACK.get()))

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._leave(self._pop(), error)

    def _pop(self) -> Any:
        """What was kept for this part's innermost block."""
        around: list[Stack] = []
        found = STACK.get()
        while found is not None:
            part, kept, below = found
            if part is self:
                # Blocks of other parts may be left later than ours: exit stacks can do that.
                for other in reversed(around):
                    below = (other[0], other[1], below)
                STACK.set(below)
                return kept
            around.append(found)
            found = below
        raise RuntimeError(
            f"a block of {self!r} was left in another thread or task than it was entered in"
        )
