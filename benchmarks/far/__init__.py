"""The limiters that keep their state in Redis, one small module each.

A module offers TABLES: for each way of asking ("sync", "three", "async", "memory") our names of
the algorithms it has, each with a factory. A factory takes the server's URL, an amount and a
period in seconds; "three" are three limits at once, of that amount, of more and of more still.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib import import_module
from time import perf_counter_ns
from typing import Any

from benchmarks.loops import Hit, Loop, by_truth

_MODULES = {
    "headgate": "headgate_",
    "limits": "limits_",
    "throttled-py": "throttled_py",
    "pyrate-limiter": "pyrate",
}


@dataclass(frozen=True)
class Way:
    """How a library is asked, and how its answer is read."""

    hit: Hit
    loop: Loop = by_truth
    told: Loop | None = None
    """The same, but each answer's remaining places and its reset are read or asked for too."""
    allowed: Callable[[Any], bool] = bool
    """Whether an answer is the plain one, given by the server, and allows."""


AsyncHit = Callable[[str], Awaitable[object]]


@dataclass(frozen=True)
class AsyncWay:
    """The same for tasks."""

    hit: AsyncHit
    allowed: Callable[[Any], bool] = bool


Factory = Callable[[str, int, int], Way]
AsyncFactory = Callable[[str, int, int], AsyncWay]

STEPS = (1, 2, 3)
"""How many times the amount and the period each of three limits has."""


def table(rival: str, way: str) -> Mapping[str, Any]:
    """The factories that a rival has for a way of asking; none if it has no such way."""
    module = _MODULES.get(rival)
    if module is None:
        return {}
    found: Mapping[str, Any] = import_module(f"benchmarks.far.{module}").TABLES.get(way, {})
    return found


def each(call: Callable[[str], object], keys: Iterable[str]) -> int:
    """Nanoseconds for calling with every key."""
    start = perf_counter_ns()
    for key in keys:
        call(key)
    return perf_counter_ns() - start
