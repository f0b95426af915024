"""Policy: the parts around one call, in a fixed order.

    fallback( last_good( collapse( retry( breaker( bulkhead( time limit( call )))))))

Whoever stands further out sees what those inside have made of the call. The breaker is asked for
every attempt of a retry, and hears of every time-out. A call that the bulkhead refuses says
nothing about what is called, so the breaker ignores it. Calls that are collapsed are retried
once for all. The last good value stands in before the fallback does.

As long as all goes well a call runs through one function with the inner parts in line (see
wrapping.py); what comes after a failure is a flow, the same for threads and tasks.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from contextvars import Token
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from ..clock import MICROSECONDS, Clock
from .bulkhead import Bulkhead
from .collapse import Collapse
from .deadlines import clock_of
from .errors import BulkheadFull, TimeLimitExceeded
from .faces import Blocks, Faces, plain_only
from .fallback import Fallback
from .flows import Flow, drive, drive_async
from .last_good import LastGood
from .notices import Listener
from .notices import tell as tell_all
from .order import Order
from .pools import Pool
from .retry import Retry
from .timing import TimeLimit
from .wrapping import wrapped

if TYPE_CHECKING:
    from .rooms import Room

__all__ = ["Breakable", "Policy"]

Kept = tuple[Any, Any, Any, int]
"""What a block has: the breaker's token, the room, the lease, when it began."""
NONE: Any = object()
"""No fallback: None is a good answer."""


@runtime_checkable
class Breakable(Protocol):
    """What a policy needs of a circuit breaker."""

    def enter(self) -> Any: ...
    def passed(self, token: Any, result: Any) -> None: ...
    def failed(self, token: Any, error: BaseException) -> None: ...


def _part(what: str, kind: Any, given: Any, options: dict[str, Any]) -> Any:
    """A part: what was given, or made of the number that stands for it."""
    if isinstance(given, int | float):
        return kind(given, **options)
    if given is not None and not isinstance(given, kind):
        raise TypeError(f"{what} is a {kind.__name__} or a number, not {given!r}")
    return given


