"""Cases that Resilience4j, Sentinel, Hystrix and pybreaker publish, with their own numbers."""

from __future__ import annotations

from typing import Any

import pytest
from breaker_tools import Boom, play, refused

from headgate import ManualClock
from headgate.resilience.breaker import FAILURE, IGNORED, SUCCESS, Breaker, BreakerOpen
from headgate.resilience.breaker.presets import (
    consecutive,
    hystrix,
    resilience4j,
    sentinel_error_count,
    sentinel_error_ratio,
    sentinel_slow_ratio,
)


@pytest.fixture
def clock() -> ManualClock:
    """At the beginning of every window of seconds that is used here."""
    return ManualClock(1_000_000_000)


class TestResilience4j:
    """Half of at least 5 calls in 20 s, slow above 4 s, 5 s open, 4 probes within 1 s."""

    @pytest.fixture
    def breaker(self, clock: ManualClock) -> Breaker:
        settings = resilience4j(
            window_seconds=20, minimum=5, slow_after=4.0, slow_ratio=0.5, wait=5.0, probes=4,
            half_open_for=1.0, ignored=KeyboardInterrupt,
        )  # fmt: skip
        return Breaker("db", settings, clock=clock)

    @pytest.fixture
    def half_open(self, breaker: Breaker, clock: ManualClock) -> Breaker:
        breaker.open()
        clock.advance(6)
        play(breaker, "I")  # a call is what makes it half open
        assert breaker.state == "half_open"
        return breaker

    def test_a_call_a_second(self, breaker: Breaker, clock: ManualClock) -> None:
        for letter in "SSSFF":
            play(breaker, letter)
            clock.advance(1)
        assert breaker.state == "closed"
        play(breaker, "F")
        assert breaker.state == "open"  # 3 of 6

    def test_what_opened_it_is_shown_while_it_is_open(self, breaker: Breaker) -> None:
        shown = []
        for letter in "FFFSS":
            play(breaker, letter)
            seen = breaker.metrics()
            shown.append((seen.failure_ratio, seen.calls, seen.failures))
        assert shown == [(None, 1, 1), (None, 2, 2), (None, 3, 3), (None, 4, 3), (0.6, 5, 3)]
        assert refused(breaker)
        seen = breaker.metrics()
        assert (seen.state, seen.failure_ratio, seen.refused) == ("open", 0.6, 1)

    def test_slow_calls_by_hand(self, breaker: Breaker) -> None:
        calls = [(FAILURE, 5.0), (SUCCESS, 5.0), (FAILURE, 0.1), (SUCCESS, 0.1)]
        for outcome, seconds in calls:
            breaker.record(breaker.admit(), outcome, seconds)
            assert breaker.state == "closed"
        breaker.record(breaker.admit(), SUCCESS, 5.0)
        seen = breaker.metrics()
        assert (seen.state, seen.calls, seen.slow_calls, seen.slow_ratio) == ("open", 5, 3, 0.6)

    def test_slow_calls_by_the_clock(self, breaker: Breaker) -> None:
        slow = []
        for seconds in (5, 5, 1, 1, 5):
            play(breaker, "S", seconds)
            slow.append(breaker.metrics().slow_calls)
        assert slow == [1, 2, 2, 2, 3]
        assert breaker.state == "open"

    def test_a_wait_that_grows_by_half(self, clock: ManualClock) -> None:
        wait = resilience4j(wait=lambda attempt: 5 * 1.5 ** (attempt - 1))
        found = Breaker("db", wait, clock=clock)
        found.open()
        clock.advance(3)
        assert refused(found)
        clock.advance(3)
        assert play(found, "S") == "S"
        found.open()
        clock.advance(6)
        assert refused(found)  # 7.5 s
        clock.advance(5)
        assert play(found, "S") == "S"

    @pytest.mark.parametrize(
        ("calls", "state", "ratio"), [("FFSF", "open", 0.75), ("FSSS", "closed", None)]
    )
    def test_probes(self, calls: str, state: str, ratio: float | None, half_open: Breaker) -> None:
        for letter in calls[:-1]:
            play(half_open, letter)
            assert half_open.state == "half_open"
        play(half_open, calls[-1])
        seen = half_open.metrics()
        assert (seen.state, seen.failure_ratio) == (state, ratio)
        assert (seen.calls, seen.failures) == ((4, 3) if state == "open" else (0, 0))

    def test_slow_probes(self, half_open: Breaker) -> None:
        for seconds in (5.0, 5.0, 5.0, 1.0):
            half_open.record(half_open.admit(), SUCCESS, seconds)
        seen = half_open.metrics()
        assert (seen.state, seen.slow_ratio, seen.failure_ratio) == ("open", 0.75, 0.0)

    def test_an_ignored_probe_gives_its_permission_back(self, half_open: Breaker) -> None:
        assert play(half_open, "SSSIIII") == "SSSIIII"
        seen = half_open.metrics()
        assert (seen.state, seen.calls) == ("half_open", 3)
        play(half_open, "F")
        assert half_open.state == "closed"  # 1 of 4

    def test_permissions_are_counted(self, half_open: Breaker) -> None:
        tokens = [half_open.admit() for _ in range(4)]
        for _ in range(2):
            with pytest.raises(BreakerOpen):
                half_open.admit()
        half_open.record(tokens[0], IGNORED)
        half_open.admit()
        assert half_open.metrics().refused == 2

    def test_the_longest_it_may_be_half_open(self, half_open: Breaker, clock: ManualClock) -> None:
        play(half_open, "SSS")
        clock.advance(0.999999)
        assert half_open.state == "half_open"
        clock.advance(0.000001)
        assert half_open.state == "open"
        clock.advance(4)
        assert refused(half_open)

    def test_probes_are_judged_when_the_minimum_has_ended(self, clock: ManualClock) -> None:
        for calls, state in (("FF", "open"), ("SS", "closed"), ("S", "half_open")):
            found = Breaker("db", resilience4j(minimum=2, wait=1.0, probes=4), clock=clock)
            found.open()
            clock.advance(2)
            assert play(found, calls) == calls
            assert found.state == state
            # All of them, unless it is Resilience4j's way that is asked for.
            found = Breaker("db", minimum=2, wait=1.0, probes=4, clock=clock)
            found.open()
            clock.advance(2)
            play(found, calls)
            assert found.state == "half_open"

    def test_forced_open_outlasts_every_wait(self, breaker: Breaker, clock: ManualClock) -> None:
        breaker.force_open()
        assert refused(breaker)
        clock.advance(6)
        assert refused(breaker)
        assert (breaker.state, breaker.metrics().refused) == ("forced_open", 2)

    def test_a_time_window_by_the_second(self, clock: ManualClock) -> None:
        found = Breaker("db", resilience4j(window_seconds=5, minimum=100), clock=clock)
        counts = []
        for letters in ("FSS", "S", "SS", "F", "S", "S", "", "", "", "", ""):
            play(found, letters)
            seen = found.metrics()
            counts.append((seen.calls, seen.failures))
            clock.advance(1)
        assert counts == [
            (3, 1), (4, 1), (6, 1), (7, 2), (8, 2), (6, 1), (5, 1), (3, 1), (2, 0), (1, 0), (0, 0),
        ]  # fmt: skip


