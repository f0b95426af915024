"""Retry: a call that failed is made again, after a pause, if that is safe and can help.

The first attempt is made outside of everything: a call that goes well pays for a counter.
"""

from __future__ import annotations

import random
import socket
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

from ..clock import Clock, ticks_of
from ..errors import LimitExceeded, StoreUnavailable
from .asked import asked_by, seconds_of
from .borrowed import Borrowed, Outcome, check_colour
from .budget import RetryBudget
from .bulkhead import whole
from .deadlines import clock_of, time_left
from .errors import BreakerOpen, BulkheadFull
from .faces import Faces
from .flows import Call, Flow, Pause, drive, drive_async, real
from .kinds import Kinds, test_of
from .notices import Listener, tell

__all__ = ["NOT_CARRIED_OUT", "TRANSIENT", "Outcome", "Retry", "RetryBudget"]

NOT_CARRIED_OUT = (ConnectionRefusedError, socket.gaierror, LimitExceeded)
"""Nothing was done when one of these was raised, so it can be tried again whatever it was."""
TRANSIENT = (ConnectionError, TimeoutError, socket.gaierror, LimitExceeded, StoreUnavailable)
"""What often passes by itself."""
NEVER = (BreakerOpen, BulkheadFull)
"""Trying again at once is what these are there to prevent."""

Asking = float | timedelta | str | bytes | None
"""How long to wait, as somebody says it."""


