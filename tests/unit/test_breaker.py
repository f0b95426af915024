"""The breaker: published numbers, every edge of its table, and the traps others fell into."""

from __future__ import annotations

from typing import Any

import pytest
from breaker_tools import Boom, breaker, opened, play, refused

from headgate import HeadgateError, Limiter, LimitExceeded, ManualClock
from headgate.resilience.breaker import FAILURE, IGNORED, STATES, Breaker, BreakerOpen
from headgate.resilience.breaker.states import EDGES, SAYS, SWITCHES, target
from headgate.resilience.errors import BulkheadFull, TimeLimitExceeded


class TestResilience4j:
    """Its published numbers: trips at >=, slow is >, leaves open strictly after the wait."""

    @pytest.mark.parametrize(
        ("calls", "state", "rate"),
        [("FFFSS", "open", 60), ("SSSFF", "closed", 40), ("SSSFFF", "open", 50)],
    )
    def test_rates(self, calls: str, state: str, rate: int, manual_clock: ManualClock) -> None:
        found = breaker(manual_clock)
        assert play(found, calls) == calls
        assert found.state == state
        assert found.metrics().failure_ratio == rate / 100

    def test_nothing_is_judged_before_the_minimum(self, manual_clock: ManualClock) -> None:
        found = breaker(manual_clock)
        play(found, "FFFF")
        assert (found.state, found.metrics().failure_ratio) == ("closed", None)
        play(found, "S")
        assert found.state == "open"

    def test_the_wait(self, manual_clock: ManualClock) -> None:
        found = opened(manual_clock)
        manual_clock.advance(3)
        assert found.state == "open"
        manual_clock.advance(2)
        assert found.state == "open"
        assert refused(found)
        manual_clock.advance(1)
        assert found.state == "half_open"
        assert not refused(found)

    @pytest.mark.parametrize(
        ("calls", "state"), [("FSSS", "closed"), ("FFSS", "open"), ("FFF", "half_open")]
    )
    def test_half_open(self, calls: str, state: str, manual_clock: ManualClock) -> None:
        found = opened(manual_clock)
        manual_clock.advance(6)
        assert play(found, calls) == calls
        assert found.state == state

    def test_the_window_slides(self, manual_clock: ManualClock) -> None:
        found = breaker(manual_clock, window=10, minimum=5)
        play(found, "FFSSS" + "SSSSSS" + "F")  # the first two have left the last ten
        seen = found.metrics()
        assert (seen.calls, seen.failures, seen.failure_ratio) == (10, 1, 0.1)

    def test_the_minimum_is_no_larger_than_the_window(self, manual_clock: ManualClock) -> None:
        found = Breaker(window=4, minimum=100, clock=manual_clock)
        play(found, "FFFF")
        assert found.state == "open"

    def test_a_window_of_seconds(self, manual_clock: ManualClock) -> None:
        found = breaker(manual_clock, window_seconds=10, minimum=4)
        play(found, "FF")
        manual_clock.advance(9)
        play(found, "S")
        assert found.metrics().calls == 3
        manual_clock.advance(1)  # the two failures are ten seconds old
        play(found, "SS")
        seen = found.metrics()
        assert (seen.calls, seen.failures, found.state) == (3, 0, "closed")

    def test_a_success_may_trip_it_when_older_ones_leave(self, manual_clock: ManualClock) -> None:
        found = breaker(manual_clock, window_seconds=10, minimum=4)
        play(found, "SSS")
        manual_clock.advance(9)
        play(found, "FFF"[:2])
        assert found.state == "closed"  # 2 of 5
        manual_clock.advance(1)
        play(found, "SS")
        assert found.state == "open"  # 2 of 4

    def test_slow_calls(self, manual_clock: ManualClock) -> None:
        found = breaker(manual_clock, slow_after=2.0, slow_ratio=0.5, minimum=4)
        play(found, "SS", seconds=2.0)  # exactly that is not slow
        play(found, "S", seconds=2.000001)
        assert found.state == "closed"
        play(found, "F", seconds=3.0)  # slow and failed
        seen = found.metrics()
        assert (found.state, seen.slow, seen.slow_ratio, seen.failure_ratio) == (
            "open", 2, 0.5, 0.25,
        )  # fmt: skip

    def test_slow_probes(self, manual_clock: ManualClock) -> None:
        found = opened(manual_clock, slow_after=1.0, slow_ratio=0.5)
        manual_clock.advance(6)
        play(found, "SS")
        play(found, "SS", seconds=2.0)
        assert found.state == "open"

    def test_without_automatic_only_a_call_leaves_open(self, manual_clock: ManualClock) -> None:
        found = opened(manual_clock, automatic=False)
        manual_clock.advance(100)
        assert (found.state, found.metrics().state) == ("open", "open")
        assert not refused(found)
        assert found.state == "half_open"

    def test_a_wait_that_grows(self, manual_clock: ManualClock) -> None:
        found = opened(manual_clock, wait=lambda attempt: 2.0**attempt, probes=1)
        waits = []
        for _ in range(3):
            waits.append(round(found.metrics().retry_after or 0, 3))
            manual_clock.advance(waits[-1] + 0.001)
            play(found, "F")
        manual_clock.advance(100)
        play(found, "S" + "FFFFF")
        waits.append(round(found.metrics().retry_after or 0, 3))  # from the beginning again
        assert waits == [2, 4, 8, 2]