class TestSentinel:
    def test_slow_requests(self, clock: ManualClock) -> None:
        settings = sentinel_slow_ratio(0.05, ratio=0.8, minimum=10, interval=20, wait=5)
        found = Breaker("db", settings, clock=clock)
        assert play(found, "S" * 7, 0.065) + play(found, "SSS", 0.035) == "S" * 10  # 70 %
        assert play(found, "S" * 6, 0.065) == "S" * 6  # 12 of 15 are 80 %, which is not above
        assert found.state == "open"
        for seconds in (0.0, 1.0):
            clock.advance(seconds)
            assert refused(found)
        clock.advance(5)
        play(found, "S", 0.065)
        assert found.state == "open"
        clock.advance(6)
        assert play(found, "S", 0.035) == "S"
        assert found.state == "closed"
        assert play(found, "S", 0.065) == "S"

    def test_an_exception_ratio(self, clock: ManualClock) -> None:
        settings = sentinel_error_ratio(0.5, minimum=10, interval=25, wait=5)
        found = Breaker("db", settings, clock=clock)
        assert play(found, "FFFFFFSSS" + "F" + "S") == "FFFFFFSSSF-"
        clock.advance(2)
        assert refused(found)
        clock.advance(5)
        assert play(found, "FS") == "F-"
        clock.advance(6)
        assert play(found, "SF") == "SF"
        assert found.state == "closed"

    def test_two_breakers_around_one_call(self, clock: ManualClock) -> None:
        """A probe that the second one blocks leaves the first neither stuck nor open for ever."""
        outer, inner = (
            Breaker(name, sentinel_slow_ratio(0.05, ratio=0.8, minimum=1, wait=wait), clock=clock)
            for name, wait in (("outer", 2), ("inner", 4))
        )

        def call(seconds: float) -> bool:
            try:
                outer.call(inner.call, clock.advance, seconds)
            except BreakerOpen:
                return False
            return True

        assert call(0.1)
        assert (outer.state, inner.state) == ("open", "open")
        clock.advance(3)
        assert not any(call(0.1) for _ in range(10))
        clock.advance(3)
        assert all(call(0.001) for _ in range(10))
        assert (outer.state, inner.state) == ("closed", "closed")

    @pytest.mark.parametrize(
        "settings",
        [
            sentinel_error_count(0, wait=1, minimum=1),
            sentinel_error_ratio(0.0, wait=1, minimum=1),
            sentinel_slow_ratio(0.05, ratio=0.0, wait=1, minimum=1),
        ],
    )
    def test_a_threshold_of_nothing(self, settings: Any, clock: ManualClock) -> None:
        found = Breaker("db", settings, clock=clock)
        play(found, "SSSSS")
        assert found.state == "closed"
        play(found, "F", 0.06)
        assert found.state == "open"


