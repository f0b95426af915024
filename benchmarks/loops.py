"""Timed loops, one for each way a caller reads an answer.

The loop is part of what a user pays, so it reads the answer as the rival's documentation does:
by truth, by `.limited`, or by awaiting. Nothing stands between the loop and the rival's call.
"""

import asyncio
from collections.abc import Callable, Iterable
from time import perf_counter_ns

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
