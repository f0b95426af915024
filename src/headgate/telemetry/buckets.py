"""Buckets: times counted by size, in fixed steps, and what they say about the whole."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["LATENCIES", "WAITS", "nanos", "percentile"]

LATENCIES = (
    0.000001, 0.0000025, 0.000005, 0.00001, 0.000025, 0.00005, 0.0001, 0.00025, 0.0005, 0.001,
    0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0,
)  # fmt: skip
"""Upper bounds, in seconds, of the times a store takes: from a hit in memory to a time-out."""
WAITS = (
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
)  # fmt: skip
"""Upper bounds, in seconds, of the times that calls wait for their turn."""


def nanos(bounds: Sequence[float]) -> tuple[int, ...]:
    """Bounds in whole nanoseconds."""
    return tuple(round(bound * 1e9) for bound in bounds)


def percentile(counts: Sequence[int], bounds: Sequence[float], share: float) -> float:
    """The time within which this share of all was done, in seconds; 0 if there was none.

    Within a bucket times are taken as evenly spread; of the last one only its lower bound is
    known.
    """
    total = sum(counts)
    if not total:
        return 0.0
    wanted, below = share * total, 0
    for place, count in enumerate(counts):
        if count and below + count >= wanted:
            if place >= len(bounds):
                break
            low = bounds[place - 1] if place else 0.0
            return low + (bounds[place] - low) * max(0.0, wanted - below) / count
        below += count
    return bounds[-1]
