"""Every hit is decided, and every number told, as the exact model does."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.sliding import Counter

from . import cases
from .support import Case, Cost, Move, Run, starts, steps

Trace = list[tuple[Move, Cost]]


def follow(case: Case, start: int, trace: Trace) -> None:
    run = Run(case, start)
    for move, cost in trace:
        run.step(move, cost)


@given(cases.fixed_windows(), starts, steps)
def test_fixed_window(case: Case, start: int, trace: Trace) -> None:
    follow(case, start, trace)


@given(cases.first_hits(), starts, steps)
def test_first_hit_window(case: Case, start: int, trace: Trace) -> None:
    follow(case, start, trace)


@given(cases.counters(), starts, steps)
def test_sliding_window(case: Case, start: int, trace: Trace) -> None:
    follow(case, start, trace)


@given(cases.counters(), starts, steps)
def test_sliding_window_waits_by_the_formula(case: Case, start: int, trace: Trace) -> None:
    run = Run(case, start)
    model = run.model
    assert isinstance(model, Counter)
    for move, cost in trace:
        run.move(move)
        asked = run.cost(cost)
        decision = run.step(("stay", 0), ("of", asked))
        if not decision.allowed and asked <= case.capacity:
            exact = model.formula(run.now, asked)
            assert round(decision.retry_after * 1_000_000) == -(-exact // 1) * run.tick


@given(cases.cells(), starts, steps)
def test_sliding_cells(case: Case, start: int, trace: Trace) -> None:
    follow(case, start, trace)


@given(cases.logs(), starts, steps)
def test_sliding_log(case: Case, start: int, trace: Trace) -> None:
    follow(case, start, trace)


@given(cases.buckets(), starts, steps)
def test_token_bucket(case: Case, start: int, trace: Trace) -> None:
    follow(case, start, trace)


@given(cases.stepped(), starts, steps)
def test_token_bucket_filled_in_batches(case: Case, start: int, trace: Trace) -> None:
    follow(case, start, trace)


@given(cases.starting_low(), starts, steps)
def test_token_bucket_that_starts_low(case: Case, start: int, trace: Trace) -> None:
    follow(case, start, trace)


@given(cases.debts(), starts, steps)
def test_debt(case: Case, start: int, trace: Trace) -> None:
    follow(case, start, trace)


@given(cases.gcras(), starts, steps)
def test_gcra(case: Case, start: int, trace: Trace) -> None:
    follow(case, start, trace)


@given(cases.gcras(), starts, steps)
def test_gcra_is_a_token_bucket_from_the_other_side(case: Case, start: int, trace: Trace) -> None:
    twin = Case(case.text.replace("gcra", "token-bucket"), case.model, case.capacity, case.window)
    one, other = Run(case, start), Run(twin, start)
    for move, cost in trace:
        one.move(move)
        other.move(move)
        asked = one.cost(cost)
        a, b = one.hit(asked), other.hit(asked)
        assert (a.allowed, a.retry_after) == (b.allowed, b.retry_after)
        assert (a.remaining, a.reset_after) == (b.remaining, b.reset_after)


@given(cases.meters(), starts, steps)
def test_leaky_meter(case: Case, start: int, trace: Trace) -> None:
    follow(case, start, trace)


@given(cases.evens(), starts, steps)
def test_even(case: Case, start: int, trace: Trace) -> None:
    follow(case, start, trace)


@pytest.mark.parametrize("kind", ["peek", "nothing", "many"])
@given(case=cases.plain, start=starts, trace=steps, ahead=st.integers(0, 6))
def test_other_ways_to_ask_agree(
    kind: str, case: Case, start: int, trace: Trace, ahead: int
) -> None:
    """A peek takes nothing, nor does a cost of nothing; hit_many is hits in order."""
    run, twin = Run(case, start), Run(case, start)
    for move, cost in trace:
        run.move(move)
        twin.move(move)
        asked = run.cost(cost)
        if kind == "many":
            first, second = run.limiter.hit_many(["key", "key"], asked)
            expected = [twin.hit(asked), twin.hit(asked)]
            run.last = second
            assert [first.allowed, second.allowed] == [d.allowed for d in expected]
            assert [first.remaining, second.remaining] == [d.remaining for d in expected]
            continue
        foreseen = run.limiter.peek("key", asked if kind == "peek" else 0)
        if kind == "nothing":
            assert run.limiter.hit("key", 0).allowed
        decision, plain = run.hit(asked), twin.hit(asked)
        assert decision.allowed == plain.allowed
        assert decision.remaining == plain.remaining
        if kind == "peek":
            assert foreseen.allowed == decision.allowed
            assert foreseen.retry_after == decision.retry_after
