"""Fallback: what to answer in place of a call that failed or was refused."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from .deadlines import SYSTEM
from .faces import Faces, checked, is_async
from .flows import Call, Flow, drive, drive_async, passing, real
from .kinds import Kinds, test_of
from .notices import Listener, tell

__all__ = ["Fallback"]


class Fallback(Faces):
    """Answers in place of a call that raised.

    answer      a value; or a function, called with the arguments of the call (an async one only
                for async calls)
    on          which exceptions it stands in for: types, or a function of the exception. Refusals
                (BreakerOpen, BulkheadFull) and time-outs are exceptions like any other
    with_error  whether the function gets the exception too, before the arguments
    name, listeners   as for every part

    What is no Exception (a cancellation, an interrupt) always passes.
    """

    def __init__(
        self,
        answer: Any,
        *,
        on: Kinds = Exception,
        with_error: bool = False,
        name: str = "",
        listeners: list[Listener] | None = None,
    ) -> None:
        self._call = answer if callable(answer) else None
        if self._call is not None and not isinstance(answer, type):
            checked(answer, "a fallback")
        elif with_error and self._call is None:
            raise TypeError(f"only a function can take the error, and {answer!r} is none")
        self._value = answer
        self._on = test_of(on, "on")
        self._with_error = with_error
        self.name = name
        self.listeners = [] if listeners is None else listeners
        self.asynchronous = self._call is not None and is_async(answer)
        """Whether the answer has to be awaited."""

    def stands_in(self, error: Exception) -> bool:
        """Whether an exception is one that it answers for."""
        return self._on(error)

    def answer(self, error: Exception, args: Any, kwargs: Any) -> Flow[Any]:
        """The answer in place of a call that raised, or what it raised."""
        error = real(error)
        if not self._on(error):
            raise passing(error)
        if self.listeners:
            tell(self.listeners, "fallback", self.name, SYSTEM.micros(), error=error)
        if self._call is None:
            return self._value
        if self._with_error:
            args = (error, *args)
        if self.asynchronous:
            return (yield Call(self._call, args, kwargs))
        return self._call(*args, **kwargs)

    def check_colour(self, function: Any) -> None:
        """Raise if the answer would have to be awaited where nobody can."""
        if self.asynchronous:
            name = getattr(function, "__qualname__", repr(function))
            raise TypeError(f"{name} is a plain function, and its fallback is async")

    def _plain(self, function: Callable[..., Any]) -> Callable[..., Any]:
        self.check_colour(function)

        def wrapper(*args: Any, **kwargs: Any) -> Any:
            try:
                return function(*args, **kwargs)
            except Exception as error:
                return drive(self.answer(error, args, kwargs))

        return wrapper

    def _async(self, function: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def wrapper(*args: Any, **kwargs: Any) -> Any:
            try:
                return await function(*args, **kwargs)
            except Exception as error:
                return await drive_async(self.answer(error, args, kwargs))

        return wrapper

    def __repr__(self) -> str:
        return f"<Fallback {self.name!r} {self._value!r}>"
