"""Partitions: guarantees hold whatever the others do; low priorities are refused first."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate import ManualClock
from headgate.resilience.adaptive import AdaptiveLimiter, Fixed, Partitions
from headgate.resilience.entrance import Permit

EXAMPLES = int(os.environ.get("HEADGATE_EXAMPLES", "100"))
NAMES = ("checkout", "search", "batch", "")


def seats(limit: int, **more: Any) -> Partitions:
    partitions = Partitions(**more)
    partitions.resize(limit)
    return partitions


def fill(partitions: Partitions, name: str, priority: int = 0) -> int:
    """How many calls of a kind get in."""
    count = 0
    while partitions.fits(name, priority):
        partitions.take(name)
        count += 1
    return count


class TestShares:
    def test_what_is_not_used_is_lent(self) -> None:
        found = seats(10, shares={"a": 0.6, "b": 0.4})
        assert fill(found, "b") == 10

    def test_a_guarantee_holds_beside_a_full_house(self) -> None:
        found = seats(10, shares={"a": 0.6, "b": 0.4})
        fill(found, "b")
        assert fill(found, "a") == 6
        found.give("b")
        assert not found.fits("b", 0)  # what was lent is not lent again

    def test_kept_free(self) -> None:
        found = seats(10, shares={"a": 0.6, "b": 0.2}, lend=False)
        assert fill(found, "b") == 4  # its own two, and two that nobody was promised
        assert fill(found, "a") == 6
        assert found.total == 10

    def test_strangers_have_what_is_left(self) -> None:
        found = seats(10, shares={"a": 0.6}, lend=False)
        assert found.known("who?") == ""
        assert fill(found, "") == 4

    def test_a_small_limit_keeps_one_seat_each(self) -> None:
        found = seats(2, shares={"a": 0.1, "b": 0.9})
        assert found.seats == {"a": 1, "b": 1}

    def test_shares_follow_the_limit(self) -> None:
        found = seats(10, shares={"a": 0.5})
        found.resize(30)
        assert found.seats == {"a": 15}

    @pytest.mark.parametrize("parts", [{"a": 0.3, "b": 0.7}, {"a": 0.1, "b": 0.2, "c": 0.7}])
    def test_parts_of_one_whole(self, parts: Mapping[str, float]) -> None:
        assert sum(seats(10, shares=parts).seats.values()) == 10

    @pytest.mark.parametrize("shares", [{"a": 0.6, "b": 0.5}, {"a": -0.1}, {"a": 2}])
    def test_shares_are_checked(self, shares: Mapping[str, float]) -> None:
        with pytest.raises(ValueError, match="share"):
            Partitions(shares)

    def test_names_are_checked(self) -> None:
        with pytest.raises(TypeError, match="name"):
            Partitions({"": 0.5})
        with pytest.raises(TypeError, match="number"):
            Partitions({"a": "half"})  # type: ignore[dict-item] # on purpose


class TestPriorities:
    def test_low_ones_are_refused_first(self) -> None:
        found = seats(10)
        assert fill(found, "", -2) == 5
        assert fill(found, "", -1) == 3
        assert fill(found, "", 0) == 2
        assert fill(found, "", 9) == 0

    def test_room_may_be_kept_for_high_ones(self) -> None:
        found = seats(10, ladder={0: 0.9, 1: 1.0})
        assert fill(found, "", 0) == 9
        assert fill(found, "", 1) == 1

    def test_within_a_partition_too(self) -> None:
        found = seats(10, shares={"a": 0.5, "b": 0.5})
        fill(found, "b")
        assert fill(found, "a", -1) == 4
        assert fill(found, "a", 0) == 1

    def test_those_not_named_are_as_the_next_below(self) -> None:
        found = seats(10, ladder={-5: 0.2, 0: 0.5, 5: 1.0})
        parts = [found.ladder.part(priority) for priority in (-9, -5, -1, 0, 4, 5, 99)]
        assert parts == [0.2, 0.2, 0.2, 0.5, 0.5, 1.0, 1.0]

    @pytest.mark.parametrize("ladder", [{}, {0: 0.0}, {0: 1.5}, {0: 1.0, 1: 0.5}])
    def test_parts_are_checked(self, ladder: Mapping[int, float]) -> None:
        with pytest.raises(ValueError, match="priorit"):
            Partitions(ladder=ladder)

    def test_low_traffic_does_not_crowd_out_the_rest(self, manual_clock: ManualClock) -> None:
        limiter = AdaptiveLimiter(Fixed(10), clock=manual_clock)
        low = [limiter.admit(priority=-1) for _ in range(100)]
        assert sum(map(bool, low)) == 8
        assert limiter.admit()


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("enter"), st.sampled_from(NAMES), st.integers(-3, 2)),
        st.tuples(st.just("leave"), st.integers(0, 50), st.booleans()),
        st.tuples(st.just("limit"), st.integers(1, 40), st.none()),
    ),
    max_size=120,
)


class Set:
    """An estimator that is told its limit."""

    def __init__(self, limit: int) -> None:
        self.limit = limit

    def sample(self, rtt: int, in_flight: int, dropped: bool = False) -> int:
        return self.limit


@settings(max_examples=EXAMPLES, deadline=None)
@given(
    steps=STEPS,
    limit=st.integers(1, 40),
    weights=st.lists(st.integers(0, 10), min_size=4, max_size=4).filter(any),
    lend=st.booleans(),
)
def test_guarantees_hold_under_any_interleaving(
    steps: list[tuple[str, Any, Any]], limit: int, weights: list[int], lend: bool
) -> None:
    shares = {
        name: weight / sum(weights) for name, weight in zip(NAMES[:3], weights[1:], strict=True)
    }
    estimator = Set(limit)
    limiter = AdaptiveLimiter(
        estimator, partitions=shares, lend=lend, window=0, clock=ManualClock(1.0)
    )
    busy = dict.fromkeys(NAMES, 0)
    inside: list[tuple[str, Permit]] = []
    largest = limit
    for verb, what, more in steps:
        owned = {
            name: max(1, int(limiter.limit * share + 1e-9)) if share else 0
            for name, share in shares.items()
        }
        if verb == "enter":
            before = limiter.in_flight
            kept = sum(max(busy[name], owned.get(name, 0)) for name in NAMES)
            permit = limiter.admit(what, more)
            guaranteed = owned.get(what, 0)
            if more >= 0 and busy[what] < guaranteed:
                assert permit, "a guarantee was broken"
            if isinstance(permit, Permit):
                inside.append((what, permit))
                busy[what] += 1
                if busy[what] > guaranteed:  # lent, and only of what is there
                    assert (before if lend else kept) < limiter.limit
            elif before < limiter.limit * 0.5 and lend:
                raise AssertionError("refused although half of the seats are free")
        elif verb == "leave" and inside:
            name, permit = inside.pop(what % len(inside))
            permit.release("success" if more else "ignored")
            busy[name] -= 1
        elif verb == "limit":
            estimator.limit = what
            largest = max(largest, what)
        assert limiter.in_flight == sum(busy.values())
        bound = largest + 3  # of tiny limits each guarantee has a seat
        assert limiter.in_flight <= (2 * bound if lend else bound)
    for _, permit in inside:
        permit.release()
    assert limiter.in_flight == 0
    assert set(limiter._hall.seats.busy.values()) == {0}