class TestHystrix:
    @pytest.mark.parametrize(("failures", "state"), [(10, "open"), (9, "closed")])
    def test_half_of_twenty(self, failures: int, state: str, clock: ManualClock) -> None:
        found = Breaker("db", hystrix(), clock=clock)
        play(found, "F" * failures + "S" * (20 - failures))
        assert found.state == state

    def test_ten_seconds_roll(self, clock: ManualClock) -> None:
        found = Breaker("db", hystrix(), clock=clock)
        play(found, "F" * 19)
        clock.advance(10)
        play(found, "F" * 19)
        assert (found.state, found.metrics().calls) == ("closed", 19)
        clock.advance(9)
        play(found, "F")
        assert found.state == "open"

    def test_the_sleep_window_and_its_single_call(self, clock: ManualClock) -> None:
        found = Breaker("db", hystrix(minimum=1), clock=clock)
        play(found, "F")
        for _ in range(3):
            clock.advance(5)
            assert refused(found)  # strictly after it
            clock.advance(0.000001)
            permit = found.permit()
            assert refused(found)
            permit.fail()
            assert found.state == "open"
        clock.advance(5.000001)
        play(found, "S")
        assert (found.state, found.metrics().calls) == ("closed", 0)


class TestPybreaker:
    def test_a_success_begins_the_count_anew(self, clock: ManualClock) -> None:
        found = Breaker("db", consecutive(3), clock=clock)
        assert play(found, "FFSFFSFF" + "F" + "S") == "FFSFFSFFF-"

    def test_what_is_excluded_is_a_success(self, clock: ManualClock) -> None:
        def system(error: BaseException) -> bool:
            return not isinstance(error, KeyError)

        found = Breaker("db", consecutive(3, failures=system), clock=clock)
        for error in (Boom, Boom, KeyError, Boom, Boom):
            with pytest.raises(error), found:
                raise error
        assert found.state == "closed"
        with pytest.raises(Boom), found:
            raise Boom
        assert found.state == "open"

    @pytest.mark.parametrize(
        ("calls", "state"),
        [("S", "half_open"), ("SS", "half_open"), ("SSS", "closed"), ("F", "open"), ("SF", "open")],
    )
    def test_a_success_threshold(self, calls: str, state: str, clock: ManualClock) -> None:
        found = Breaker("db", consecutive(5, wait=60, probes=3), clock=clock)
        found.open()
        clock.advance(59.999999)
        assert refused(found)
        clock.advance(0.000001)  # at the very instant
        assert play(found, calls) == calls
        assert found.state == state
