"""Consumers: the messages of any iterator, each handed out only when a limit allows it.

    for order in paced(orders, "50/second"): ...
    async for order in paced(orders, "5 concurrent", store="redis://..."): ...

What happens stands in `pacing`, once; `Paced` does it in a thread, `AsyncPaced` in a task.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Literal, TypedDict, TypeVar, overload

from ..flows import run, run_async
from ..gate import AsyncGate, Gate
from ..limit import Limit
from ..limiter import AsyncLimiter, Limiter
from .pacing import NOTHING, AsyncHeld, Held, Pacing, outcome_of

if TYPE_CHECKING:
    from typing import Self, Unpack

__all__ = ["AsyncHeld", "AsyncPaced", "Held", "Options", "Paced", "paced"]

Message = TypeVar("Message")
Item = TypeVar("Item")
Front = str | Limit | Limiter | AsyncLimiter | Gate | AsyncGate


class Options(TypedDict, total=False):
    """What `paced` takes beside messages and limits; see there."""

    key: Any
    cost: Any
    facts: Any
    wait: float | None
    priority: int
    ahead: bool | None
    store: Any
    name: str


@overload
def paced(
    messages: AsyncIterable[Message],
    *limits: Front,
    until_done: Literal[False] = False,
    **options: Unpack[Options],
) -> AsyncPaced[Message]: ...
@overload
def paced(
    messages: AsyncIterable[Message],
    *limits: Front,
    until_done: Literal[True],
    **options: Unpack[Options],
) -> AsyncPaced[AsyncHeld[Message]]: ...
@overload
def paced(
    messages: Iterable[Message],
    *limits: Front,
    until_done: Literal[False] = False,
    **options: Unpack[Options],
) -> Paced[Message]: ...
@overload
def paced(
    messages: Iterable[Message],
    *limits: Front,
    until_done: Literal[True],
    **options: Unpack[Options],
) -> Paced[Held[Message]]: ...
def paced(messages: Any, *limits: Front, until_done: bool = False, **options: Any) -> Any:
    """The messages of an iterator, each handed out when a limit allows it.

    limits      limits as text, or one limiter, or one gate
    key         whom to count, for limits: a key, or a function of the message
    cost        what a message costs, for limits: a number, or a function of the message
    facts       what a gate is asked about: a resource's name, Facts, or a function of the
                message that returns one of them
    wait        seconds that a message may wait (None: as long as it takes); then LimitExceeded
                is raised, and the same message is tried again when the next is asked for
    ahead       whether a message is fetched before its limit is asked. Otherwise it stays with
                the source until then; that is so unless key, cost or facts are functions of it
    until_done  hand out `Held` messages, whose permits are held until `done()`; otherwise they
                are held until the next message is asked for
    store       where limits as text count: a URL, such as redis://..., for several processes
    name        the namespace of limits as text: consumers that say the same count together

    `close()`, or leaving it as a `with` block, gives everything back and closes the source.
    """
    front: Any = limits[0] if limits else None
    own = isinstance(front, str | Limit)
    coloured = hasattr(messages, "__aiter__") if own else getattr(front, "coloured", None)
    if coloured is None or (len(limits) > 1 and not own):
        raise TypeError("give limits as text, or one limiter, or one gate")
    if not hasattr(messages, "__aiter__" if coloured else "__iter__"):
        colour = "an async iterable" if coloured else "a plain iterable"
        raise TypeError(f"{type(front).__name__} paces {colour}, not {type(messages).__name__}")
    place = {word: options.pop(word) for word in ("store", "name") if word in options}
    if own:
        made: Any = AsyncLimiter if coloured else Limiter
        front = made(*limits, **{"name": "consumer", **place})
    elif place:
        raise TypeError(f"{', '.join(place)}: what was given has its own")
    kind: Any = AsyncPaced if coloured else Paced
    return kind(messages, front, own, until_done, **options)


class Paced(Pacing[Item], Iterator[Item]):
    """Messages for a thread."""

    _held = Held

    def __next__(self) -> Item:
        item = run(self.advancing(), NOTHING)
        if item is NOTHING:
            raise StopIteration
        found: Item = item
        return found

    def done(self, outcome: str = "success") -> None:
        """End the message that was handed out last before the next one is asked for."""
        run(self.ending(outcome), NOTHING)

    def close(self) -> None:
        """Give everything back, and close the source."""
        run(self.closing(), NOTHING)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        try:
            self.done(outcome_of(kind))
        finally:
            self.close()


class AsyncPaced(Pacing[Item], AsyncIterator[Item]):
    """Messages for a task."""

    _held = AsyncHeld

    async def __anext__(self) -> Item:
        item = await run_async(self.advancing(), NOTHING)
        if item is NOTHING:
            raise StopAsyncIteration
        found: Item = item
        return found

    async def done(self, outcome: str = "success") -> None:
        """End the message that was handed out last before the next one is asked for."""
        await run_async(self.ending(outcome), NOTHING)

    async def aclose(self) -> None:
        """Give everything back, and close the source."""
        await run_async(self.closing(), NOTHING)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *error: object) -> None:
        try:
            await self.done(outcome_of(kind))
        finally:
            await self.aclose()
