"""Limits that change while keys are in use: what was used stays used."""

from __future__ import annotations

from fractions import Fraction
from math import ceil

from hypothesis import given
from hypothesis import strategies as st

from headgate import Ask, Limiter, ManualClock
from models.bucket import Bucket
from models.fixed_window import FirstHitWindow, FixedWindow
from models.sliding import Cells, Counter, Log

from . import cases
from .support import Case, Cost, Move, Run, costs, make_store, moves, starts, steps

Trace = list[tuple[Move, Cost]]

counting = st.one_of(
    cases.fixed_windows(), cases.first_hits(), cases.counters(), cases.cells(), cases.logs()
)
changes = st.lists(st.tuples(moves, costs, st.integers(-1, 25)), min_size=1, max_size=25)


@given(counting, starts, changes)
def test_counts_stay_when_the_amount_changes(
    case: Case, start: int, trace: list[tuple[Move, Cost, int]]
) -> None:
    """Also back to the limiter's own limit."""
    run = Run(case, start)
    model = run.model
    assert isinstance(model, FixedWindow | FirstHitWindow | Counter | Cells | Log)
    rest = case.text.partition("/")[2]
    for move, cost, amount in trace:
        if amount > 0:
            text = f"{amount}/{rest}"
            if Limiter(text).limits[0].tick == run.tick:  # else it is another kind of limit
                run.limiter.set_limit("key", text)
                model.amount = amount
        elif amount == 0:
            run.limiter.set_limit("key", None)
            model.amount = case.capacity
        run.step(move, cost)


@given(cases.buckets(), starts, changes, st.booleans())
def test_missing_tokens_stay_missing(
    case: Case, start: int, trace: list[tuple[Move, Cost, int]], faster: bool
) -> None:
    """Size and rate change under the same level, at the instant of the change."""
    run = Run(case, start)
    model = run.model
    assert isinstance(model, Bucket)
    amount = run.limit.amount
    for move, cost, size in trace:
        run.step(move, cost)
        if size <= 0:
            continue
        amount = amount + size if faster else amount
        text = f"{amount}/{case.window}us token-bucket burst {size}"
        if Limiter(text).limits[0].tick != run.tick:
            continue
        missing = model.used(run.now)
        run.limiter.set_limit("key", text)
        model.events.clear()
        model.first, model.capacity = run.now, size
        model.rate = Fraction(amount, run.window)
        # The level is carried as what is missing, and may be below nothing.
        model.events.append((run.now, 0))
        model.initial = size
        model.events.append((run.now, missing))  # type: ignore[arg-type]  # a part of a token


sources = st.one_of(counting, cases.buckets(), cases.gcras(), cases.meters())
targets = counting


@given(sources, targets, starts, steps, steps)
def test_another_algorithm_takes_over_what_is_in_use(
    old: Case, new: Case, start: int, before: Trace, after: Trace
) -> None:
    """It is entered as just used, rounded up."""
    run, other = Run(old, start), Run(new, start)
    for move, cost in before:
        run.step(move, cost)
    other.advance(run.clock.micros() - other.clock.micros())
    if old.text.split()[1:] == new.text.split()[1:]:
        return  # of one kind: the state itself is kept
    used = run.model.used(run.now)
    assert isinstance(used, int | Fraction)
    if used:
        other.model.enter(other.now, ceil(used))
    run.limiter.set_limit("key", new.text)
    other.limiter = run.limiter
    other.last = run.last
    for move, cost in after:
        if move[0] in ("retry", "reset"):
            continue  # what was told under another limit
        earlier = other.clock.micros()
        other.move(move)
        run.advance(other.clock.micros() - earlier)
        other.step(("stay", 0), cost)


@given(st.integers(1, 9), st.lists(st.tuples(st.sampled_from("tlr"), st.integers(1, 9))))
def test_permits_stay_held(amount: int, trace: list[tuple[str, int]]) -> None:
    limiter = Limiter(f"{amount} concurrent", store=make_store(ManualClock()))
    limit = limiter.limits[0]
    held: list[int] = []
    for token, (act, number) in enumerate(trace, start=1):
        if act == "t":
            asked = Ask("take", limit, "key", 1, token=token)
            decision = limiter.store.decide([asked])[0]
            assert decision.allowed == (len(held) < amount)
            if decision.allowed:
                held.append(token)
        elif act == "l":
            amount = number
            limiter.set_limit("key", f"{amount} concurrent")
        elif held:
            released = Ask("release", limit, "key", 0, token=held.pop(number % len(held)))
            assert limiter.store.decide([released])[0].allowed
        assert limiter.peek("key").remaining == max(0, amount - len(held))


@given(st.integers(1, 20), st.lists(st.tuples(st.integers(1, 30), st.integers(0, 30)), max_size=20))
def test_limit_for_changes_as_set_limit_does(amount: int, trace: list[tuple[int, int]]) -> None:
    own = {"key": f"{amount}/day fixed-window"}
    limiter = Limiter("5/day fixed-window", store=make_store(ManualClock(1e9)), limit_for=own)
    used = 0
    for changed, cost in trace:
        own["key"] = f"{changed}/day fixed-window"
        decision = limiter.hit("key", cost)
        assert decision.allowed == (cost == 0 or used + cost <= changed)
        used += decision.granted
        assert decision.remaining == max(0, changed - used)
    assert limiter.peek("other").remaining == 5
