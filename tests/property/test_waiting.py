"""Calls admitted for a later instant: bookings of buckets, the queue, warm-up."""

from __future__ import annotations

import itertools
from fractions import Fraction
from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate import Ask
from models.bucket import Bucket
from models.even import Even
from models.leaky import Queue
from models.warm_up import WarmUp

from . import cases
from .support import Case, Cost, Move, Run, costs, moves, rates, starts, steps, ticks

Trace = list[tuple[Move, Cost]]

patience = st.one_of(st.just(0), st.integers(1, 8), st.integers(8, 40), st.integers(8, 40))
"""How long a caller would wait, in eighths of a window."""
crowd = st.one_of(
    st.just(("stay", 0)),
    st.just(("stay", 0)),
    st.tuples(st.just("ticks"), st.integers(1, 3)),
    moves,
)
"""Callers who come at once, or nearly, so that a line forms."""
prices = st.one_of(st.just(("of", 1)), st.tuples(st.just("of"), st.integers(1, 3)), costs)
bookings = st.one_of(
    st.lists(st.tuples(crowd, prices, patience), min_size=1, max_size=20),
    st.lists(st.tuples(crowd, prices, st.integers(8, 40)), min_size=6, max_size=20),
)
Bookings = list[tuple[Move, Cost, int]]
KINDS = {
    "token-bucket": cases.buckets(),
    "gcra": cases.gcras(),
    "stepped": cases.stepped(),
    "debt": cases.debts(),
    "even": cases.evens(),
}


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data(), start=starts, trace=bookings)
def test_bookings_pass_when_the_model_says(
    kind: str, data: st.DataObject, start: int, trace: Bookings
) -> None:
    case = data.draw(KINDS[kind])
    run = Run(case, start)
    model = run.model
    assert isinstance(model, Bucket | Even)
    longest = run.window
    if isinstance(model, Bucket):  # nobody books further ahead than a window or a whole bucket
        longest = max(longest, int(case.capacity / model.rate))
    for move, cost, eighths in trace:
        run.move(move)
        asked = run.cost(cost)
        if not asked:
            continue
        willing = run.window * eighths // 8
        if isinstance(model, Bucket) and model.first is None:
            model.first = run.now
        expected = model.book(run.now, asked, min(willing, longest))
        decision = run.book(asked, willing)
        assert decision.allowed == (expected is not None), (run.now, asked, willing, decision)
        if expected is not None:
            assert ticks(decision.delay, run.tick) == expected
            assert decision.granted == asked


