"""The bounds each algorithm promises, counted over everything a greedy crowd got through."""

from __future__ import annotations

import itertools
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from headgate import Limiter, ManualClock

from . import cases
from .support import Case, Cost, Move, Run, make_store, starts, steps

Trace = list[tuple[Move, Cost]]
Passed = list[tuple[int, int]]


def admitted(case: Case, start: int, trace: Trace) -> tuple[Run, Passed]:
    """The instants, in ticks, and costs of what passed."""
    run = Run(case, start)
    passed = []
    for move, cost in trace:
        run.move(move)
        asked = (run.cost(cost), 1, 1)
        passed += [(run.now, price) for price in asked if run.hit(price) and price]
    return run, passed


def spans(passed: Passed) -> list[Passed]:
    """Every stretch of consecutive calls."""
    return [passed[i:j] for i in range(len(passed)) for j in range(i + 1, len(passed) + 1)]


def total(passed: Passed) -> int:
    return sum(cost for _, cost in passed)


def most_in(passed: Passed, length: Fraction | int) -> int:
    """The most in any half-open span of time of this length."""
    return max(
        (sum(cost for at, cost in passed if 0 <= at - begin < length) for begin, _ in passed),
        default=0,
    )


def most_in_aligned(passed: Passed, window: int) -> int:
    return max(
        (
            sum(cost for at, cost in passed if at // window == begin // window)
            for begin, _ in passed
        ),
        default=0,
    )


@given(cases.fixed_windows(), starts, steps)
def test_fixed_window(case: Case, start: int, trace: Trace) -> None:
    run, passed = admitted(case, start, trace)
    assert most_in_aligned(passed, run.window) <= case.capacity
    assert most_in(passed, run.window) <= 2 * case.capacity


@given(cases.counters(), starts, steps)
def test_sliding_window(case: Case, start: int, trace: Trace) -> None:
    run, passed = admitted(case, start, trace)
    assert most_in_aligned(passed, run.window) <= case.capacity
    assert most_in(passed, run.window) <= max(case.capacity, 2 * case.capacity - 1)


@given(cases.cells(), starts, steps)
def test_sliding_cells(case: Case, start: int, trace: Trace) -> None:
    run, passed = admitted(case, start, trace)
    n = int(case.text.split()[-1])
    assert most_in(passed, Fraction(run.window * (n - 1), n)) <= case.capacity
    assert most_in(passed, run.window) <= 2 * case.capacity


def test_sliding_cells_example() -> None:
    clock = ManualClock(0.99)
    limiter = Limiter("100/second cells 4", store=make_store(clock))
    assert limiter.hit(cost=100)
    clock.advance(1.75 - 0.99 - 0.000001)
    assert not limiter.hit()
    clock.advance(0.000001)
    assert limiter.hit()


@given(cases.logs(), starts, steps)
def test_sliding_log(case: Case, start: int, trace: Trace) -> None:
    run, passed = admitted(case, start, trace)
    assert most_in(passed, run.window) <= case.capacity


@given(st.one_of(cases.buckets(), cases.gcras(), cases.stepped(), cases.meters()), starts, steps)
def test_buckets(case: Case, start: int, trace: Trace) -> None:
    run, passed = admitted(case, start, trace)
    rate = Fraction(run.limit.amount, run.window)
    batch = run.limit.refill // run.tick  # a batch may hold the inflow of the time before
    for span in spans(passed):
        elapsed = span[-1][0] - span[0][0]
        assert total(span) <= case.capacity + rate * (elapsed + batch)


@given(cases.debts(), starts, steps)
def test_debt(case: Case, start: int, trace: Trace) -> None:
    run, passed = admitted(case, start, trace)
    rate = Fraction(run.limit.amount, run.window)
    for span in spans(passed):
        assert total(span[:-1]) <= case.capacity + rate * (span[-1][0] - span[0][0])


def test_debt_example() -> None:
    clock = ManualClock()
    limiter = Limiter("1/second debt burst 5", store=make_store(clock))
    assert limiter.hit(cost=10)
    refused = limiter.hit()
    assert not refused
    assert refused.retry_after == 5


@given(cases.evens(), starts, steps)
def test_even(case: Case, start: int, trace: Trace) -> None:
    run, passed = admitted(case, start, trace)
    interval = Fraction(run.window, case.capacity)
    for (at, cost), (later, _) in itertools.pairwise(passed):
        assert later - at >= cost * interval


@given(cases.plain, starts, steps, st.integers(0, 250))
def test_soft_limits_are_limits_raised_by_so_much(
    case: Case, start: int, trace: Trace, percent: int
) -> None:
    """The soft limit decides like a hard one whose numbers are raised and rounded down."""
    soft = Case(f"{case.text} soft {percent}%", case.model, case.capacity, case.window)
    one = Run(soft, start)
    two = Run(raised(one, case, percent), start)
    if one.tick != two.tick:
        return  # the finest tick that holds the numbers is chosen for each
    for move, cost in trace:
        one.move(move)
        two.move(move)
        asked = one.cost(cost)
        a, b = one.hit(asked), two.hit(asked)
        assert (a.allowed, a.remaining) == (b.allowed, b.remaining)
        assert (a.retry_after, a.reset_after) == (b.retry_after, b.reset_after)


def raised(run: Run, case: Case, percent: int) -> Case:
    words = case.text.split()
    amount, per = words[0].split("/")
    words[0] = f"{int(amount) + int(amount) * percent // 100}/{per}"
    for place, word in enumerate(words):
        if word in ("burst", "queue"):
            extra = word == "queue" or "leaky-bucket" in words  # these hold one in service
            held = int(words[place + 1]) + extra
            words[place + 1] = str(held + held * percent // 100 - extra)
    return Case(" ".join(words), case.model, case.capacity, case.window)


@given(cases.plain, starts, steps, st.integers(1, 250))
def test_elastic_limits_have_the_room_the_signal_says(
    case: Case, start: int, trace: Trace, percent: int
) -> None:
    """With no room an elastic limit is the plain one; with all of it, the soft one; and it is
    asked once for each hit."""
    asked_for = []

    def room() -> float:
        asked_for.append(1)
        return float("nan")

    elastic = Case(f"{case.text} elastic {percent}%", case.model, case.capacity, case.window)
    soft = Case(f"{case.text} soft {percent}%", case.model, case.capacity, case.window)
    pairs = [
        (Run(elastic, start, room=room), Run(case, start)),
        (Run(elastic, start, room=lambda: 1.0), Run(soft, start)),
    ]
    for one, two in pairs:
        if one.tick != two.tick:
            return
        for move, cost in trace:
            one.move(move)
            two.move(move)
            cost_now = two.cost(cost)
            asked_for.clear()
            a, b = one.hit(cost_now), two.hit(cost_now)
            assert one is not pairs[0][0] or len(asked_for) == 1
            assert (a.allowed, a.remaining) == (b.allowed, b.remaining)
            assert (a.retry_after, a.reset_after) == (b.retry_after, b.reset_after)


@given(
    st.integers(1, 40), st.integers(0, 300), st.lists(st.tuples(st.floats(0, 1), st.integers(0, 9)))
)
def test_an_elastic_count_follows_the_signal(
    amount: int, percent: int, trace: list[tuple[float, int]]
) -> None:
    """Each hit meets the limit of its own moment, and never more than the largest one."""
    now_open = [0.0]
    limiter = Limiter(
        f"{amount}/day fixed-window elastic {percent}%",
        store=make_store(ManualClock()),
        room=lambda: now_open[0],
    )
    used = 0
    for share, cost in trace:
        now_open[0] = share
        thousandths = int(share * 1000)
        effective = amount + amount * percent * thousandths // 100_000
        decision = limiter.hit(cost=cost)
        assert decision.allowed == (cost == 0 or used + cost <= effective)
        used += decision.granted
        assert decision.remaining == max(0, effective - used)
    assert used <= amount + amount * percent // 100