class TestTable:
    def test_every_edge_says_where_it_leads(self) -> None:
        assert {*SAYS} == {edge for edge in EDGES if edge[1] not in SWITCHES}
        assert all(aim in STATES and edge[0] in STATES for edge, aim in EDGES.items())
        assert set(EDGES.values()) == {*STATES}
        with pytest.raises(ValueError, match="forced_open has no edge for 'trip'"):
            target("forced_open", "trip")

    @pytest.mark.parametrize("before", [*SWITCHES.values(), "half_open", "recovering"])
    @pytest.mark.parametrize("switch", SWITCHES)
    def test_switches(self, before: str, switch: str, manual_clock: ManualClock) -> None:
        if before in ("half_open", "recovering"):
            found = opened(manual_clock, ramp=10)
            manual_clock.advance(6)
            play(found, "SSSS" if before == "recovering" else "S")
        else:
            found = breaker(manual_clock, state=before)
        assert found.state == before
        getattr(found, switch)()
        assert found.state == SWITCHES[switch]
        assert refused(found) == (STATES[found.state].passes == "none")

    @pytest.mark.parametrize("state", ["forced_open", "disabled", "metrics_only"])
    def test_forced_states_stay(self, state: str, manual_clock: ManualClock) -> None:
        found = breaker(manual_clock, state=state)
        play(found, "FFFFFFFFFF")
        manual_clock.advance(1000)
        play(found, "SSSSS")
        assert found.state == state
        seen = found.metrics()
        assert seen.calls == {"metrics_only": 15}.get(state, 0)
        assert seen.failures == {"metrics_only": 10}.get(state, 0)
        assert (seen.permitted, seen.refused) == ((0, 15) if state == "forced_open" else (15, 0))
        found.close()
        assert (found.state, found.metrics().calls) == ("closed", 0)

    def test_open_again_begins_the_wait_again(self, manual_clock: ManualClock) -> None:
        found = opened(manual_clock)
        manual_clock.advance(4)
        found.open()
        manual_clock.advance(4)
        assert found.state == "open"

    def test_a_ramp(self, manual_clock: ManualClock) -> None:
        found = opened(manual_clock, ramp=10, ramp_from=0.2)
        manual_clock.advance(6)
        play(found, "SSSS")
        assert found.state == "recovering"
        shares = []
        for _ in range(5):
            shares.append(play(found, "S" * 100).count("S"))
            manual_clock.advance(2)
        assert shares == [20, 36, 52, 68, 84]
        assert found.state == "closed"
        assert play(found, "S" * 9) == "S" * 9

    def test_a_ramp_that_fails(self, manual_clock: ManualClock) -> None:
        found = opened(manual_clock, ramp=10, ramp_from=0.5, minimum=20, window=20)
        manual_clock.advance(6)
        play(found, "SSSS")
        assert play(found, "F" * 10) == "-F-F-F-F--"  # as many as there were probes are enough
        assert found.state == "open"


