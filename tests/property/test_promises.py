"""What the front door says comes true: retry_after, remaining, reset_after, partial grants."""

from __future__ import annotations

import math

from hypothesis import assume, given
from hypothesis import strategies as st

from headgate import Decision

from . import cases
from .support import CENTURY, Case, Cost, Move, Run, costs, starts, steps

Trace = list[tuple[Move, Cost]]

every = st.one_of(cases.plain, cases.starting_low(), cases.stepped())


def after(case: Case, start: int, trace: Trace) -> Run:
    """A key with a past."""
    run = Run(case, start)
    for move, cost in trace:
        run.move(move)
        run.hit(run.cost(cost))
    return run


def numbers(decision: Decision) -> tuple[bool, int, float, float]:
    return decision.allowed, decision.remaining, decision.retry_after, decision.reset_after


@given(every, starts, steps, costs)
def test_a_refused_call_passes_after_retry_after_and_not_a_tick_sooner(
    case: Case, start: int, trace: Trace, cost: Cost
) -> None:
    run = after(case, start, trace)
    asked = run.cost(cost)
    decision = run.hit(asked)
    assume(not decision.allowed)
    if math.isinf(decision.retry_after):
        assert asked > case.capacity
        return
    assume(decision.retry_after < CENTURY)
    run.move(("retry", -1))
    assert not run.hit(asked)
    run.advance(run.tick)
    assert run.hit(asked)


@given(every, starts, steps)
def test_exactly_remaining_unit_hits_pass(case: Case, start: int, trace: Trace) -> None:
    run = after(case, start, trace)
    remaining = run.limiter.peek("key").remaining
    if remaining > 200:
        assert run.hit(remaining - 200)
        remaining = 200
    for left in range(remaining, 0, -1):
        assert run.limiter.peek("key").remaining == left
        assert run.hit(1)
    assert not run.hit(1)


@given(cases.plain, starts, steps, steps)
def test_after_reset_after_a_key_is_as_if_never_used(
    case: Case, start: int, trace: Trace, probe: Trace
) -> None:
    run = after(case, start, trace)
    run.last = run.limiter.peek("key", 0)
    assume(run.last.reset_after < CENTURY)
    run.move(("reset", 0))
    assert run.limiter.peek("key", 0).reset_after == 0
    for move, cost in probe:
        run.move(move)
        asked = run.cost(cost)
        other = run.limiter.hit("never seen before", asked)
        assert numbers(run.hit(asked)) == numbers(other)


@given(cases.plain, starts, steps, steps)
def test_after_a_reset_a_key_is_as_if_never_used(
    case: Case, start: int, trace: Trace, probe: Trace
) -> None:
    run = after(case, start, trace)
    run.limiter.reset("key")
    for move, cost in probe:
        run.move(move)
        asked = run.cost(cost)
        other = run.limiter.hit("never seen before", asked)
        assert numbers(run.hit(asked)) == numbers(other)


@given(cases.plain, starts, steps)
def test_a_refused_call_leaves_no_trace(case: Case, start: int, trace: Trace) -> None:
    """A store that never saw the refused calls answers the same for ever."""
    run, twin = Run(case, start), Run(case, start)
    for move, cost in trace:
        run.move(move)
        twin.move(move)
        asked = run.cost(cost)
        decision = run.hit(asked)
        foreseen = twin.limiter.peek("key", asked)
        assert decision.allowed == foreseen.allowed
        assert decision.retry_after == foreseen.retry_after
        if decision.allowed:
            twin.hit(asked)
        twin.last = run.last
        assert numbers(run.limiter.peek("key", 0)) == numbers(twin.limiter.peek("key", 0))


@given(cases.plain.filter(lambda case: "even" not in case.text), starts, steps)
def test_a_partial_hit_takes_what_is_there(case: Case, start: int, trace: Trace) -> None:
    run = Run(case, start)
    for move, cost in trace:
        run.move(move)
        asked = run.cost(cost)
        left = run.limiter.peek("key").remaining
        decision = run.last = run.limiter.hit("key", asked, partial=True)
        assert decision.granted == min(asked, left)
        assert decision.allowed == (asked == 0 or left > 0)
        for _ in range(min(asked, left)) if left <= 20 else ():
            assert run.model.take(run.now, 1)
        if left > 20:
            run.model.take(run.now, decision.granted)


@given(every, starts, steps)
def test_keys_do_not_meet(case: Case, start: int, trace: Trace) -> None:
    run, twin = Run(case, start), Run(case, start)
    for move, cost in trace:
        run.move(move)
        twin.move(move)
        asked = run.cost(cost)
        for key in ("other", b"\xff", ("key",), ("key", "")):
            run.limiter.hit(key, asked)
        assert numbers(run.hit(asked)) == numbers(twin.hit(asked))
