"""Memory per key: how much the process grows while half a million keys are hit once each."""

import gc
from time import perf_counter

from benchmarks.loops import Factory
from benchmarks.rivals import Rival
from benchmarks.rss import resident_bytes

FULL = 500_000  # where a dict is as full as with a million
SHORT = 200_000
QUICK = 100_000
_PATIENCE = 60.0


def per_key(rival: Rival, make: Factory, algorithm: str, quick: bool) -> dict[str, float]:
    """Measure growth in bytes per key, the key itself included for everybody alike.

    A rival on course for more than a minute stops at 200,000 keys, and the row says so.
    """
    hit = make(100, 3600)
    answer = hit("warm")
    gc.collect()
    before = resident_bytes()
    start = perf_counter()
    count = 0
    for goal in (QUICK,) if quick else (SHORT, FULL):
        for number in range(count, goal):
            answer = hit(f"user:{number}")
        count, spent = goal, perf_counter() - start
        if spent * FULL / count > _PATIENCE:
            break
    gc.collect()
    return {
        "bytes": (resident_bytes() - before) / count,
        "keys": count,
        "seconds": spent,
        "right": rival.allowed(answer),
    }
