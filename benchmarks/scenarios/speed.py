"""Decisions per second: a hot key that is allowed, one that is refused, and many keys."""

import gc
from itertools import repeat

from benchmarks.keys import HOT_KEY, shuffled_keys
from benchmarks.loops import Factory
from benchmarks.rivals import Rival

_HOUR = 3600
_HITS = 20_000
_PLENTY = 1_000_000_000


def hot_allowed(rival: Rival, make: Factory, algorithm: str, quick: bool) -> dict[str, float]:
    """Time hits on one key that are all allowed, with a fresh limiter for each batch.

    A log remembers every hit, so its batches are short: it is timed at up to 1,000 entries.
    """
    hits, batches = (1_000, 20) if algorithm == "sliding-log" else (_HITS, 5)
    # A thousand million an hour still spaces hits 3.6 us apart, which `even` would refuse.
    seconds = 1 if algorithm == "even" else _HOUR
    best = float("inf")
    for _ in range(batches):
        hit = make(_PLENTY, seconds)
        gc.collect()
        best = min(best, rival.LOOP(hit, repeat(HOT_KEY, hits)) / hits)
    # An asyncio limiter belongs to its loop, which is gone; it could not have refused anyway.
    right = rival.ASYNC or rival.allowed(hit(HOT_KEY) if rival.KEYED else hit())
    return {"ns": best, "right": right}


def hot_refused(rival: Rival, make: Factory, algorithm: str, quick: bool) -> dict[str, float]:
    """Time hits on one key whose limit of 5 an hour is used up."""
    hit = make(5, _HOUR)
    rival.LOOP(hit, repeat(HOT_KEY, 10))
    best = float("inf")
    for _ in range(5):
        gc.collect()
        best = min(best, rival.LOOP(hit, repeat(HOT_KEY, _HITS)) / _HITS)
    return {"ns": best, "right": not rival.allowed(hit(HOT_KEY) if rival.KEYED else hit())}


def many_keys(rival: Rival, make: Factory, algorithm: str, quick: bool) -> dict[str, float]:
    """Time hits on 100,000 known keys in random order; the sweep that adds them is told apart."""
    hit = make(100, _HOUR)
    keys = shuffled_keys(sweep=0)
    gc.collect()
    first = rival.LOOP(hit, keys) / len(keys)
    best = float("inf")
    for sweep in range(1, 2 if quick else 3):
        keys = shuffled_keys(sweep)
        gc.collect()
        best = min(best, rival.LOOP(hit, keys) / len(keys))
    # Strict spacing refuses a key's second hit; all others have room for every sweep.
    right = rival.allowed(hit(keys[-1])) != (algorithm == "even")
    return {"ns": best, "first_ns": first, "right": right}
