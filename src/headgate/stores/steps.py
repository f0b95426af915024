"""Steps: what a store in front of another one does, written once for threads and for tasks.

A flow is a generator. It yields steps, is sent what they return (or thrown what they raise), and
returns its result; `run` and `run_async` carry it out.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, NamedTuple, TypeAlias, TypeVar

__all__ = ["Flow", "Step", "Verb", "both", "run", "run_async"]

Result = TypeVar("Result")


class Verb(NamedTuple):
    """A call in its two colours; `awaited` is None where there is nothing to await."""

    plain: Callable[..., Any]
    awaited: Callable[..., Any] | None = None


class Step(NamedTuple):
    """One call of a flow."""

    verb: Verb
    arguments: tuple[Any, ...]
    options: dict[str, Any] = {}  # noqa: RUF012 # never changed


Flow: TypeAlias = Generator[Step, Any, Result]


def both(store: Any, name: str) -> Verb:
    """A store's call by its name, and the awaited one beside it."""
    return Verb(getattr(store, name), getattr(store, f"{name}_async", None))


def run(flow: Flow[Result]) -> Result:
    """Carry out a flow in this thread."""
    try:
        step = next(flow)
        while True:
            try:
                answer = step.verb.plain(*step.arguments, **step.options)
            except BaseException as error:
                step = flow.throw(error)
            else:
                step = flow.send(answer)
    except StopIteration as end:
        result: Result = end.value
        return result


async def run_async(flow: Flow[Result]) -> Result:
    """Carry out a flow in this task."""
    try:
        step = next(flow)
        while True:
            try:
                if step.verb.awaited is None:
                    answer = step.verb.plain(*step.arguments, **step.options)
                else:
                    answer = await step.verb.awaited(*step.arguments, **step.options)
            except BaseException as error:
                step = flow.throw(error)
            else:
                step = flow.send(answer)
    except StopIteration as end:
        result: Result = end.value
        return result
