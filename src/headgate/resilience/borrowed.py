"""Borrowed: further attempts that a retrying object of tenacity or stamina makes for us.

The first attempt has been made already. It is played back to the library as the library's own
first one, so its attempts are counted and its pauses made as if it had made all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

from .faces import is_async
from .flows import passing

__all__ = ["Borrowed", "Outcome", "check_colour"]


class Outcome(NamedTuple):
    """What came of an attempt."""

    error: Exception | None
    result: Any = None

    def give(self) -> Any:
        """Raise it or return it."""
        if self.error is not None:
            raise passing(self.error)
        return self.result


def check_colour(by: Any, asynchronous: bool) -> None:
    """Raise if a library's object is for the other kind of functions."""
    if is_async(by) is not asynchronous:
        wanted = "AsyncRetrying or AsyncRetryingCaller" if asynchronous else "Retrying"
        kind = "an async" if asynchronous else "a plain"
        raise TypeError(f"{type(by).__name__} cannot retry {kind} function; give {wanted}")


class Spent(BaseException):
    """No further attempt may be made; no Exception, so that no library tries it again."""


class Borrowed:
    """A step: what a library makes of a first outcome."""

    def __init__(
        self,
        by: Callable[..., Any],
        first: Outcome,
        again: Callable[..., Any],
        args: Any,
        kwargs: Any,
        over: Callable[[Outcome], bool],
        allowed: Callable[[], bool],
    ) -> None:
        self._by = by
        self._last = first
        self._new = True
        self._again = again
        self._args = args
        self._kwargs = kwargs
        self._over = over
        """Whether an outcome is the last one; asked before the library pauses."""
        self._allowed = allowed
        """Whether an attempt may be made; asked when it is."""

    def plain(self) -> Any:
        with suppress(Spent):
            return self._by(self._attempt)
        return self._last.give()

    async def awaited(self) -> Any:
        with suppress(Spent):
            return await self._by(self._attempt_async)
        return self._last.give()

    def _attempt(self) -> Any:
        if self._played():
            return self._last.give()
        try:
            return self._kept(self._again(*self._args, **self._kwargs))
        except Exception as error:
            self._failed(error)
            raise

    async def _attempt_async(self) -> Any:
        if self._played():
            return self._last.give()
        try:
            return self._kept(await self._again(*self._args, **self._kwargs))
        except Exception as error:
            self._failed(error)
            raise

    def _played(self) -> bool:
        """Whether the first outcome is to be played back; Spent if there may be no other."""
        new, self._new = self._new, False
        if not new and not self._allowed():
            raise Spent
        return new

    def _failed(self, error: Exception) -> None:
        self._last = Outcome(error)
        if self._over(self._last):
            raise Spent

    def _kept(self, result: Any) -> Any:
        self._last = Outcome(None, result)
        return result
