"""What the cheapest things cost here: the units in which a decision is told.

Each is timed bare, in a loop of its own, without a call that it does not need.
"""

import time
from collections.abc import Callable
from itertools import repeat
from time import perf_counter_ns

from benchmarks.keys import HOT_KEY, shuffled_keys
from benchmarks.rss import resident_bytes

_CALLS = 100_000


def _nothing() -> None:
    return None


def _empty_call() -> float:
    start = perf_counter_ns()
    for _ in repeat(None, _CALLS):
        _nothing()
    return (perf_counter_ns() - start) / _CALLS


def _monotonic_ns() -> float:
    clock = time.monotonic_ns
    start = perf_counter_ns()
    for _ in repeat(None, _CALLS):
        clock()
    return (perf_counter_ns() - start) / _CALLS


def _dict_hot() -> float:
    table = {HOT_KEY: 0}
    start = perf_counter_ns()
    for key in repeat(HOT_KEY, _CALLS):
        table[key] = table.get(key, 0) + 1
    return (perf_counter_ns() - start) / _CALLS


def _dict_many_keys() -> float:
    table = dict.fromkeys(shuffled_keys(sweep=0), 0)
    keys = shuffled_keys(sweep=1)
    start = perf_counter_ns()
    for key in keys:
        table[key] = table.get(key, 0) + 1
    return (perf_counter_ns() - start) / len(keys)


YARDSTICKS: dict[str, Callable[[], float]] = {
    "empty call": _empty_call,
    "time.monotonic_ns": _monotonic_ns,
    "dict get+set, hot key": _dict_hot,
    "dict get+set, 100,000 keys": _dict_many_keys,
}


def measure() -> dict[str, float]:
    """Nanoseconds for each yardstick, the best of three."""
    return {name: min(run() for _ in range(3)) for name, run in YARDSTICKS.items()}


def dict_bytes_per_key(count: int) -> float:
    """Growth of the process for each key of a bare dict of str to float."""
    table: dict[str, float] = {}
    before = resident_bytes()
    for number in range(count):
        table[f"user:{number}"] = number / 3
    return (resident_bytes() - before) / count
