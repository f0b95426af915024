"""Fixed windows that start where they are told: at an anchor, or by the calendar of a zone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.calendar_window import EPOCH, CalendarWindow, wall
from models.fixed_window import FixedWindow

from .support import SECOND, Case, Cost, Move, Run, costs, rates, steps, ticks

Trace = list[tuple[Move, Cost]]

QUARTER = 900 * SECOND


@given(
    rates,
    st.sampled_from([0, 1_790_000_000 * SECOND]),
    st.integers(0, 10 * SECOND),
    st.integers(0, 10 * SECOND),
    steps,
)
def test_windows_from_an_anchor(
    rate: tuple[int, int], base: int, ahead: int, late: int, trace: Trace
) -> None:
    """Also from one that lies in the future: nothing passes before it."""
    amount, window = rate
    start = base + late
    # An anchor is a whole number of ticks, also of a second's.
    anchor = base + (ahead - ahead % SECOND if window == 86_400 * SECOND else ahead)
    when = (EPOCH + timedelta(microseconds=anchor)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    case = Case(
        f"{amount}/{window}us anchor {when}",
        lambda tick: FixedWindow(amount, window // tick, anchor // tick),
        amount,
        window,
    )
    run = Run(case, start)
    for move, cost in trace:
        run.move(move)
        asked = run.cost(cost)
        if run.now < anchor // run.tick and 0 < asked <= amount:
            decision = run.hit(asked)
            assert not decision
            assert decision.remaining == 0
            assert ticks(decision.retry_after, run.tick) == anchor // run.tick - run.now
            assert decision.reset_after == 0
            continue
        expected = run.model.take(run.now, asked)
        assert run.hit(asked).allowed == expected
        if run.now >= anchor // run.tick:
            run.step(("stay", 0), cost)


zones = st.sampled_from(
    [
        "UTC",
        "Asia/Shanghai",
        "Europe/Berlin",  # forward at 01:00 UTC, back at 01:00 UTC
        "America/New_York",
        "America/Santiago",  # forward at midnight: a day that starts at 01:00
        "Asia/Beirut",
        "America/Havana",  # back from 01:00 to 00:00: midnight twice
        "Asia/Kolkata",  # half an hour off
        "Asia/Kathmandu",  # three quarters off
        "Australia/Lord_Howe",  # half an hour of summer time
        "Pacific/Apia",  # 30 December 2011 did not take place
        "Pacific/Kiritimati",
    ]
)
days = st.dates(datetime(2011, 6, 1).date(), datetime(2031, 1, 1).date())
jumps = st.sampled_from([0, 1, SECOND, 60 * SECOND, QUARTER, 3600 * SECOND, 86_400 * SECOND])


@st.composite
def instants(draw: st.DrawFn, zone: str) -> int:
    """An instant in microseconds, often close to a change of the clocks or the turn of a day."""
    place = CalendarWindow(1, "day", zone).zone
    day = draw(days)
    noon = datetime(day.year, day.month, day.day, 12, tzinfo=UTC)
    start = (noon - EPOCH) // timedelta(microseconds=1)
    kind = draw(st.sampled_from(["any", "change", "turn"]))
    if kind == "change":
        offset = wall(start, place).utcoffset()
        for _ in range(250):  # walk a day at a time to the next change, if the zone has one
            if wall(start + 86_400 * SECOND, place).utcoffset() != offset:
                break
            start += 86_400 * SECOND
        while wall(start, place).utcoffset() == offset and kind == "change":
            start += QUARTER
            if wall(start, place).utcoffset() == offset and start % (86_400 * SECOND) == 0:
                break
    elif kind == "turn":
        model = CalendarWindow(1, "day", zone)
        start = model.end(start)
    nearby = st.sampled_from([0, -1, 1, -QUARTER, QUARTER, -3600 * SECOND, 5400 * SECOND])
    return start + draw(nearby)


@pytest.mark.parametrize("unit", ["hour", "day", "week", "month", "year"])
@given(data=st.data(), zone=zones, amount=st.integers(1, 4))
def test_calendar_windows(unit: str, data: st.DataObject, zone: str, amount: int) -> None:
    start = data.draw(instants(zone))
    length = {"hour": 1, "day": 24, "week": 168, "month": 744, "year": 8784}[unit]
    case = Case(
        f"{amount}/{unit} tz {zone}",
        lambda tick: CalendarWindow(amount, unit, zone, tick),
        amount,
        length * 3600 * SECOND,
    )
    run = Run(case, start)
    model = run.model
    assert isinstance(model, CalendarWindow)
    for _ in range(data.draw(st.integers(1, 8))):
        move = data.draw(
            st.one_of(
                st.tuples(st.just("micros"), jumps),
                st.tuples(st.sampled_from(["retry", "reset"]), st.integers(-1, 1)),
                st.just(("share", 4)),
            )
        )
        run.move(move)
        asked = run.cost(data.draw(costs))
        expected = model.take(run.now, asked)
        decision = run.hit(asked)
        assert decision.allowed == expected
        assert decision.remaining == amount - model.used(run.now)
        left = model.end(run.now) - run.now
        assert ticks(decision.reset_after, run.tick) == (left if model.used(run.now) else 0)
        if expected:
            assert decision.retry_after == 0
        else:
            never = asked > amount
            assert ticks(decision.retry_after, run.tick) == (None if never else left)


def test_a_day_that_summer_time_shortens() -> None:
    """On 29 March 2026 in Berlin a natural day has 23 hours."""
    midnight = datetime(2026, 3, 28, 23, tzinfo=UTC)
    run = Run(
        Case("1/day tz Europe/Berlin", lambda tick: FixedWindow(1, 1), 1, 86_400 * SECOND),
        (midnight - EPOCH) // timedelta(microseconds=1),
    )
    assert run.hit(1).reset_after == 23 * 3600
    assert run.hit(1).retry_after == 23 * 3600
