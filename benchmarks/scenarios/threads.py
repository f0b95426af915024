"""Exactness under threads: four threads want twice what one key's limit holds."""

import sys
from functools import partial
from threading import Barrier, Thread
from time import perf_counter_ns

from benchmarks.keys import HOT_KEY
from benchmarks.loops import Factory, Hit
from benchmarks.rivals import Rival

_THREADS = 4
_HITS = 10_000
_LIMIT = 20_000
# So long that nothing refills and no window ends while the threads run.
_MONTH = 30 * 24 * 3600


class _Counter(Thread):
    """A thread that hits and counts what it was given."""

    def __init__(self, call: Hit, rival: Rival, start: Barrier) -> None:
        super().__init__()
        self.call, self.rival, self.barrier = call, rival, start
        self.admitted = self.failed = 0

    def run(self) -> None:
        call, allowed = self.call, self.rival.allowed
        self.barrier.wait()
        for _ in range(_HITS):
            try:
                self.admitted += allowed(call())
            except Exception:  # a rival's own error in a race is an answer to count
                self.failed += 1


def exactness(rival: Rival, make: Factory, algorithm: str, quick: bool) -> dict[str, float]:
    """Count what four threads are given, with switches between threads as often as can be."""
    hit = make(_LIMIT, _MONTH)
    call = partial(hit, HOT_KEY) if rival.KEYED else hit
    barrier = Barrier(_THREADS + 1)
    counters = [_Counter(call, rival, barrier) for _ in range(_THREADS)]
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for counter in counters:
            counter.start()
        barrier.wait()
        start = perf_counter_ns()
        for counter in counters:
            counter.join()
        spent = perf_counter_ns() - start
    finally:
        sys.setswitchinterval(usual)
    admitted = sum(counter.admitted for counter in counters)
    # Strict spacing gives the first hit only; the next place is two minutes away.
    expected = 1 if algorithm == "even" else _LIMIT
    return {
        "ns": spent / (_THREADS * _HITS),
        "admitted": admitted,
        "expected": expected,
        "error_percent": 100 * (admitted - expected) / expected,
        "failed": sum(counter.failed for counter in counters),
        "right": admitted == expected,
    }
