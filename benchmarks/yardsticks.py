"""What the cheapest things cost here: the units in which a decision is told."""

from collections.abc import Callable
from itertools import repeat
from time import perf_counter_ns

from benchmarks.keys import HOT_KEY, shuffled_keys
from benchmarks.loops import clock_reads, dict_updates
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
    return clock_reads(repeat(HOT_KEY, _CALLS)) / _CALLS


def _dict_hot() -> float:
    return dict_updates({HOT_KEY: 0}, repeat(HOT_KEY, _CALLS)) / _CALLS


def _dict_many_keys() -> float:
    keys = shuffled_keys(sweep=1)
    return dict_updates(dict.fromkeys(shuffled_keys(sweep=0), 0), keys) / len(keys)


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
