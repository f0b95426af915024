"""The last seconds: rings, pauses, and how long things took."""

from __future__ import annotations

from gate_tools import rule
from hypothesis import given
from hypothesis import strategies as st
from telemetry_tools import ANNA, Hands, watched

from headgate.telemetry.buckets import LATENCIES, WAITS, percentile
from headgate.telemetry.counts import CELLS
from headgate.telemetry.rolling import MOST, Rolling


def cells(*numbers: int) -> list[int]:
    return [*numbers, *[0] * (CELLS - len(numbers))]


def test_seconds_one_by_one() -> None:
    clock = Hands()
    with watched(rule("api", "3/minute", key="user"), clock=clock, seconds=5) as (gate, telemetry):
        gate.check(ANNA)
        assert telemetry.tick()
        assert not telemetry.tick()
        assert telemetry.rolling.second() == {}  # what was before the first tick is not a rate
        for _ in range(4):
            gate.check(ANNA)
        clock.now += 1.2
        assert telemetry.tick()
        counted = {"allowed": 2, "refused": 2}
        assert telemetry.rolling.second() == {"": counted, "api": counted}
        clock.now += 1
        telemetry.tick()
        assert telemetry.rolling.second() == {}
        assert telemetry.rolling.second(1001) == {"": counted, "api": counted}
        assert telemetry.rolling.history(3)["api"] == {"allowed": [0, 2, 0], "refused": [0, 2, 0]}
        clock.now += 10
        telemetry.tick()
        assert telemetry.rolling.history(60) == {}
        assert telemetry.rolling.second(1001) == {}


def test_a_pause_is_spread_over_its_seconds() -> None:
    rolling = Rolling(10)
    rolling.tick(100, {"a": cells(5)}, cells())
    rolling.tick(103, {"a": cells(5 + 7)}, cells())
    assert rolling.history(4)["a"]["allowed"] == [0, 2, 2, 3]
    rolling.tick(200, {"a": cells(12 + 10)}, cells())
    assert rolling.history(10)["a"]["allowed"] == [1] * 10


def test_a_clock_that_goes_back_is_waited_for() -> None:
    rolling = Rolling(10)
    rolling.tick(100, {}, cells())
    assert not rolling.tick(90, {"a": cells(3)}, cells())
    assert rolling.tick(101, {"a": cells(3)}, cells())
    assert rolling.second()["a"] == {"allowed": 3}


def test_a_count_that_falls_is_no_count() -> None:
    rolling = Rolling(10)
    rolling.tick(100, {"a": cells(9)}, cells())
    rolling.tick(101, {"a": cells(2)}, cells())
    assert rolling.second() == {}


def test_so_many_rules_have_a_ring() -> None:
    rolling = Rolling(2)
    rolling.tick(1, {}, cells())
    rolling.tick(2, {f"rule {number}": cells(1) for number in range(MOST + 50)}, cells())
    assert len(rolling.second()) == MOST


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 50)), max_size=40))
def test_rings_lose_nothing(steps: list[tuple[int, int]]) -> None:
    rolling, now, total = Rolling(200), 100, 0
    rolling.tick(now, {"a": cells(0)}, cells())
    for seconds, count in steps:
        now, total = now + seconds, total + count
        rolling.tick(now, {"a": cells(total)}, cells())
    rolling.tick(now + 1, {"a": cells(total)}, cells())
    assert sum(rolling.history(200).get("a", {}).get("allowed", [])) == total


def test_percentiles() -> None:
    assert percentile([0] * 15, WAITS, 0.5) == 0.0
    assert percentile([100, *[0] * 14], WAITS, 0.5) == 0.0005
    assert percentile([50, 50, *[0] * 13], WAITS, 0.99) == 0.001 + 0.0015 * 49 / 50
    assert percentile([*[0] * 14, 1], WAITS, 0.5) == 30.0  # and more; nobody knows how much


def test_times_of_the_last_seconds_only() -> None:
    rolling, fast, slow = Rolling(100), LATENCIES.index(0.0001), LATENCIES.index(0.1)
    now = [0] * CELLS
    for second in range(1, 80):
        now[slow if second <= 10 else fast] += 10
        rolling.tick(second, {}, list(now))
    assert rolling.times(30)["store"]["p99"] <= 0.0001
    assert rolling.times(100)["store"]["p99"] >= 0.05
    assert rolling.times(30)["wait"] == {"count": 0}


def test_times_before_anything_happened() -> None:
    assert Rolling().times() == {"store": {"count": 0}, "wait": {"count": 0}}