class Retry(Faces):
    """Makes a call again that has failed, up to `attempts` times in all.

    attempts     how often a call is made at most, the first time included
    on           which exceptions are tried again: types, or a function of the exception
    results      a function of a result: whether it is to be tried again
    safe         whether a call may be made twice: True, or a function of its arguments. Unless it
                 is, only what was surely not carried out is tried again. Naming `on` or `results`
                 says that it is; name `safe` as well to restrict them to some calls
    pause        the pause before the second attempt is up to so many seconds, and each further one
                 up to twice as many: any length from 0 on is as likely (full jitter)
    longest      no pause is longer; if `retry_after` asks for more, the call is given up, and if
                 for less, the pause comes on top of it
    retry_after  a function of the error or result: how long to wait at least (seconds, a
                 timedelta, or the text of a Retry-After header), or None. By default the attribute
                 `retry_after` is honoured, and the header of a response or of the response that
                 an exception has
    budget       a RetryBudget, a share such as 0.1 (of its own), or None for no bound
    by           a retrying object of tenacity or stamina that makes the further attempts instead
    name, clock, listeners   as for every part

    Nothing is tried again when the pause would not end before the deadline of whoever calls.
    """

    def __init__(
        self,
        attempts: int = 3,
        *,
        on: Kinds | None = None,
        results: Callable[[Any], bool] | None = None,
        safe: bool | Callable[..., bool] | None = None,
        pause: float = 0.1,
        longest: float = 30.0,
        retry_after: Callable[[Any], Asking] | None = None,
        budget: RetryBudget | float | None = 0.2,
        by: Callable[..., Any] | None = None,
        name: str = "",
        clock: Clock | None = None,
        jitter: Callable[[], float] = random.random,
        listeners: list[Listener] | None = None,
    ) -> None:
        whole(attempts, "attempts", 1)
        if ticks_of(pause, "pause") < 0 or ticks_of(longest, "longest") < 0:
            raise ValueError(f"pauses are from 0 seconds on, not {pause!r} and {longest!r}")
        if by is not None and not callable(by):
            raise TypeError(
                "by is called with a function: a tenacity.Retrying or AsyncRetrying, or what "
                f"stamina's RetryingCaller(...).on(...) returns, not {type(by).__name__}"
            )
        told = on is not None or results is not None
        self.name = name
        self.attempts = attempts
        self.listeners = [] if listeners is None else listeners
        self.results = results
        self._safe: bool | Callable[..., bool] = (told or by is not None) if safe is None else safe
        self._on = test_of(TRANSIENT if on is None else on, "on")
        self._chosen = on is not None
        self._pause = pause
        self._longest = longest
        self._retry_after = retry_after
        self._clock = clock_of(clock)
        self.budget = (
            RetryBudget(budget, clock=clock) if isinstance(budget, int | float) else budget
        )
        self._by = by
        self._jitter = jitter

    def pause_before(self, attempt: int) -> float:
        """The seconds to pause before an attempt, from the second on."""
        most = min(self._longest, self._pause * 2.0 ** min(attempt - 2, 64))
        return self._jitter() * most

    def wants(self, outcome: Outcome, args: Any, kwargs: Any) -> bool:
        """Whether an outcome is one to try again."""
        safe = self._is_safe(args, kwargs)
        if outcome.error is None:
            return safe and self.results is not None and self.results(outcome.result)
        if self._hopeless(outcome):
            return False
        return self._on(outcome.error) if safe else _not_carried_out(outcome.error)

    def check_colour(self, asynchronous: bool) -> None:
        """Raise if another library's object is for the other kind of functions."""
        if self._by is not None:
            check_colour(self._by, asynchronous)

    # -- the further attempts, as a flow

    def again(
        self, first: Outcome, function: Callable[..., Any], args: Any, kwargs: Any
    ) -> Flow[Any]:
        """What comes after a first attempt that was not plainly good."""
        if self._by is not None:
            return (yield from self._by_another(first, function, args, kwargs))
        outcome, attempt = first, 1
        while attempt < self.attempts and self.wants(outcome, args, kwargs):
            attempt += 1
            wait = self._wait(outcome, attempt)
            if wait is None or not self._allowed():
                break
            self._tell("retry.again", attempt=attempt, pause=wait, error=outcome.error)
            yield Pause(self._clock, wait)
            try:
                outcome = Outcome(None, (yield Call(function, args, kwargs)))
            except Exception as error:
                outcome = Outcome(real(error))
        else:
            if attempt > 1 and self.wants(outcome, args, kwargs):
                self._tell("retry.exhausted", attempts=attempt, error=outcome.error)
        return outcome.give()

    def _wait(self, outcome: Outcome, attempt: int) -> float | None:
        """The seconds to wait before an attempt; None if it is better not made."""
        wait = self.pause_before(attempt)
        came = outcome.result if outcome.error is None else outcome.error
        asked = self._asked(came)
        if asked is not None:
            if asked > self._longest:
                self._tell("retry.too_long", retry_after=asked, error=outcome.error)
                return None
            # Not to the instant, or all who were told the same would come back together.
            wait = asked + wait
        left = time_left()
        if left is not None and wait >= left:
            self._tell("retry.too_late", pause=wait, left=left, error=outcome.error)
            return None
        return wait

    def _asked(self, came: Any) -> float | None:
        now = self._clock.now()
        if self._retry_after is None:
            return asked_by(came, now)
        return seconds_of(self._retry_after(came), now)

    def _allowed(self) -> bool:
        if self.budget is None or self.budget.take():
            return True
        self._tell("retry.no_budget")
        return False

    def _by_another(
        self, first: Outcome, function: Callable[..., Any], args: Any, kwargs: Any
    ) -> Flow[Any]:
        """The further attempts, made by a library."""
        if not self._is_safe(args, kwargs) or self._is_over(first):
            return first.give()
        assert self._by is not None  # or nobody would have come here
        self._tell("retry.again", attempt=2, pause=None, error=first.error)
        return (
            yield Borrowed(self._by, first, function, args, kwargs, self._is_over, self._allowed)
        )

    def _is_over(self, last: Outcome) -> bool:
        """Whether a library need not even pause: no further attempt could be made."""
        if self._hopeless(last):
            return True
        left = time_left()
        if left is not None and left <= 0:
            self._tell("retry.too_late", pause=None, left=left, error=last.error)
            return True
        if self.budget is not None and self.budget.left < 1:
            self._tell("retry.no_budget")
            return True
        return False

    def _hopeless(self, outcome: Outcome) -> bool:
        """Whether an outcome is one that nobody tries again unless it was named."""
        return not self._chosen and isinstance(outcome.error, NEVER)

    def _is_safe(self, args: Any, kwargs: Any) -> bool:
        return bool(self._safe(*args, **kwargs) if callable(self._safe) else self._safe)

    def _tell(self, kind: str, **values: Any) -> None:
        if self.listeners:
            tell(self.listeners, kind, self.name, self._clock.micros(), **values)

    # -- faces

    def _plain(self, function: Callable[..., Any]) -> Callable[..., Any]:
        count = _nothing if self.budget is None else self.budget.call
        results = self.results
        self.check_colour(asynchronous=False)

        def wrapper(*args: Any, **kwargs: Any) -> Any:
            count()
            try:
                result = function(*args, **kwargs)
                if results is None or not results(result):
                    return result
                first = Outcome(None, result)
            except Exception as error:
                first = Outcome(error)
            return drive(self.again(first, function, args, kwargs))

        return wrapper

    def _async(self, function: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        count = _nothing if self.budget is None else self.budget.call
        results = self.results
        self.check_colour(asynchronous=True)

        async def wrapper(*args: Any, **kwargs: Any) -> Any:
            count()
            try:
                result = await function(*args, **kwargs)
                if results is None or not results(result):
                    return result
                first = Outcome(None, result)
            except Exception as error:
                first = Outcome(error)
            return await drive_async(self.again(first, function, args, kwargs))

        return wrapper

    def __repr__(self) -> str:
        return f"<Retry {self.name!r} {self.attempts} attempts>"


def _not_carried_out(error: BaseException) -> bool:
    # A store's error says whether its question was sent; others may do the same.
    return isinstance(error, NOT_CARRIED_OUT) or getattr(error, "sent", True) is False


def _nothing() -> None:
    pass
