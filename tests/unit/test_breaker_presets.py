"""Presets: the defaults and comparisons that other breakers have."""

from __future__ import annotations

import pytest
from breaker_tools import Boom, play

from headgate import ManualClock
from headgate.resilience.breaker import Breaker, Settings
from headgate.resilience.breaker.presets import (
    consecutive,
    hystrix,
    resilience4j,
    sentinel_error_count,
    sentinel_error_ratio,
    sentinel_slow_ratio,
)


def made(settings: Settings, clock: ManualClock) -> Breaker:
    return Breaker("db", settings, clock=clock)


class TestResilience4j:
    def test_defaults(self) -> None:
        found = resilience4j()
        assert (found.failure_ratio, found.slow_ratio, found.slow_after) == (0.5, 1.0, 60.0)
        assert (found.window, found.least, found.probes, found.wait) == (100, 100, 10, 60.0)
        assert not found.automatic

    def test_a_hundred_calls(self, manual_clock: ManualClock) -> None:
        found = made(resilience4j(), manual_clock)
        play(found, "F" * 50 + "S" * 49)
        assert found.state == "closed"
        play(found, "S")
        assert found.state == "open"
        manual_clock.advance(60.1)
        assert play(found, "SSSSSSFFFF") == "SSSSSSFFFF"
        assert found.state == "closed"

    def test_changes(self) -> None:
        assert resilience4j(window=10).least == 10


class TestSentinel:
    def test_defaults(self) -> None:
        for found in (
            sentinel_slow_ratio(0.05, wait=10),
            sentinel_error_ratio(0.5, wait=10),
            sentinel_error_count(3, wait=10),
        ):
            assert (found.least, found.window_seconds, found.cells, found.probes) == (5, 1.0, 1, 1)

    def test_slow_ratio(self, manual_clock: ManualClock) -> None:
        found = made(sentinel_slow_ratio(0.05, ratio=0.5, wait=10, interval=10), manual_clock)
        play(found, "SS", seconds=0.05)
        play(found, "SS", seconds=0.051)
        assert found.state == "closed"  # 4 calls
        play(found, "SSF")  # errors are nothing to this strategy
        assert (found.state, found.metrics().slow_calls) == ("closed", 2)
        play(found, "SSSS", seconds=0.06)
        assert found.state == "open"  # 6 of 11: passed, not reached

    def test_exactly_the_ratio_does_not_trip(self, manual_clock: ManualClock) -> None:
        found = made(sentinel_slow_ratio(0.05, ratio=0.5, wait=10, interval=10), manual_clock)
        play(found, "SSS")
        play(found, "SSS", seconds=0.06)
        assert found.state == "closed"

    def test_but_a_slow_ratio_of_one_does(self, manual_clock: ManualClock) -> None:
        found = made(sentinel_slow_ratio(0.05, wait=10), manual_clock)
        play(found, "SSSSS", seconds=0.06)
        assert found.state == "open"

    def test_error_ratio(self, manual_clock: ManualClock) -> None:
        found = made(sentinel_error_ratio(0.5, wait=10), manual_clock)
        play(found, "FFFSSS")
        assert found.state == "open"  # 3 of 5, at the fifth call
        found.close()
        play(found, "SSSFFF")
        assert found.state == "closed"  # 3 of 6 is not above a half
        play(found, "F")
        assert found.state == "open"

    def test_an_error_ratio_of_one_is_never_passed(self, manual_clock: ManualClock) -> None:
        found = made(sentinel_error_ratio(1.0, wait=10), manual_clock)
        play(found, "F" * 50)
        assert found.state == "closed"

    def test_error_count(self, manual_clock: ManualClock) -> None:
        found = made(sentinel_error_count(3, wait=10), manual_clock)
        play(found, "SSFFF")
        assert found.state == "closed"
        play(found, "F")
        assert found.state == "open"

    def test_the_interval_begins_anew(self, manual_clock: ManualClock) -> None:
        found = made(sentinel_error_count(3, wait=10), manual_clock)
        manual_clock.advance(0.9)
        play(found, "SSSFFF")
        manual_clock.advance(0.1)
        play(found, "FSSSFF")
        assert found.state == "closed"

    def test_recovery_and_a_single_probe(self, manual_clock: ManualClock) -> None:
        found = made(sentinel_error_count(3, wait=10), manual_clock)
        play(found, "SFFFF")
        manual_clock.advance(9.999)
        assert play(found, "S") == "-"
        manual_clock.advance(0.001)  # at the very instant
        permit = found.permit()
        assert play(found, "S") == "-"
        permit.fail()
        assert found.state == "open"
        manual_clock.advance(10)
        assert play(found, "S") == "S"
        assert (found.state, found.metrics().calls) == ("closed", 0)

    def test_a_slow_probe_opens_a_failed_one_closes(self, manual_clock: ManualClock) -> None:
        found = made(sentinel_slow_ratio(0.05, wait=10), manual_clock)
        found.open()
        manual_clock.advance(10)
        play(found, "S", seconds=0.06)
        assert found.state == "open"
        manual_clock.advance(10)
        play(found, "F")
        assert found.state == "closed"


def test_hystrix(manual_clock: ManualClock) -> None:
    found = made(hystrix(), manual_clock)
    play(found, "F" * 19)
    assert found.state == "closed"
    play(found, "S")
    assert found.state == "open"
    manual_clock.advance(5.001)
    permit = found.permit()
    assert play(found, "S") == "-"
    permit.succeed()
    assert found.state == "closed"


def test_failures_in_a_row(manual_clock: ManualClock) -> None:
    found = made(consecutive(3, wait=30), manual_clock)
    play(found, "FFSFFSFF")
    assert found.state == "closed"
    play(found, "F")
    assert found.state == "open"
    manual_clock.advance(30.1)
    play(found, "F")
    assert found.state == "open"
    manual_clock.advance(30.1)
    play(found, "S")
    assert found.state == "closed"


@pytest.mark.parametrize("make", [resilience4j, hystrix, consecutive])
def test_presets_can_be_changed(make: object, manual_clock: ManualClock) -> None:
    found = made(make(ignored=Boom), manual_clock)  # type: ignore[operator] # all of them are functions
    play(found, "F" * 100)
    assert found.metrics().ignored == 100
