"""Watched: how whoever measures is told of what a gate does at its store.

Nothing here runs unless somebody watches: prepared ways and flows are wrapped when they are
made, and only then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from .desk import Patience

if TYPE_CHECKING:
    from ..decision import Ask, Decision
    from ..flows import Flow
    from ..keys import Key

__all__ = ["Watch", "timed", "timed_async", "watched"]

Result = TypeVar("Result")


class Watch(Protocol):
    """Who is told; none of this may raise."""

    times: bool
    """Whether it wants to know how long prepared takes last."""

    def asked(self, nanos: int) -> None:
        """The store took so long for an answer."""
        ...

    def waited(self, asks: Sequence[Ask], nanos: int) -> None:
        """A call stood in line for so long, for all of these."""
        ...

    def held(self, asks: Sequence[Ask], change: int) -> None:
        """Permits were given out (1) or have come back (-1)."""
        ...


def timed(way: Callable[[Key, int], Decision], watch: Watch) -> Callable[[Key, int], Decision]:
    """A prepared take whose time is told."""
    clock, asked = perf_counter_ns, watch.asked

    def hit(key: Key, cost: int) -> Decision:
        began = clock()
        answer = way(key, cost)
        asked(clock() - began)
        return answer

    return hit


def timed_async(way: Any, watch: Watch) -> Any:
    """The same, awaited."""
    clock, asked = perf_counter_ns, watch.asked

    async def hit(key: Key, cost: int) -> Decision:
        began = clock()
        answer: Decision = await way(key, cost)
        asked(clock() - began)
        return answer

    return hit


def watched(flow: Flow[Result], watch: Watch) -> Flow[Result]:
    """The same flow; the time of each of its steps is told."""
    try:
        step = next(flow)
        while True:
            began = perf_counter_ns()
            try:
                answer = yield step
            except BaseException as error:
                _tell(watch, step, perf_counter_ns() - began)
                step = flow.throw(error)
            else:
                _tell(watch, step, perf_counter_ns() - began)
                step = flow.send(answer)
    except StopIteration as end:
        result: Result = end.value
        return result


def _tell(watch: Watch, step: Any, nanos: int) -> None:
    if isinstance(step, Patience):
        watch.waited(step.wait.asked, nanos)
    else:
        watch.asked(nanos)