class Policy(Order, Faces, Blocks):
    """What protects the calls of one dependency: `@policy`, `policy.call(f, ...)`, `with policy:`.

    name        what is protected; errors and events say it
    fallback    a Fallback, or a value, or a function of the call's arguments
    last_good   a LastGood, or how many seconds old a result may be
    collapse    a Collapse, or True
    retry       a Retry, or how many attempts there are
    breaker     a Breaker
    bulkhead    a Bulkhead, or how many calls at once; or a Pool, for plain functions
    time_limit  a TimeLimit, or a number of seconds; plain calls are interrupted only in a Pool
    listeners   called with each Notice of any part
    clock       for the parts that are made here

    Every part may be left out. A part may serve several policies: a bulkhead that two share holds
    the calls of both. Blocks have the three inner parts only, as a block cannot be made again or
    answered for.
    """

    def __init__(
        self,
        name: str = "",
        *,
        fallback: Any = NONE,
        last_good: LastGood | float | None = None,
        collapse: Collapse | bool | None = None,
        retry: Retry | int | None = None,
        breaker: Breakable | None = None,
        bulkhead: Bulkhead | Pool | int | None = None,
        time_limit: TimeLimit | float | None = None,
        listeners: Iterable[Listener] = (),
        clock: Clock | None = None,
    ) -> None:
        self.name = name
        self.listeners = list(listeners)
        options = {"name": name, "clock": clock}
        self.fallback = None
        if fallback is not NONE:
            ready = isinstance(fallback, Fallback)
            self.fallback = fallback if ready else Fallback(fallback, name=name)
        self.last_good = _part("last_good", LastGood, last_good, options)
        self.collapse = Collapse(name=name, clock=clock) if collapse is True else collapse or None
        if not isinstance(self.collapse, Collapse | None):
            raise TypeError(f"collapse is a Collapse, True or False, not {collapse!r}")
        self.retry = _part("retry", Retry, retry, options)
        if breaker is not None and not isinstance(breaker, Breakable):
            raise TypeError(f"breaker is a Breaker, not {type(breaker).__name__}")
        self.breaker = breaker
        self.pool = bulkhead if isinstance(bulkhead, Pool) else None
        self._pooled = self.pool is not None
        self.bulkhead = _part("bulkhead", Bulkhead, None if self.pool else bulkhead, options)
        self.time_limit = _part("time_limit", TimeLimit, time_limit, options)
        if self.time_limit is not None and self.time_limit.pool is not None:
            self.pool = self.pool or self.time_limit.pool
        self._clock = clock_of(clock)
        self._call: Any = None
        self._call_async: Any = None
        self.has_outer = any(
            part is not None for part in (self.fallback, self.last_good, self.collapse, self.retry)
        )
        """Whether there is more than the inner parts."""
        for part in (self.fallback, self.last_good, self.collapse, self.retry, breaker):
            theirs = getattr(part, "listeners", None)
            if theirs is not None:
                theirs.extend(each for each in self.listeners if each not in theirs)

    def now(self) -> int:
        """Microseconds since the epoch."""
        return self._clock.micros()

    # -- the inner parts when something went wrong

    def broken(
        self, token: Any, room: Room | None, lease: Any, error: BaseException, start: int
    ) -> BaseException:
        """Give everything back after an exception; the exception to raise."""
        try:
            if lease is not None:
                limit = self.time_limit
                assert limit is not None  # it gave the lease
                if isinstance(lease, Token):
                    limit.leave(lease)
                elif (late := limit.broken(lease, error)) is not None:
                    late.__cause__ = error
                    error = late
        finally:
            try:
                if room is not None and self.bulkhead is not None:
                    self.bulkhead.leave(room)
            finally:
                if token is not None and self.breaker is not None:
                    self.breaker.failed(token, error)
        if self.listeners:
            kind = "call.failed"
            if isinstance(error, BulkheadFull):
                kind = "bulkhead.full"
            elif isinstance(error, TimeLimitExceeded):
                kind = "time_limit.exceeded"
            elif not isinstance(error, Exception):
                kind = "call.cancelled"
            self.tell(kind, start, error=error)
        return error

    def tell(self, kind: str, start: int, **values: Any) -> None:
        """Tell those who listen."""
        now = self._clock.micros()
        if start:
            values["duration"] = (now - start) / MICROSECONDS
        tell_all(self.listeners, kind, self.name, now, **values)

    # -- faces

    def _plain(self, function: Callable[..., Any] | None) -> Callable[..., Any]:
        if self.fallback is not None:
            self.fallback.check_colour(function or self.call)
        if self.retry is not None:
            self.retry.check_colour(asynchronous=False)
        made: Callable[..., Any] = wrapped(self, function, asynchronous=False)
        return made

    def _async(
        self, function: Callable[..., Awaitable[Any]] | None
    ) -> Callable[..., Awaitable[Any]]:
        if self._pooled:
            name = getattr(function or self.call_async, "__qualname__", repr(function))
            raise TypeError(
                f"{name} is async and needs no thread; give the policy {self.name!r} a Bulkhead "
                "in place of its Pool"
            )
        if self.retry is not None:
            self.retry.check_colour(asynchronous=True)
        made: Callable[..., Awaitable[Any]] = wrapped(self, function, asynchronous=True)
        return made

    def call(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Call a plain function through all parts."""
        plain_only(function)
        if self._call is None:
            self._call = self._plain(None)
        return self._call(function, *args, **kwargs)

    async def call_async(
        self, function: Callable[..., Awaitable[Any]], /, *args: Any, **kwargs: Any
    ) -> Any:
        """Call an async function through all parts."""
        if self._call_async is None:
            self._call_async = self._async(None)
        return await self._call_async(function, *args, **kwargs)

    def _enter(self) -> Any:
        return drive(self._begin(lambda limit: limit.enter()))

    async def _enter_async(self) -> Any:
        return await drive_async(self._begin(lambda limit: limit.begin()))

    def _begin(self, begin: Callable[[TimeLimit], Any]) -> Flow[Kept]:
        """Enter a block."""
        start = self._for_blocks()
        token = room = lease = None
        try:
            if self.breaker is not None:
                token = self.breaker.enter()
            if self.bulkhead is not None:
                near = self.bulkhead.room
                if not near.take():
                    yield from self.bulkhead.line_up(near)
                room = near
            if self.time_limit is not None:
                lease = begin(self.time_limit)
        except BaseException as error:
            self.broken(token, room, lease, error, start)
            raise
        return token, room, lease, start

    def _leave(self, kept: Kept, error: BaseException | None) -> None:
        token, room, lease, start = kept
        if error is not None:
            raised = self.broken(token, room, lease, error, start)
            if raised is not error:
                raise raised
            return
        if self.time_limit is not None:
            if isinstance(lease, Token):
                self.time_limit.leave(lease)
            else:
                self.time_limit.end(lease)
        if self.bulkhead is not None:
            self.bulkhead.leave(room)
        if self.breaker is not None:
            self.breaker.passed(token, None)
        if start:
            self.tell("call.passed", start)

    def _for_blocks(self) -> int:
        """When a block begins, for those who listen; an error if it cannot be guarded."""
        outer = {
            "fallback": self.fallback, "last_good": self.last_good, "collapse": self.collapse,
            "retry": self.retry, "pool": self.pool,
        }  # fmt: skip
        others = [word for word, part in outer.items() if part is not None]
        if others:
            raise TypeError(
                f"the policy {self.name!r} has {' and '.join(others)}, and a block cannot be made "
                "again or elsewhere, or answered for; decorate a function, or use policy.call"
            )
        return self._clock.micros() if self.listeners else 0

    def __repr__(self) -> str:
        words = ("fallback", "last_good", "collapse", "retry", "breaker", "bulkhead", "pool",
                 "time_limit")  # fmt: skip
        parts = [word for word in words if getattr(self, word) is not None]
        return f"<Policy {self.name!r}: {', '.join(parts) or 'nothing'}>"
