"""The two forms: every algorithm decides the same, bit for bit, compiled and not."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headgate
from twin import pure

from .test_every import LIMITS, calls, play

pytestmark = pytest.mark.skipif(not headgate.compiled, reason=repr(headgate.compiled))

MORE = (
    "999983/second gcra", "999983/second burst 7", "9007199/second", "1000000000/month",
    "2147483648/day burst 9", "1/366d gcra", "1000/3s even", "1000/day warm-up 1h cold 7",
    "3/hour fixed-window anchor 2026-01-01T00:30Z", "2/month tz America/New_York",
    "100/minute soft 10% elastic 50%", "5/s cells 60", "500/hour sliding-log",
)  # fmt: skip
limits = st.sampled_from((*LIMITS, *MORE))
word = st.one_of(
    st.integers(0, 20), st.integers(0, 2**53 - 1), st.integers(0, 2**62), st.sampled_from([2**62])
)
instant = st.one_of(st.integers(0, 10**6), st.integers(1_790_000_000_000_000, 2**52))
cost = st.one_of(st.integers(1, 12), st.integers(1, 2**53 - 1), st.just(2**53 - 1))
steps = st.one_of(st.integers(0, 3), st.integers(0, 10**8), st.integers(-(10**8), -1))


class Pair:
    """A limit's rule in both forms."""

    def __init__(self, text: str, permille: int) -> None:
        self.one, self.other = (
            import_module(f"{package}.algorithms").rule_of(
                import_module(f"{package}.limit").Limit.parse(text), permille
            )
            for package in ("headgate", pure().__name__)
        )
        assert type(self.one) is not type(self.other)

    def both(self, method: str, *args: Any) -> Any:
        answers = [getattr(rule, method)(*args) for rule in (self.one, self.other)]
        assert answers[0] == answers[1], (method, args)
        return answers[0]


@given(limits, st.sampled_from([0, 500, 1000]), st.lists(st.tuples(cost, steps), max_size=30))
def test_rules_over_a_life(text: str, permille: int, trace: list[tuple[int, int]]) -> None:
    pair = Pair(text, permille)
    if not pair.one.words:
        return
    now = 1_790_000_000_000_000 // pair.one.tick
    state = pair.both("fresh", now)
    for number, (cost, step) in enumerate(trace):
        now = max(0, now + step)
        match number % 5:
            case 0 | 1:
                state = pair.both("take", *state, now, cost, 0)[1:]
            case 2:
                wait = min(cost, pair.one.horizon)
                state = pair.both("take", *state, now, min(cost, 3), wait)[1:]
            case 3:
                state = pair.both("charge", *state, now, cost)
            case _:
                state = pair.both("refund", *state, now, cost, max(0, now - step))
        pair.both("look", *state, now, min(cost, 7))
        pair.both("look", *state, now, cost)
        pair.both("used", *state, now)
        pair.both("forecast", *state, now, 5, 2)
        assert all(0 <= part <= 2**62 for part in state)


# Without steps back of the clock, after which it matters when an idle key is forgotten.
@given(limits, st.lists(calls.filter(lambda call: call[0] != "back"), max_size=40))
def test_limiters_of_both_forms_answer_alike(text: str, trace: list[Any]) -> None:
    clocks = headgate.ManualClock(1_000_000), pure().ManualClock(1_000_000)
    one = headgate.Limiter(text, clock=clocks[0])
    other = pure().Limiter(text, clock=clocks[1])
    for call in trace:
        answers = []
        for limiter, clock in ((one, clocks[0]), (other, clocks[1])):
            try:
                answers.append(play(limiter, clock, call))
            except (headgate.LimitExceeded, pure().LimitExceeded):
                answers.append("refused")
        assert answers[0] == answers[1], call
    keys: list[Any] = ["a", "b", "c", ("c", "d")]
    assert [repr(d) for d in one.hit_many(keys)] == [repr(d) for d in other.hit_many(keys)]


SEVERAL = (
    ("10/second", "15/minute gcra"), ("3/second token-bucket", "5/10s fixed-window", "7/minute"),
    ("2/second even", "9/minute leaky-bucket burst 3"), ("5/s queue 3", "20/minute first-hit"),
    ("3/second debt", "10/minute"), ("4/second", "9/minute cells 6"),
    ("2/second burst 2 initial 0", "9/minute gcra"), ("3/s", "1/day tz Asia/Tokyo", "5/hour"),
)  # fmt: skip


@given(
    st.sampled_from(SEVERAL), st.lists(calls.filter(lambda call: call[0] != "back"), max_size=40)
)
def test_several_limits_answer_alike_in_both_forms(texts: Any, trace: list[Any]) -> None:
    clocks = headgate.ManualClock(1_000_000), pure().ManualClock(1_000_000)
    one = headgate.Limiter(*texts, clock=clocks[0])
    other = pure().Limiter(*texts, clock=clocks[1])
    for call in trace:
        answers = []
        for limiter, clock in ((one, clocks[0]), (other, clocks[1])):
            try:
                answers.append(play(limiter, clock, call))
            except (headgate.LimitExceeded, pure().LimitExceeded):
                answers.append("refused")
        assert answers[0] == answers[1], call
        looks = [repr(limiter.hit("a").parts) for limiter in (one, other)]
        assert looks[0] == looks[1]


@given(limits, st.lists(st.tuples(cost, steps), min_size=1, max_size=60))
def test_packed_states_come_back(text: str, trace: list[tuple[int, int]]) -> None:
    pair = Pair(text, 0)
    if pair.one.words:
        return
    states = [pair.one.empty(), pair.other.empty()]
    now = 1_790_000_000_000_000
    for cost, step in trace:
        now = max(0, now + step)
        for place, rule in enumerate((pair.one, pair.other)):
            rule.hit(states[place], now // rule.tick, min(cost, 300))
        packed = [
            rule.dump(state) for rule, state in zip((pair.one, pair.other), states, strict=True)
        ]
        assert packed[0] == packed[1]
        states = [rule.load(packed[0]) for rule in (pair.one, pair.other)]
        assert pair.one.dump(states[0]) == packed[0]
