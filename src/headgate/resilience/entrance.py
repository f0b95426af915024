"""Entrance: the faces of whatever lets calls in and hears how they ended.

A limiter or a guard only knows how to let a call in (`_take`, `_take_async`) and what its end
means (`_give`). Holds, blocks, calls and decorators are the same for all.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from .faces import Blocks, Faces
from .notices import Listener

__all__ = ["OUTCOMES", "Entrance", "Hold", "Permit", "Wants"]

OUTCOMES = ("success", "ignored", "dropped")


class Wants(NamedTuple):
    """What is known of a call before it is let in."""

    partition: str = ""
    priority: int = 0
    timeout: float | None = None
    """How long it may wait for its turn, in seconds; None: as its limiter says."""
    deadline: float | None = None
    """In how many seconds it must be done; None: nobody said."""


class Permit:
    """A call that was let in; to be released once it is over, by whichever end."""

    __slots__ = ("_birth", "_open", "_owner", "in_flight", "partition", "started")

    def __init__(
        self, owner: Entrance, partition: str, started: int, in_flight: int, birth: int
    ) -> None:
        self._owner = owner
        self._birth = birth
        self._open = True
        self.partition = partition
        self.started = started
        """When it was let in, in microseconds."""
        self.in_flight = in_flight
        """How many calls were under way then, with this one."""

    def release(self, outcome: str = "success") -> bool:
        """The call is over: a success, ignored (it says nothing about load), or dropped.

        Only the first release counts; False if this was not it.
        """
        if outcome not in OUTCOMES:
            raise ValueError(f"an outcome is one of {', '.join(OUTCOMES)}, not {outcome!r}")
        return self._owner._give(self, outcome)

    def ended(self, error: BaseException | None) -> None:
        """The call is over: by this error, or well."""
        self._owner._give(self, "success" if error is None else self._owner._judge(error))

    def __del__(self) -> None:
        # Perhaps in the midst of something that holds the lock: only a note is left.
        if getattr(self, "_open", False):  # an interrupt may come before it has all its words
            self._owner._lost.append((self._birth, self.partition))


class Entrance(Faces, Blocks):
    """Something that lets calls in."""

    name: str
    listeners: list[Listener]
    """Who is told of what happens."""
    _lost: Any
    """Where permits that nobody released are noted."""

    # -- what an owner does

    def _take(self, wants: Wants) -> Permit:
        raise NotImplementedError

    async def _take_async(self, wants: Wants) -> Permit:
        raise NotImplementedError

    def _give(self, permit: Permit, outcome: str) -> bool:
        raise NotImplementedError

    def _judge(self, error: BaseException) -> str:
        """What an error means: "dropped" or "ignored"."""
        raise NotImplementedError

    def _wants(self) -> Wants:
        return _PLAIN

    # -- faces

    def of(
        self,
        partition: str | None = None,
        priority: int | None = None,
        timeout: float | None = None,
        deadline: float | None = None,
    ) -> Bound:
        """The same entrance for calls of a kind, with all its faces: `@guard.of(priority=-1)`."""
        return Bound(self, _wanted(self._wants(), partition, priority, timeout, deadline))

    def hold(
        self,
        partition: str | None = None,
        priority: int | None = None,
        timeout: float | None = None,
        deadline: float | None = None,
    ) -> Hold:
        """A block for one call, `with` or `async with`; it may begin and end anywhere."""
        return Hold(self, _wanted(self._wants(), partition, priority, timeout, deadline))

    def _plain(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def guarded(*args: Any, **kwargs: Any) -> Any:
            permit = self._take(self._wants())
            try:
                result = function(*args, **kwargs)
            except BaseException as error:
                permit.ended(error)
                raise
            permit.ended(None)
            return result

        return guarded

    def _async(self, function: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def guarded(*args: Any, **kwargs: Any) -> Any:
            permit = await self._take_async(self._wants())
            try:
                result = await function(*args, **kwargs)
            except BaseException as error:
                permit.ended(error)
                raise
            permit.ended(None)
            return result

        return guarded

    def _enter(self) -> Permit:
        return self._take(self._wants())

    async def _enter_async(self) -> Permit:
        return await self._take_async(self._wants())

    def _leave(self, kept: Permit, error: BaseException | None) -> None:
        kept.ended(error)


class Bound(Entrance):
    """An entrance for calls of a kind: those of a partition, a priority, a deadline."""

    def __init__(self, owner: Entrance, wants: Wants) -> None:
        self._owner = owner
        self._kind = wants
        self.name = owner.name

    def _take(self, wants: Wants) -> Permit:
        return self._owner._take(wants)

    async def _take_async(self, wants: Wants) -> Permit:
        return await self._owner._take_async(wants)

    def _wants(self) -> Wants:
        return self._kind

    def __repr__(self) -> str:
        return f"{self._owner!r}.of({self._kind!r})"


class Hold:
    """A block for one call, which keeps its permit by itself."""

    __slots__ = ("_owner", "_permit", "_wants")

    def __init__(self, owner: Entrance, wants: Wants) -> None:
        self._owner = owner
        self._wants = wants
        self._permit: Permit | None = None

    def __enter__(self) -> Permit:
        self._fresh()
        self._permit = self._owner._take(self._wants)
        return self._permit

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if self._permit is not None:
            self._permit.ended(error)

    async def __aenter__(self) -> Permit:
        self._fresh()
        self._permit = await self._owner._take_async(self._wants)
        return self._permit

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if self._permit is not None:
            self._permit.ended(error)

    def _fresh(self) -> None:
        if self._permit is not None:
            raise RuntimeError("a hold is for one call: make another one by `hold()`")


def _wanted(
    wants: Wants,
    partition: str | None,
    priority: int | None,
    timeout: float | None,
    deadline: float | None,
) -> Wants:
    """What is wanted, checked; what is not said stays as it was."""
    for what, value in (("timeout", timeout), ("deadline", deadline)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise TypeError(f"{what} is a number of seconds or None, not {value!r}")
        if value is not None and value != value:
            raise ValueError(f"{what} is a number of seconds, not {value!r}")
    if priority is not None and (isinstance(priority, bool) or not isinstance(priority, int)):
        raise TypeError(f"priority is a whole number, not {priority!r}")
    if partition is not None and not isinstance(partition, str):
        raise TypeError(f"partition is a name, not {partition!r}")
    return Wants(
        wants.partition if partition is None else partition,
        wants.priority if priority is None else priority,
        wants.timeout if timeout is None else timeout,
        wants.deadline if deadline is None else deadline,
    )


_PLAIN = Wants()
