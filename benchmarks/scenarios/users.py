"""A million users: how much the process grows, the text of their keys apart.

Each has a counter or bucket, or 60 cells with a hit in each, or a full log of 500 events. What
takes too long for a million users is measured on fewer, each in the very same state.
"""

import gc
from dataclasses import dataclass
from time import perf_counter

from benchmarks.loops import Factory
from benchmarks.rivals import Rival
from benchmarks.rss import resident_bytes

MILLION = 1_000_000
_HOUR = 3600


@dataclass(frozen=True)
class Load:
    """A limit, at how many instants of an hour every user hits, and what it takes on paper."""

    limit: str
    instants: int
    users: int
    paper: float


LOADS = {
    "fixed-window": Load("500/hour fixed-window", 1, MILLION, 32e6),
    "sliding-window": Load("500/hour sliding-window", 1, MILLION, 32e6),
    "token-bucket": Load("500/hour token-bucket", 1, MILLION, 32e6),
    "gcra": Load("500/hour gcra", 1, MILLION, 32e6),
    "sliding-cells": Load("500/hour sliding-window cells 60", 60, 50_000, 1.6e9),
    "sliding-log": Load("500/hour sliding-log", 500, 10_000, 12e9),
}
ALGORITHMS = tuple(LOADS)


def growth(rival: Rival, make: Factory, algorithm: str, quick: bool) -> dict[str, float]:
    """Bytes a user, once each has hit at every instant of an hour that its load asks for."""
    from headgate import Limiter, ManualClock, MemoryStore

    load = LOADS[algorithm]
    # A table of few keys has more to spare for each, so counters are always a million.
    users = load.users // 10 if quick and load.instants > 1 else load.users
    clock = ManualClock(1_000_000)
    store = MemoryStore(clock=clock)  # with room for 1 << 20 keys, unless told otherwise
    limiter = Limiter(load.limit, store=store)
    keys = [f"user:{number}" for number in range(users)]
    for key in keys[:10]:  # what a first hit loads and makes is not a user's
        limiter.hit(key)
        limiter.reset(key)
    gc.collect()
    start, before = perf_counter(), resident_bytes()
    right = True
    for number in range(load.instants):
        if number:
            clock.advance(_HOUR / load.instants)
        for key in keys:
            right &= limiter.hit(key).allowed
    gc.collect()
    bytes_each = (resident_bytes() - before) / users
    # Everybody is still there, and so is all that they used.
    used = 500 - limiter.peek(keys[0]).remaining
    return {
        "bytes": bytes_each,
        "keys": users,
        "seconds": perf_counter() - start,
        "right": right and used == load.instants and store.keys == users,
    }
