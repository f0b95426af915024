"""Decisions per second: a hot key that is allowed, one that is refused, and many keys.

Beside each batch of hits the yardstick is timed in the same process, so that both meet the same
machine: reads of the clock beside a hot key, updates of a dict beside many keys.
"""

import gc
from collections.abc import Callable
from itertools import repeat
from time import perf_counter

from benchmarks.keys import HOT_KEY, shuffled_keys
from benchmarks.loops import Factory, clock_reads, dict_updates
from benchmarks.rivals import Rival

_HOUR = 3600
_HITS = 20_000
_PLENTY = 1_000_000_000
_SECONDS = 0.25
_LEAST = 3


def in_turn(*measures: Callable[[], float], seconds: float = _SECONDS) -> list[float]:
    """The best of each of several measurements that take turns, for a while."""
    best = [float("inf")] * len(measures)
    end, runs = perf_counter() + seconds, 0
    while runs < _LEAST or perf_counter() < end:
        for place, measure in enumerate(measures):
            gc.collect()
            best[place] = min(best[place], measure())
        runs += 1
    return best


def hot_allowed(rival: Rival, make: Factory, algorithm: str, quick: bool) -> dict[str, float]:
    """Time hits on one key that are all allowed, with a fresh limiter for each batch.

    A log remembers every hit, so its batches are short: it is timed at up to 1,000 entries.
    """
    hits = 1_000 if algorithm == "sliding-log" else _HITS
    # A thousand million an hour still spaces hits 3.6 us apart, which `even` would refuse.
    seconds = 1 if algorithm == "even" else _HOUR
    hit = make(_PLENTY, seconds)

    def batch() -> float:
        nonlocal hit
        hit = make(_PLENTY, seconds)
        return rival.LOOP(hit, repeat(HOT_KEY, hits)) / hits

    ns, clock = in_turn(batch, lambda: clock_reads(repeat(HOT_KEY, hits)) / hits)
    # An asyncio limiter belongs to its loop, which is gone; it could not have refused anyway.
    right = rival.ASYNC or rival.allowed(hit(HOT_KEY) if rival.KEYED else hit())
    return {"ns": ns, "yardstick_ns": clock, "right": right}


def hot_refused(rival: Rival, make: Factory, algorithm: str, quick: bool) -> dict[str, float]:
    """Time hits on one key whose limit of 5 an hour is used up."""
    hit = make(5, _HOUR)
    rival.LOOP(hit, repeat(HOT_KEY, 10))
    ns, clock = in_turn(
        lambda: rival.LOOP(hit, repeat(HOT_KEY, _HITS)) / _HITS,
        lambda: clock_reads(repeat(HOT_KEY, _HITS)) / _HITS,
    )
    right = not rival.allowed(hit(HOT_KEY) if rival.KEYED else hit())
    return {"ns": ns, "yardstick_ns": clock, "right": right}


def many_keys(rival: Rival, make: Factory, algorithm: str, quick: bool) -> dict[str, float]:
    """Time hits on 100,000 known keys in random order; the sweep that adds them is told apart."""
    hit = make(100, _HOUR)
    table = dict.fromkeys(shuffled_keys(sweep=0), 0)

    def hits(sweep: int) -> float:
        keys = shuffled_keys(sweep)
        gc.collect()
        return rival.LOOP(hit, keys) / len(keys)

    def updates(sweep: int) -> float:
        keys = shuffled_keys(sweep)
        gc.collect()
        return dict_updates(table, keys) / len(keys)

    first = hits(0)
    best = best_dict = float("inf")
    for sweep in range(1, 3 if quick else 4):
        best_dict = min(best_dict, updates(sweep))
        best = min(best, hits(sweep))
    # Strict spacing refuses a key's second hit; all others have room for every sweep.
    right = rival.allowed(hit(HOT_KEY)) != (algorithm == "even")
    return {"ns": best, "yardstick_ns": best_dict, "first_ns": first, "right": right}
