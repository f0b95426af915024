"""A day of taking all that there is: rates do not drift."""

from __future__ import annotations

from fractions import Fraction

import pytest

from headgate import Limiter, ManualClock

from .support import DAY, SECOND, make_store

STEP = 997_000
"""Prime to everything, so every remainder is met."""


def taken_in_a_day(text: str, start: int) -> tuple[int, int]:
    """Everything that a greedy caller gets, and the microseconds it took."""
    clock = ManualClock(start / SECOND)
    limiter = Limiter(text, store=make_store(clock))
    total, capacity = 0, limiter.limits[0].capacity
    while True:
        total += limiter.hit("key", capacity, partial=True).granted
        elapsed = clock.micros() - start
        if elapsed >= DAY:
            return total, elapsed
        clock.advance(STEP / SECOND)


@pytest.mark.parametrize("start", [0, 1_790_000_000 * SECOND + 123_457])
@pytest.mark.parametrize("algorithm", ["token-bucket", "gcra", "token-bucket burst 1999966"])
def test_a_fast_rate(algorithm: str, start: int) -> None:
    total, elapsed = taken_in_a_day(f"999983/second {algorithm}", start)
    burst = 1_999_966 if "burst" in algorithm else 999_983
    ideal = burst + Fraction(999_983 * elapsed, SECOND)
    assert ideal - 1 < total <= ideal


@pytest.mark.parametrize("algorithm", ["token-bucket", "gcra", "leaky-bucket burst 6", "debt"])
def test_a_slow_rate(algorithm: str) -> None:
    total, elapsed = taken_in_a_day(f"7/day {algorithm}", 0)
    ideal = 7 + Fraction(7 * elapsed, DAY)
    # In debt one call passes on nothing at all.
    assert ideal - 1 < total <= ideal + ("debt" in algorithm)


def test_a_slow_rate_evenly() -> None:
    total, elapsed = taken_in_a_day("7/day even", 0)
    ideal = 1 + Fraction(7 * elapsed, DAY)
    assert ideal - 1 <= total <= ideal


def test_a_rate_in_batches() -> None:
    total, elapsed = taken_in_a_day("999983/second refill 100ms burst 2000000", 0)
    batches = elapsed // 100_000
    ideal = 2_000_000 + Fraction(999_983, 10) * batches
    assert ideal - 1 < total <= ideal


@pytest.mark.parametrize("algorithm", ["fixed-window", "fixed-window tz Asia/Kolkata"])
def test_windows(algorithm: str) -> None:
    """Every second is visited, and gives all it has."""
    total, elapsed = taken_in_a_day(f"999983/second {algorithm}", 0)
    assert total == 999_983 * (elapsed // SECOND + 1)


def test_ticks_of_a_second() -> None:
    total, elapsed = taken_in_a_day("1000000000/day token-bucket", 0)
    ideal = 10**9 + Fraction(10**9 * (elapsed // SECOND), 86_400)
    assert ideal - 1 < total <= ideal
