"""Flows: what the front door does, written once, and the two drivers that carry it out.

A flow is a generator. It yields steps, each of which asks a store for one thing, is sent the
answer, and returns what the caller wants. `run` drives it in a thread, `run_async` in a task;
what is asked, in which order, and what follows from the answers stands in the flow alone.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias, TypeVar

from .decision import Ask
from .keys import Key
from .limit import Limit

if TYPE_CHECKING:
    from .stores.base import Store

__all__ = [
    "Assign", "Assigned", "Close", "Decide", "DecideMany", "Flow", "Step", "run", "run_async",
]  # fmt: skip

Result = TypeVar("Result")


class Step(Protocol):
    """Something a flow wants done."""

    def ask(self, store: Any) -> Any:
        """Do it, blocking."""
        ...

    def ask_async(self, store: Any) -> Any:
        """Do it; to be awaited."""
        ...


Flow: TypeAlias = Generator[Step, Any, Result]


class Decide(NamedTuple):
    """Ask for decisions."""

    asks: Sequence[Ask]

    def ask(self, store: Any) -> Any:
        return store.decide(self.asks)

    def ask_async(self, store: Any) -> Any:
        return store.decide_async(self.asks)


class DecideMany(NamedTuple):
    """Ask for the decisions of groups that are independent of each other."""

    groups: Sequence[Sequence[Ask]]

    def ask(self, store: Any) -> Any:
        return store.decide_many(self.groups)

    def ask_async(self, store: Any) -> Any:
        return store.decide_many_async(self.groups)


class Assign(NamedTuple):
    """Give a key a limit of its own, or take it away."""

    space: str
    limit_id: str
    key: Key
    limit: Limit | None

    def ask(self, store: Any) -> Any:
        return store.assign(*self)

    def ask_async(self, store: Any) -> Any:
        return store.assign_async(*self)


class Assigned(NamedTuple):
    """Ask for a key's own limit."""

    space: str
    limit_id: str
    key: Key

    def ask(self, store: Any) -> Any:
        return store.assigned(*self)

    def ask_async(self, store: Any) -> Any:
        return store.assigned_async(*self)


class Close(NamedTuple):
    """Let the store go."""

    def ask(self, store: Any) -> Any:
        return store.close()

    def ask_async(self, store: Any) -> Any:
        return store.close_async()


def run(flow: Flow[Result], store: Store) -> Result:
    """Carry out a flow in this thread."""
    try:
        step = next(flow)
        while True:
            try:
                answer = step.ask(store)
            except BaseException as error:
                step = flow.throw(error)
            else:
                step = flow.send(answer)
    except StopIteration as end:
        result: Result = end.value
        return result


async def run_async(flow: Flow[Result], store: Store) -> Result:
    """Carry out a flow in this task, on a store that blocks."""
    try:
        step = next(flow)
        while True:
            try:
                answer = await step.ask_async(store)
            except BaseException as error:
                step = flow.throw(error)
            else:
                step = flow.send(answer)
    except StopIteration as end:
        result: Result = end.value
        return result
