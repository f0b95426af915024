"""Faces: the ways to make a call through a breaker: enter, call, passed or failed."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import Any

from .core import Core
from .outcomes import FAILURE, IGNORED, SUCCESS

__all__ = ["Faces", "Permit"]

STACK: ContextVar[Any] = ContextVar("headgate_breakers", default=None)
"""The permits of `with` blocks that this thread or task is in: (permit, those around it)."""

BEGUN = frozenset({AsyncGeneratorType, CoroutineType, GeneratorType})
"""What a call returns whose work has not even begun."""
OUTCOMES = (SUCCESS, FAILURE, IGNORED)


class Permit:
    """One call that was let in; it is told once how it went, and a second word changes nothing."""

    __slots__ = ("_breaker", "_token")

    def __init__(self, breaker: Faces, token: Any) -> None:
        self._breaker = breaker
        self._token = token

    def succeed(self) -> None:
        """The call went well."""
        self.end(SUCCESS)

    def fail(self) -> None:
        """The call has failed, whatever it returned or raised."""
        self.end(FAILURE)

    def ignore(self) -> None:
        """The call says nothing about what was called."""
        self.end(IGNORED)

    def end(self, outcome: int) -> None:
        """Tell the breaker, unless it was told already."""
        token, self._token = self._token, None
        if token is not None:
            self._breaker.told(token, outcome)

    def leave(self, error: BaseException | None) -> None:
        """The block has ended, with an exception or without one."""
        token, self._token = self._token, None
        if token is None:
            return
        if error is None:
            self._breaker.passed(token, None)
        else:
            self._breaker.failed(token, error)

    def __enter__(self) -> Permit:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.leave(error)

    async def __aenter__(self) -> Permit:
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.leave(error)


class Faces(Core):
    """How a breaker is used."""

    __slots__ = ()

    def call(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Call a function through the breaker; BreakerOpen if it may not be called."""
        token = self.enter()
        try:
            result = function(*args, **kwargs)
        except BaseException as error:
            self.failed(token, error)
            raise
        if type(result) in BEGUN:
            self._refuse_undone(function, token, result)
        self.passed(token, result)
        return result

    def _refuse_undone(self, function: Any, token: Any, result: Any) -> None:
        """Raise if a call has returned what is yet to be run, or it would count as done."""
        called = _called(function)
        if type(result) is CoroutineType:
            result.close()
            problem = "is async: await call_async(...) instead"
        elif inspect.isgeneratorfunction(called) or inspect.isasyncgenfunction(called):
            problem = "is a generator: write `with breaker:` inside it"
        else:
            return  # a result like any other
        self.told(token, IGNORED)
        name = getattr(function, "__qualname__", repr(function))
        raise TypeError(f"{name} {problem}; its call ends before its work begins")

    async def call_async(
        self, function: Callable[..., Awaitable[Any]], /, *args: Any, **kwargs: Any
    ) -> Any:
        """Call an async function through the breaker; BreakerOpen if it may not be called."""
        token = self.enter()
        try:
            result = await function(*args, **kwargs)
        except BaseException as error:
            self.failed(token, error)
            raise
        self.passed(token, result)
        return result

    def permit(self) -> Permit:
        """Enter for one call whose outcome is told by hand; BreakerOpen if it may not be made."""
        return Permit(self, self.enter())

    def admit(self) -> Any:
        """A token for one call, for `record`; BreakerOpen if it may not be made."""
        return self.enter()

    def record(self, token: Any, outcome: int = SUCCESS, seconds: float | None = None) -> None:
        """How the call of a token went: SUCCESS, FAILURE or IGNORED. Once for each token.

        seconds   how long it took, where that is not the time since `admit`
        """
        if outcome not in OUTCOMES:
            raise ValueError(f"an outcome is SUCCESS, FAILURE or IGNORED, not {outcome!r}")
        self.told(token, outcome, seconds)

    def __enter__(self) -> Permit:
        permit = Permit(self, self.enter())
        STACK.set((permit, STACK.get()))
        return permit

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._pop().leave(error)

    async def __aenter__(self) -> Permit:
        return self.__enter__()

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._pop().leave(error)

    def _pop(self) -> Permit:
        """The innermost permit of this breaker, taken off the stack."""
        others: list[Permit] = []
        below = STACK.get()
        while below is not None:
            permit: Permit = below[0]
            below = below[1]
            if permit._breaker is self:
                # Blocks of other breakers may be left later than ours: generators do that.
                for other in reversed(others):
                    below = other, below
                STACK.set(below)
                return permit
            others.append(permit)
        raise RuntimeError(
            "a breaker's block was left in another thread or task than it was entered in; "
            "use `with breaker.permit():` there"
        )

    def __call__(self, function: Any) -> Any:
        """Decorate a function or an async function."""
        if isinstance(function, staticmethod | classmethod):
            return type(function)(self(function.__func__))
        if not callable(function) or isinstance(function, type):
            raise TypeError(f"a breaker decorates a function, not {function!r}")
        called = _called(function)
        if inspect.isgeneratorfunction(called) or inspect.isasyncgenfunction(called):
            name = getattr(function, "__qualname__", repr(function))
            raise TypeError(
                f"{name} is a generator, whose call ends before its work begins; "
                "write `with breaker:` inside it"
            )
        # An object may call itself a coroutine function, as a mock does.
        asynchronous = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(called)
        wrapper = self._async_wrapper(function) if asynchronous else self._wrapper(function)
        return functools.wraps(function)(wrapper)

    def _wrapper(self, function: Callable[..., Any]) -> Callable[..., Any]:
        # What `call` does, with one call fewer on the way.
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            token = self.enter()
            try:
                result = function(*args, **kwargs)
            except BaseException as error:
                self.failed(token, error)
                raise
            self.passed(token, result)
            return result

        return wrapper

    def _async_wrapper(self, function: Callable[..., Any]) -> Callable[..., Any]:
        async def wrapper(*args: Any, **kwargs: Any) -> Any:
            token = self.enter()
            try:
                result = await function(*args, **kwargs)
            except BaseException as error:
                self.failed(token, error)
                raise
            self.passed(token, result)
            return result

        return wrapper


def _called(function: Any) -> Any:
    """What is run when something is called."""
    while isinstance(function, functools.partial):
        function = function.func
    return function if inspect.isroutine(function) else type(function).__call__
