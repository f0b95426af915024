"""A clock that steps back: the bounds hold, the numbers come true, and nobody starves."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from . import cases
from .support import CENTURY, DAY, SECOND, Cost, Run, costs

START = 1_790_000_000 * SECOND

back_or_ahead = st.lists(
    st.tuples(st.integers(-12, 12), costs, st.booleans()), min_size=1, max_size=25
)
"""Steps in eighths of a window, and what is asked then."""
Wobble = list[tuple[int, Cost, bool]]

KINDS = {
    "fixed-window": cases.fixed_windows(),
    "first-hit": cases.first_hits(),
    "sliding-window": cases.counters(),
    "cells": cases.cells(),
    "sliding-log": cases.logs(),
    "token-bucket": cases.buckets(),
    "gcra": cases.gcras(),
    "leaky-bucket": cases.meters(),
    "even": cases.evens(),
    "debt": cases.debts(),
}


def turn(run: Run, micros: int) -> None:
    if micros < 0:
        run.clock.turn_back(-micros / SECOND)
    else:
        run.advance(micros)


def wobble(run: Run, trace: Wobble) -> list[tuple[int, int]]:
    """Hits under a clock that steps back, never by more than a window behind the last one that
    passed; what passed, by the running maximum of the clock."""
    passed: list[tuple[int, int]] = []
    latest = 0
    for eighths, cost, _ in trace:
        target = run.clock.micros() + run.case.window * eighths // 8
        turn(run, max(target, latest - run.case.window) - run.clock.micros())
        known = run.store.keys > 0
        if known and ("cells" in run.case.text or "log" in run.case.text):
            # These move on with every look.
            latest = max(latest, run.clock.micros())
        asked = run.cost(cost)
        if run.hit(asked) and asked:
            latest = max(latest, run.clock.micros())
            passed.append((latest // run.tick, asked))
    return passed


def sums(passed: list[tuple[int, int]]) -> list[tuple[int, int, int]]:
    """Of every stretch of calls: how long, how much, and how much without the last."""
    found = []
    for i in range(len(passed)):
        total = 0
        for j in range(i, len(passed)):
            found.append((passed[j][0] - passed[i][0], total + passed[j][1], total))
            total += passed[j][1]
    return found


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data(), trace=back_or_ahead)
def test_bounds_hold_on_the_running_maximum(kind: str, data: st.DataObject, trace: Wobble) -> None:
    case = data.draw(KINDS[kind])
    run = Run(case, START)
    passed = wobble(run, trace)
    window, rate = run.window, Fraction(run.limit.amount, run.window)
    for elapsed, total, before in sums(passed):
        if kind in ("token-bucket", "gcra", "leaky-bucket"):
            assert total <= case.capacity + rate * elapsed
        elif kind == "debt":
            assert before <= case.capacity + rate * elapsed
        elif kind == "even":
            assert before <= rate * elapsed
        elif kind == "sliding-log":
            assert elapsed >= window or total <= case.capacity
        else:
            assert elapsed >= window or total <= 2 * case.capacity
    if kind in ("fixed-window", "sliding-window"):
        for number in {at // window for at, _ in passed}:
            assert sum(cost for at, cost in passed if at // window == number) <= case.capacity


far = st.one_of(st.integers(1, 40), st.sampled_from([10**3, 10**6]))
"""How far back, in eighths of a window."""


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data(), trace=back_or_ahead, eighths=far)
def test_nobody_starves_after_a_step_back(
    kind: str, data: st.DataObject, trace: Wobble, eighths: int
) -> None:
    """However far it was: the clock stands still for up to a window, then all is as usual."""
    case = data.draw(KINDS[kind])
    run = Run(case, START)
    wobble(run, trace)
    refused = run.limiter.peek("key", 1)
    usual = round(refused.retry_after * SECOND)
    turn(run, -min(case.window * eighths // 8, START - DAY))
    waited = 0
    # The window of an aligned algorithm may begin anew where the clock stands.
    longest = usual + 2 * case.window + run.tick
    if kind == "sliding-window":
        longest += case.window
    if kind == "debt":  # what was paid off since the last call is not known any more
        longest += 6 * case.window
    while not run.hit(1):
        pause = max(run.tick, longest // 16)
        waited += pause
        assert waited <= longest + pause, (waited, usual)
        run.advance(pause)


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data(), trace=back_or_ahead, eighths=far, cost=costs)
def test_numbers_come_true_after_a_step_back(
    kind: str, data: st.DataObject, trace: Wobble, eighths: int, cost: Cost
) -> None:
    case = data.draw(KINDS[kind])
    run = Run(case, START)
    wobble(run, trace)
    turn(run, -min(case.window * eighths // 8, START - DAY))
    asked = run.cost(cost)
    seen = run.limiter.peek("key", asked)
    assert seen.remaining >= 0
    assert seen.reset_after >= 0
    if seen.remaining <= 50:
        for _ in range(seen.remaining):
            assert run.hit(1)
        assert not run.hit(1)
    decision = run.hit(asked)
    if not decision and asked <= case.capacity and decision.retry_after < CENTURY:
        assert decision.retry_after > 0
        run.move(("retry", 0))
        assert run.hit(asked)
