"""Natural windows: the calendar's own boundaries, as instants."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from headgate import Limiter, ManualClock
from headgate.calendar import bounds

# A unit and zone, an instant in UTC, and the window that holds it.
WINDOWS = [
    ("day", "Asia/Shanghai", "2026-03-01T15:59", "2026-02-28T16:00", "2026-03-01T16:00"),
    ("day", "Asia/Shanghai", "2026-03-01T16:00", "2026-03-01T16:00", "2026-03-02T16:00"),
    ("hour", "Asia/Kolkata", "2026-03-01T10:10", "2026-03-01T09:30", "2026-03-01T10:30"),
    ("hour", "Asia/Kathmandu", "2026-03-01T10:10", "2026-03-01T09:15", "2026-03-01T10:15"),
    ("minute", "Asia/Kolkata", "2026-03-01T10:10:59", "2026-03-01T10:10", "2026-03-01T10:11"),
    ("week", "UTC", "2026-03-01T12:00", "2026-02-23T00:00", "2026-03-02T00:00"),
    ("week", "Europe/Berlin", "2026-03-29T12:00", "2026-03-22T23:00", "2026-03-29T22:00"),
    ("month", "UTC", "2024-02-29T23:59", "2024-02-01T00:00", "2024-03-01T00:00"),
    ("month", "America/New_York", "2026-12-31T23:00", "2026-12-01T05:00", "2027-01-01T05:00"),
    ("year", "Asia/Tokyo", "2026-12-31T15:00", "2026-12-31T15:00", "2027-12-31T15:00"),
    # Summer time begins: 23 hours. It ends: 25.
    ("day", "Europe/Berlin", "2026-03-29T12:00", "2026-03-28T23:00", "2026-03-29T22:00"),
    ("day", "Europe/Berlin", "2026-10-25T12:00", "2026-10-24T22:00", "2026-10-25T23:00"),
    # The hour that autumn repeats is two windows.
    ("hour", "Europe/Berlin", "2026-10-25T00:30", "2026-10-25T00:00", "2026-10-25T01:00"),
    ("hour", "Europe/Berlin", "2026-10-25T01:30", "2026-10-25T01:00", "2026-10-25T02:00"),
    # Half an hour of summer time: the hour it begins in is cut short by it.
    ("day", "Australia/Lord_Howe", "2026-10-03T20:00", "2026-10-03T13:30", "2026-10-04T13:00"),
    # Midnight does not exist: the day begins when the clocks have jumped.
    ("day", "America/Sao_Paulo", "2018-11-04T12:00", "2018-11-04T03:00", "2018-11-05T02:00"),
    ("day", "America/Sao_Paulo", "2018-11-03T12:00", "2018-11-03T03:00", "2018-11-04T03:00"),
    ("day", "America/Havana", "2026-03-08T12:00", "2026-03-08T05:00", "2026-03-09T04:00"),
    # A whole day was skipped.
    ("day", "Pacific/Apia", "2011-12-30T09:00", "2011-12-29T10:00", "2011-12-30T10:00"),
    ("day", "Pacific/Apia", "2011-12-30T12:00", "2011-12-30T10:00", "2011-12-31T10:00"),
]  # fmt: skip


def micros(text: str) -> int:
    return round(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1_000_000)


@pytest.mark.parametrize(("unit", "zone", "now", "start", "end"), WINDOWS)
def test_bounds(unit: str, zone: str, now: str, start: str, end: str) -> None:
    assert bounds(unit, zone, micros(now)) == (micros(start), micros(end))


@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/Sao_Paulo", "Pacific/Apia", "UTC"])
@pytest.mark.parametrize("unit", ["hour", "day", "week", "month", "year"])
def test_windows_follow_each_other_without_a_gap(unit: str, zone: str) -> None:
    start, end = bounds(unit, zone, micros("2011-01-01T00:00"))
    for _ in range(60):
        assert bounds(unit, zone, start) == (start, end)
        assert bounds(unit, zone, end - 1) == (start, end)
        following, after = bounds(unit, zone, end)
        assert following == end
        start, end = following, after


def test_one_check_in_per_natural_day() -> None:
    start = datetime(2026, 2, 28, 15, 59, tzinfo=UTC)  # 23:59 in Shanghai
    clock = ManualClock(start.timestamp())
    limiter = Limiter("1/day fixed-window tz Asia/Shanghai", clock=clock)
    assert limiter.hit("player")
    assert limiter.hit("player").retry_after == 60
    clock.advance(60)
    decision = limiter.hit("player")
    assert decision.allowed
    assert decision.reset_at == (start + timedelta(days=1, minutes=1)).timestamp()


@pytest.mark.parametrize("text", ["5/month", "5/year", "5/week tz UTC", "5/hour tz Asia/Kolkata"])
def test_a_window_ends_where_the_next_begins(text: str) -> None:
    clock = ManualClock(1_772_000_000)
    limiter = Limiter(text, clock=clock)
    for _ in range(14):
        assert sum(limiter.hit("k").allowed for _ in range(9)) == 5
        clock.advance(limiter.peek("k").retry_after - 0.000_001)
        assert not limiter.hit("k")
        clock.advance(0.000_001)
