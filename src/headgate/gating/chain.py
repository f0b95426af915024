"""Chain: what a call came in through, and who called; it holds for all that is entered inside.

Blocks of the gate note themselves. So do adapters, whose calls are the outermost, but only once a
gate of this process has rules that ask for it. What is noted ends with the call: a thread goes on
to the next one, and so may a task.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

if TYPE_CHECKING:
    from ..facts import Facts

__all__ = ["Around", "Inside", "around", "each", "each_soon", "entered", "expect", "inside"]

Result = TypeVar("Result")
Block = TypeVar("Block")


class Around(NamedTuple):
    """What was entered before: the resources, the outermost first, and who called."""

    chain: tuple[str, ...] = ()
    origin: str = ""


around: ContextVar[Around] = ContextVar("headgate_entries", default=Around())  # noqa: B039 # never changed

wanted = False
"""Whether adapters are to note their calls."""


def expect(rules: Any) -> None:
    """Have adapters note their calls, if rules ask what a call came in through."""
    global wanted
    if not wanted:
        every = (*getattr(rules, "rules", ()), *getattr(rules, "policies", ()))
        wanted = any(map(_asks, every))


def _asks(rule: Any) -> bool:
    match = getattr(rule, "match", None)
    if match is None:
        return False
    # Who called holds for what is entered inside, which is what rules of resources are for.
    origin = match.origins or any(part.source == "origin" for part in getattr(rule, "key", ()))
    return bool(match.through or (match.resources and origin))


def entered(facts: Facts) -> Around | None:
    """What is around everything inside a call that an adapter lets in; None if nobody asks."""
    if not wanted:
        return None
    outside = around.get()
    chain = (*outside.chain, facts.route or facts.path)
    return Around(chain, facts.origin or outside.origin)


class Inside:
    """The time inside a call, as a block; with None nothing is noted."""

    __slots__ = ("_around", "_before")

    def __init__(self, noted: Around | None) -> None:
        self._around = noted

    def __enter__(self) -> None:
        if self._around is not None:
            self._before = around.get()
            around.set(self._around)

    def __exit__(self, *_: object) -> None:
        if self._around is not None:
            around.set(self._before)


async def inside(facts: Facts, call: Callable[..., Awaitable[Result]], *arguments: Any) -> Result:
    """What a call of an adapter answers."""
    with Inside(entered(facts)):
        return await call(*arguments)


def each(noted: Around | None, blocks: Iterable[Block]) -> Iterator[Block]:
    """Blocks that are made inside a call; who takes them, and whoever forgets to, is not."""
    rest = iter(blocks)
    while True:
        with Inside(noted):
            try:
                block = next(rest)
            except StopIteration:
                return
        yield block


async def each_soon(noted: Around | None, blocks: AsyncIterable[Block]) -> AsyncIterator[Block]:
    """The same, awaited."""
    rest = aiter(blocks)
    while True:
        with Inside(noted):
            try:
                block = await anext(rest)
            except StopAsyncIteration:
                return
        yield block
