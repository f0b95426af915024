"""Several limits at once: all of them or none."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headgate import Ask, Decision, Limiter, ManualClock

from . import cases
from .support import SECOND, Case, Cost, Move, Run, costs, make_store, moves, starts, steps

Trace = list[tuple[Move, Cost]]

two_or_three = st.lists(cases.plain, min_size=2, max_size=3, unique_by=lambda case: case.text)


class Together:
    """One limiter of several limits, and for each limit a limiter that stands alone."""

    def __init__(self, limits: list[Case], start: int) -> None:
        self.alone = [Run(case, start) for case in limits]
        self.clock = ManualClock()
        self.clock.advance(start / SECOND)
        self.limiter = Limiter(*(case.text for case in limits), store=make_store(self.clock))

    def move(self, which: int, move: Move) -> Run:
        """Let time pass as one of the limits sees it."""
        guide = self.alone[which % len(self.alone)]
        before = guide.clock.micros()
        guide.move(move)
        passed = guide.clock.micros() - before
        self.clock.advance(passed / SECOND)
        for run in self.alone:
            if run is not guide:
                run.advance(passed)
        return guide


def numbers(decision: Decision) -> tuple[int, float]:
    return decision.remaining, decision.reset_after


@given(
    two_or_three,
    starts,
    st.lists(st.tuples(st.integers(0, 2), moves, costs), min_size=1, max_size=25),
)
def test_all_or_nothing(
    limits: list[Case], start: int, trace: list[tuple[int, Move, Cost]]
) -> None:
    together = Together(limits, start)
    for which, move, cost in trace:
        guide = together.move(which, move)
        asked = guide.cost(cost)
        foreseen = [run.limiter.peek("key", asked) for run in together.alone]
        fits = [run.model.copy().take(run.now, asked) for run in together.alone]
        decision = together.limiter.hit("key", asked)
        assert decision.allowed == all(fits)
        assert [part.allowed for part in decision.parts] == fits
        assert decision.retry_after == max(one.retry_after for one in foreseen)
        if all(fits):
            for run in together.alone:
                run.model.take(run.now, asked)
                run.hit(asked)
        for run in together.alone:
            run.last = run.limiter.peek("key", 1)
        seen = together.limiter.peek("key", 1)
        assert [numbers(part) for part in seen.parts] == [
            numbers(run.limiter.peek("key", 1)) for run in together.alone
        ]
        assert seen.remaining == min(part.remaining for part in seen.parts)
        assert decision.reset_after == max(part.reset_after for part in decision.parts)
        if decision.allowed:
            assert decision.remaining == seen.remaining


@given(two_or_three, starts, st.lists(st.tuples(st.integers(0, 2), moves, costs), max_size=20))
def test_partial_grants_of_all(
    limits: list[Case], start: int, trace: list[tuple[int, Move, Cost]]
) -> None:
    """The grant is what the tightest limit has left, taken from each of them."""
    together = Together([case for case in limits if "even" not in case.text] or limits[:1], start)
    for which, move, cost in trace:
        asked = together.move(which, move).cost(cost)
        left = min(run.limiter.peek("key").remaining for run in together.alone)
        decision = together.limiter.hit("key", asked, partial=True)
        assert decision.granted == min(asked, left)
        for run in together.alone:
            if decision.granted:
                run.hit(decision.granted)
            run.last = run.limiter.peek("key", 1)


@given(st.lists(st.tuples(cases.plain, st.integers(0, 2)), min_size=2, max_size=4), steps)
def test_different_keys_in_one_decide(asked: list[tuple[Case, int]], trace: Trace) -> None:
    """Takes on different keys pass together; a shadow never vetoes, a check takes nothing."""
    clock = ManualClock(1000.0)
    store = make_store(clock)
    runs = [Run(case, 1000 * SECOND) for case, _ in asked]
    for move, cost in trace:
        before = runs[0].clock.micros()
        runs[0].move(move)
        passed = runs[0].clock.micros() - before
        clock.advance(passed / SECOND)
        for run in runs[1:]:
            run.advance(passed)
        price = runs[0].cost(cost)
        ops = [("take", "shadow", "check")[kind] for _, kind in asked]
        decisions = store.decide(
            [
                Ask(op, run.limit, f"key {place}", price)
                for place, (op, run) in enumerate(zip(ops, runs, strict=True))
            ]
        )
        fits = [run.model.copy().take(run.now, price) for run in runs]
        assert [decision.allowed for decision in decisions] == fits
        passes = all(fit for fit, op in zip(fits, ops, strict=True) if op == "take")
        for run, op in zip(runs, ops, strict=True):
            if (op == "take" and passes) or (op == "shadow" and passes):
                run.model.take(run.now, price)
