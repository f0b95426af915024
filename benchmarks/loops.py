"""Timed loops, one for each way a caller reads an answer, and those of the yardsticks.

The loop is part of what a user pays, so it reads the answer as the rival's documentation does:
by truth, by `.limited`, or by awaiting. Nothing stands between the loop and the rival's call.
"""

import asyncio
from collections.abc import Callable, Iterable
from time import monotonic_ns, perf_counter_ns

Hit = Callable[..., object]
Factory = Callable[[int, int], Hit]
Loop = Callable[[Hit, Iterable[str]], int]


def by_truth(hit: Hit, keys: Iterable[str]) -> int:
    """Nanoseconds for hitting every key, each answer asked for its truth."""
    start = perf_counter_ns()
    for key in keys:
        if hit(key):
            pass
    return perf_counter_ns() - start


def by_limited(hit: Hit, keys: Iterable[str]) -> int:
    """Nanoseconds for hitting every key, each answer asked for its `limited`."""
    start = perf_counter_ns()
    for key in keys:
        if hit(key).limited:  # type: ignore[attr-defined]
            pass
    return perf_counter_ns() - start


def without_key(hit: Hit, keys: Iterable[str]) -> int:
    """Nanoseconds for one hit per key on a limiter that knows no keys."""
    start = perf_counter_ns()
    for _ in keys:
        if hit():
            pass
    return perf_counter_ns() - start


def awaited(hit: Hit, keys: Iterable[str]) -> int:
    """Nanoseconds for one awaited hit per key on an asyncio limiter that knows no keys."""

    async def run() -> int:
        start = perf_counter_ns()
        for _ in keys:
            await hit()  # type: ignore[misc]
        return perf_counter_ns() - start

    return asyncio.run(run())


def clock_reads(keys: Iterable[str]) -> int:
    """Nanoseconds for one read of the clock per key, in the loop that the hits run in."""
    return without_key(monotonic_ns, keys)


def dict_updates(table: dict[str, int], keys: Iterable[str]) -> int:
    """Nanoseconds for one get and one set of a dict per key, with no function around them."""
    start = perf_counter_ns()
    for key in keys:
        table[key] = table.get(key, 0) + 1
    return perf_counter_ns() - start