@pytest.mark.parametrize("kind", KINDS)
@given(
    data=st.data(),
    trace=st.lists(
        st.tuples(
            st.one_of(st.just(("stay", 0)), crowd),
            prices,
            st.integers(8, 40),
            st.booleans(),
            st.integers(0, 9),
        ),
        min_size=6,
        max_size=20,
    ),
)
def test_cancelled_bookings_let_nobody_pass_too_early(
    kind: str,
    data: st.DataObject,
    trace: list[tuple[Move, Cost, int, bool, int]],
) -> None:
    """Whatever is cancelled, the others together stay within the bound."""
    case = data.draw(KINDS[kind])
    run = Run(case)
    rate = Fraction(run.limit.amount, run.window)
    batch = run.limit.refill // run.tick
    booked: list[tuple[int, int]] = []
    cancelled = 0
    for move, cost, eighths, cancel, which in trace:
        run.move(move)
        asked = run.cost(cost)
        decision = run.book(asked, run.window * eighths // 8)
        if decision.allowed and asked:
            wait = ticks(decision.delay, run.tick)
            assert wait is not None
            booked.append((run.now + wait, asked))
        # What has passed already is given back whole, as the design says, however long ago.
        due = [entry for entry in booked if entry[0] > run.now]
        if cancel and due:
            at, taken = due[which % len(due)]
            booked.remove((at, taken))
            cancelled += 1
            refund = Ask("refund", run.limit, "key", taken, at=at * run.tick)
            run.store.decide([refund])
    booked.sort()
    for i in range(len(booked)):
        for j in range(i, len(booked)):
            span = booked[i : j + 1]
            # Who was booked for a whole tick leaves the part of a tick behind when cancelled.
            # A bucket's own instants are exact; each booking is moved up to its next whole tick.
            whole = 0 if "even" in case.text else 1
            elapsed = rate * (span[-1][0] - span[0][0] + batch + cancelled + whole)
            if "even" in case.text:
                assert sum(cost for _, cost in span[:-1]) <= elapsed
            elif "debt" in case.text:
                assert sum(cost for _, cost in span[:-1]) <= case.capacity + elapsed
            else:
                assert sum(cost for _, cost in span) <= case.capacity + elapsed


@given(st.one_of(cases.buckets(), cases.gcras(), cases.evens(), cases.debts()), starts, bookings)
def test_a_booking_cancelled_at_once_never_was(case: Case, start: int, trace: Bookings) -> None:
    run, twin = Run(case, start), Run(case, start)
    for number, (move, cost, eighths) in enumerate(trace):
        run.move(move)
        twin.move(move)
        asked = run.cost(cost)
        decision = run.book(asked, run.window * eighths // 8)
        if number % 2 == 0 and decision.delay:
            at = (run.now + (ticks(decision.delay, run.tick) or 0)) * run.tick
            run.store.decide([Ask("refund", run.limit, "key", asked, at=at)])
        else:
            other = twin.book(asked, run.window * eighths // 8)
            assert (decision.allowed, decision.delay) == (other.allowed, other.delay)
        twin.last = run.last = run.limiter.peek("key", 1)
        other = twin.limiter.peek("key", 1)
        assert (run.last.allowed, run.last.retry_after) == (other.allowed, other.retry_after)
        assert (run.last.remaining, run.last.reset_after) == (other.remaining, other.reset_after)


@st.composite
def queues(draw: st.DrawFn) -> Case:
    amount, window = draw(rates)
    queue = draw(st.integers(0, 12))
    delay = draw(st.integers(0, queue))
    return Case(
        f"{amount}/{window}us leaky-bucket queue {queue} delay {delay}",
        lambda tick: Queue(amount, window // tick, queue, delay),
        queue + 1,
        window,
    )


@given(queues(), starts, bookings)
def test_queue(case: Case, start: int, trace: Bookings) -> None:
    """Turns come in order and keep their distance; the queue holds what it should."""
    run = Run(case, start)
    model = run.model
    assert isinstance(model, Queue)
    turns: list[tuple[int, int]] = []
    for move, cost, eighths in trace:
        run.move(move)
        asked = run.cost(cost)
        if not asked:
            continue
        willing = run.window * eighths // 8
        turn = model.turn(run.now)
        decision = run.book(asked, willing) if eighths else run.hit(asked)
        fits = turn <= willing and model.ever(asked) and model.holds(run.now, asked)
        assert decision.allowed == fits, (run.now, asked, willing)
        if decision:
            assert ticks(decision.delay, run.tick) == turn
            model.enter(run.now, asked)
            turns.append((run.now + turn, asked))
    assert turns == sorted(turns, key=lambda pair: pair[0])
    if model.delay == 0 and model.rate < 1:
        for (at, taken), (later, _) in itertools.pairwise(turns):
            assert (later - at) * model.rate >= taken
    for i in range(len(turns)):
        for j in range(i + 1, len(turns)):
            between = sum(taken for _, taken in turns[i:j])
            whole = 0 if model.rate < 1 else 1  # of a tick that has room for several
            assert between <= model.size + model.rate * (turns[j][0] - turns[i][0] + whole)


@given(queues(), starts)
def test_a_queue_has_all_of_its_places(case: Case, start: int) -> None:
    """One in service and the whole queue, however the turns were moved to whole ticks."""
    run = Run(case, start)
    for _ in range(case.capacity):
        assert run.book(1, 100 * run.window)
    assert not run.book(1, 100 * run.window)


@given(queues(), starts, bookings)
def test_queue_numbers_come_true(case: Case, start: int, trace: Bookings) -> None:
    run = Run(case, start)
    for move, cost, eighths in trace:
        run.move(move)
        run.book(run.cost(cost), run.window * eighths // 8)
    remaining = run.limiter.peek("key").remaining
    for left in range(remaining, 0, -1):
        assert run.limiter.peek("key").remaining == left
        assert run.hit(1)
    refused = run.hit(1)
    assert not refused
    run.move(("retry", -1))
    assert not run.hit(1)
    run.advance(run.tick)
    assert run.hit(1)
    run.move(("reset", -1))
    assert run.limiter.peek("key").reset_after > 0
    run.advance(run.tick)
    assert run.limiter.peek("key").reset_after == 0


warm = st.sampled_from([1_000, 500_000, 1_000_000, 4_000_000, 10_000_000])


@st.composite
def warm_ups(draw: st.DrawFn) -> Case:
    amount = draw(st.integers(1, 200))
    window = draw(st.sampled_from([1_000, 1_000_000, 3_000_000, 60_000_000]))
    span, cold = draw(warm), draw(st.integers(1, 6))
    return Case(
        f"{amount}/{window}us warm-up {span}us cold {cold}",
        lambda tick: WarmUp(amount, window // tick, span // tick, cold),
        amount,
        window,
    )


@given(warm_ups(), starts, bookings)
def test_warm_up(case: Case, start: int, trace: Bookings) -> None:
    """Guava's waits, to the tick; the fixed point may tip an answer only where the exact instant
    lies on the edge of one."""
    run = Run(case, start)
    model = run.model
    assert isinstance(model, WarmUp)
    for move, cost, eighths in trace:
        run.move(move)
        asked = run.cost(cost)
        if not asked:
            continue
        willing = min(run.window, run.window * eighths // 8)
        exact = model.replay(run.now)[0] - run.now
        decision = run.book(asked, willing)
        told = ticks(decision.delay if decision else decision.retry_after, run.tick)
        assert told is not None
        assert abs(told - ceil(exact)) <= 1
        near = Fraction(1, 100)
        if told != ceil(exact):
            assert abs(exact - round(exact)) < near
        elif decision:
            assert told <= willing
        else:
            assert told > willing
        if decision:
            model.enter(run.now, asked)
        assert decision.remaining == int(model.replay(run.now)[0] - run.now <= 0)


@given(warm_ups(), starts, steps)
def test_warm_up_is_cold_again_after_reset_after(case: Case, start: int, trace: Trace) -> None:
    run = Run(case, start)
    for move, cost in trace:
        run.move(move)
        run.hit(run.cost(cost))
    run.last = run.limiter.peek("key")
    run.move(("reset", 0))
    assert run.limiter.peek("key").reset_after == 0
    for move, cost in trace:
        run.move(move)
        asked = run.cost(cost)
        other = run.limiter.hit("never seen before", asked)
        decision = run.hit(asked)
        assert (decision.allowed, decision.retry_after) == (other.allowed, other.retry_after)