class TestTraps:
    def test_it_trips_at_the_very_call(self, manual_clock: ManualClock) -> None:
        found = breaker(manual_clock)
        assert play(found, "SSSFF" + "FS") == "SSSFFF-"

    def test_half_open_lets_no_more_than_its_probes_through(
        self, manual_clock: ManualClock
    ) -> None:
        found = opened(manual_clock)
        manual_clock.advance(6)
        permits = [found.permit() for _ in range(4)]
        assert refused(found)
        assert found.metrics().in_flight == 4
        for permit in permits[:3]:
            permit.succeed()
        assert refused(found)  # all four are given out, though three have ended
        permits[3].succeed()
        assert found.state == "closed"

    def test_a_cancelled_probe_makes_room_for_another(self, manual_clock: ManualClock) -> None:
        found = opened(manual_clock)
        manual_clock.advance(6)
        assert play(found, "IIIIIIII" + "SSSS") == "IIIIIIIISSSS"
        assert found.state == "closed"

    def test_a_probe_that_is_blocked_further_in(self, manual_clock: ManualClock) -> None:
        found = opened(manual_clock, probes=1)
        manual_clock.advance(6)
        limiter = Limiter("1/hour", clock=manual_clock)

        @found
        @limiter.limited()
        def guarded() -> str:
            return "ok"

        limiter.hit()
        with pytest.raises(LimitExceeded):
            guarded()
        assert found.state == "half_open"
        limiter.reset()
        assert guarded() == "ok"
        assert found.state == "closed"

    def test_a_probe_that_never_ends(self, manual_clock: ManualClock) -> None:
        found = opened(manual_clock, probe_lease=30.0)
        manual_clock.advance(6)
        lost = [found.permit() for _ in range(4)]
        manual_clock.advance(29.9)
        with pytest.raises(BreakerOpen) as caught:
            found.permit()
        assert caught.value.retry_after == pytest.approx(0.1)
        manual_clock.advance(0.1)
        assert found.state == "open"  # nothing answered: it is as sick as before
        manual_clock.advance(6)
        assert play(found, "SSSS") == "SSSS"
        for permit in lost:  # late, and of an earlier state
            permit.fail()
        assert found.state == "closed"
        assert found.metrics().calls == 0

    def test_one_lost_probe_is_one_failure(self, manual_clock: ManualClock) -> None:
        found = opened(manual_clock, probe_lease=30.0)
        manual_clock.advance(6)
        found.permit()
        play(found, "SSS")
        assert found.state == "half_open"
        manual_clock.advance(30)
        assert found.state == "closed"  # 1 of 4, below half

    def test_calls_of_an_earlier_state_say_nothing(self, manual_clock: ManualClock) -> None:
        found = breaker(manual_clock)
        early = [found.permit() for _ in range(10)]
        play(found, "FFFFF")
        manual_clock.advance(6)
        assert found.state == "half_open"
        for permit in early:
            permit.fail()
        assert found.state == "half_open"
        assert found.metrics().failed == 15

    def test_the_users_own_functions_may_raise(self, manual_clock: ManualClock) -> None:
        def bad(_: object) -> bool:
            raise Boom

        cases: list[dict[str, Any]] = [{"failed": bad}, {"failures": bad}, {"ignored": bad}]
        for options in cases:
            found = opened(manual_clock, probes=2)
            manual_clock.advance(6)
            found.change(**options)
            for _ in range(2):
                with pytest.raises(Boom):
                    found.call(int, "1" if "failed" in options else "one")
            assert found.state == "open"
            assert found.metrics().in_flight == 0

    def test_a_wait_that_raises_opens_it_all_the_same(self, manual_clock: ManualClock) -> None:
        found = opened(manual_clock, wait=lambda attempt: 1 / (2 - attempt), probes=1)
        manual_clock.advance(2)
        play(found, "F")
        assert found.metrics().retry_after == pytest.approx(60, abs=0.01)


