"""What a breaker could get wrong: settings that follow from others, calls that only begin."""

from __future__ import annotations

import asyncio
import math
import os
import sys
from collections.abc import AsyncIterator, Iterator
from typing import Any
from unittest.mock import AsyncMock

import pytest
from breaker_tools import Boom, breaker, opened, play

from headgate import ManualClock
from headgate.headers import retry_seconds
from headgate.resilience.breaker import Breaker, BreakerOpen, Settings
from headgate.resilience.breaker.presets import resilience4j

# -- settings


def test_kinds_from_an_iterator_are_read_once_and_kept(manual_clock: ManualClock) -> None:
    found = Breaker(failures=iter([Boom]), ignored=(k for k in [KeyError]), minimum=2, window=2)
    with pytest.raises(KeyError), found:
        raise KeyError
    play(found, "FF")
    assert (found.state, found.metrics().ignored) == ("open", 1)


def test_what_follows_from_others_follows_from_the_new_ones() -> None:
    found = Breaker("db")
    found.change(failure_count=3)
    assert (found.settings.failure_ratio, found.settings.least) == (None, 3)
    play(found, "FFF")
    assert found.state == "open"
    assert Settings(window=10).changed({"window": 50}).least == 50
    assert Settings(window_seconds=10).changed({"window_seconds": 30}).cells == 30
    assert Settings(slow_after=1.0).changed({"slow_after": 2.0}).slow_ratio == 1.0


def test_what_was_said_stays_said() -> None:
    found = resilience4j(minimum=20).changed({"failure_count": 3, "window": 10})
    assert (found.failure_ratio, found.failure_count, found.least) == (0.5, 3, 10)
    assert found.changed({"window": 40}).least == 20


@pytest.mark.parametrize("bad", [math.inf, math.nan, "soon", 1e400, -1, None])
def test_a_wait_that_is_no_time_opens_it_all_the_same(bad: Any, manual_clock: ManualClock) -> None:
    found = opened(manual_clock, wait=lambda attempt: 1.0 if attempt == 1 else bad, probes=1)
    manual_clock.advance(2)
    assert play(found, "F") == "F"  # its own error, not ours
    assert found.state == "open" or bad == -1


def test_numbers_that_are_too_large_for_the_machine(manual_clock: ManualClock) -> None:
    found = opened(manual_clock, probe_lease=1e200, ramp=1e200, slow_after=1e200, half_open_for=1e9)
    manual_clock.advance(6)
    play(found, "SSSS")
    assert found.state == "recovering"
    with pytest.raises(ValueError, match="window_seconds is up to 100000000"):
        Breaker(window_seconds=1e13)
    assert Breaker(window_seconds=1e8).call(int) == 0


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"failure_count": 0}, "failure_count is a whole number above 0, not 0"),
        ({"failure_count": -1, "above": True}, "a whole number from 0 on, not -1"),
        ({"failure_ratio": 0}, "a share above 0 and up to 1"),
        ({"failure_ratio": -0.1, "above": True}, "a share from 0 up to 1"),
        ({"probe_failures": 0}, "probe_failures is a whole number above 0"),
        ({"half_open_for": 0}, "half_open_for is a number of seconds above 0"),
    ],
)
def test_wrong_settings(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        Settings(**options)


# -- calls that only begin


def test_a_call_of_an_async_function_says_so(manual_clock: ManualClock) -> None:
    found = breaker(manual_clock)

    async def ask() -> None:
        raise Boom

    def numbers() -> Iterator[int]:
        yield 1

    async def more() -> AsyncIterator[int]:
        yield 1

    with pytest.raises(TypeError, match=r"ask is async: await call_async\(\.\.\.\) instead"):
        found.call(ask)
    for function in (numbers, more):
        with pytest.raises(TypeError, match="is a generator: write `with breaker:` inside it"):
            found.call(function)
    assert found.metrics()[3:8] == (3, 0, 0, 0, 3)
    ready = numbers()
    assert found.call(lambda: ready) is ready  # a result like any other


def test_a_mock_of_an_async_function_is_one(manual_clock: ManualClock) -> None:
    found = breaker(manual_clock)
    ask = found(AsyncMock(side_effect=Boom))

    async def main() -> None:
        for _ in range(5):
            with pytest.raises(Boom):
                await ask()
        with pytest.raises(BreakerOpen):
            await ask()

    asyncio.run(main())
    assert found.metrics().failed == 5


def test_an_outcome_that_is_none(manual_clock: ManualClock) -> None:
    found = breaker(manual_clock)
    with pytest.raises(ValueError, match="SUCCESS, FAILURE or IGNORED, not 'failure'"):
        found.record(found.admit(), "failure")  # type: ignore[arg-type] # that is the point


# -- numbers


def test_half_open_says_when_a_call_may_pass(manual_clock: ManualClock) -> None:
    found = opened(manual_clock, probes=2, probe_lease=30)
    manual_clock.advance(6)
    assert found.metrics().retry_after == 0
    first = found.permit()
    assert found.metrics().retry_after == 0
    found.permit()
    assert found.metrics().retry_after == 30
    first.ignore()
    assert found.metrics().retry_after == 0


@pytest.mark.parametrize("at_wait", [False, True])
@pytest.mark.parametrize("wait", [1, 9, 30, 3600, 12345.678])
def test_whole_seconds_are_not_rounded_up(
    wait: float, at_wait: bool, manual_clock: ManualClock
) -> None:
    found = opened(manual_clock, wait=wait, at_wait=at_wait)
    with pytest.raises(BreakerOpen) as caught:
        found.permit()
    error = caught.value
    assert retry_seconds(error.wait or 0) == math.ceil(wait)
    assert error.wait == wait or wait == 12345.678
    manual_clock.advance(error.retry_after or 0)
    found.permit()  # what it says of the instant is exact
    found.force_open()
    with pytest.raises(BreakerOpen) as caught:
        found.permit()
    assert caught.value.wait is None


# -- processes


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_child_that_goes_on_with_a_probe(manual_clock: ManualClock) -> None:
    found = opened(manual_clock, probes=2)
    manual_clock.advance(6)
    parent, child = os.getpid(), 0
    try:
        child = found.call(os.fork)  # a call that ends in the child as well
    finally:
        if os.getpid() != parent:
            os._exit(0 if sys.exc_info()[0] is None and found.metrics().calls == 0 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert found.metrics().calls == 1