class TestOutcomes:
    def test_which_exceptions_count(self, manual_clock: ManualClock) -> None:
        found = breaker(manual_clock, failures=(OSError, Boom), ignored=TimeoutError)

        def boom(error: BaseException) -> None:
            raise error

        for error in (OSError(), Boom(), TimeoutError(), ValueError(), GeneratorExit()):
            with pytest.raises(type(error)):
                found.call(boom, error)
        seen = found.metrics()
        assert (seen.succeeded, seen.failed, seen.ignored) == (1, 2, 2)

    def test_our_own_refusals_count_as_nothing(self, manual_clock: ManualClock) -> None:
        found = breaker(manual_clock)
        for error in (BreakerOpen("no"), BulkheadFull("no")):
            with pytest.raises(HeadgateError), found:
                raise error
        with pytest.raises(TimeoutError), found:
            raise TimeLimitExceeded("late")
        seen = found.metrics()
        assert (seen.ignored, seen.failed) == (2, 1)

    def test_functions_decide(self, manual_clock: ManualClock) -> None:
        found = breaker(
            manual_clock,
            failures=lambda error: "5" in str(error),
            ignored=lambda error: "404" in str(error),
            failed=lambda status: isinstance(status, int) and status >= 500,
        )
        for text in ("500", "404", "400"):
            with pytest.raises(Boom), found:
                raise Boom(text)
        assert [found.call(int, text) for text in ("500", "200")] == [500, 200]
        seen = found.metrics()
        assert (seen.succeeded, seen.failed, seen.ignored) == (2, 2, 1)

    def test_an_error_count(self, manual_clock: ManualClock) -> None:
        found = Breaker(failure_count=3, window=10, clock=manual_clock)
        assert play(found, "SSSSSFSSFSSF") == "SSSSSFSSFSSF"
        assert found.state == "open"
        found.close()
        play(found, "FSSSSSSSSSFSSSSSSSSSF")
        assert found.state == "closed"  # never three among ten

    def test_tokens_by_hand(self, manual_clock: ManualClock) -> None:
        found = breaker(manual_clock)
        for outcome in (FAILURE, FAILURE, FAILURE, IGNORED):
            found.record(found.admit(), outcome)
        found.record(found.admit())
        assert found.metrics()[3:9] == (5, 1, 3, 0, 1, 0)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"failure_ratio": 50}, "a share above 0 and up to 1"),
        ({"failure_ratio": True}, "a share between 0 and 1, not bool"),
        ({"failure_ratio": None}, "trips by a failure_ratio"),
        ({"slow_ratio": 0.5}, "slow_ratio needs slow_after"),
        ({"window": 0}, "window is a whole number above 0"),
        ({"window": 2.5}, "window is a whole number, not float"),
        ({"failure_count": 200}, "200 failures do not fit into a window of 100"),
        ({"wait": -1}, "wait is a number of seconds"),
        ({"wait": "5s"}, "wait is a number of seconds, not str"),
        ({"slow_after": 0}, "slow_after is a number of seconds above 0"),
        ({"probes": 0}, "probes is a whole number above 0"),
        ({"failures": "OSError"}, "types of exceptions or a function"),
        ({"ignored": [int]}, "types of exceptions, and <class 'int'> is none"),
        ({"failed": 5}, "failed is a function of a result, not int"),
        ({"state": "ajar"}, "begins as one of 'open', 'closed'"),
        ({"settings": {"wait": 5}}, "settings are Settings, or a preset, not dict"),
    ],
)
def test_mistakes_are_told_when_it_is_made(options: dict[str, object], problem: str) -> None:
    with pytest.raises((TypeError, ValueError), match=problem):
        Breaker("db", **options)  # type: ignore[arg-type] # that is the point


def test_an_unknown_setting_is_told_with_those_there_are() -> None:
    with pytest.raises(TypeError, match="no setting 'windw'; there are: failure_ratio"):
        Breaker("db").change(windw=5)
