"""Retries that tenacity and stamina make: within the budget, a breaker and a deadline."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import stamina
import tenacity

from headgate import ManualClock
from headgate.resilience import Breaker, Policy, RetryBudget, deadline_in
from headgate.resilience.errors import BreakerOpen, BulkheadFull
from headgate.resilience.notices import Notice
from headgate.resilience.retry import Retry


class Boom(Exception):
    """What a sick service raises."""


class Calls:
    """Raises one kind of error, and counts."""

    def __init__(self, error: type[Exception] = Boom) -> None:
        self.error = error
        self.made = 0

    def __call__(self) -> None:
        self.made += 1
        raise self.error("no")

    async def later(self) -> None:
        self()


def patient(slept: list[float], attempts: int = 5, **options: Any) -> tenacity.Retrying:
    return tenacity.Retrying(
        stop=tenacity.stop_after_attempt(attempts), wait=tenacity.wait_fixed(3),
        sleep=slept.append, reraise=True, **options,
    )  # fmt: skip


def test_nobody_pauses_for_a_retry_that_there_is_no_budget_for() -> None:
    slept: list[float] = []
    told: list[Notice] = []
    budget = RetryBudget(0, reserve=0, most=2, clock=ManualClock())
    retry = Retry(by=patient(slept), budget=budget, listeners=[told.append])
    calls = Calls()
    with pytest.raises(Boom):
        retry.call(calls)
    assert (calls.made, slept) == (3, [3.0, 3.0])
    with pytest.raises(Boom):
        retry.call(calls)
    assert (calls.made, slept) == (4, [3.0, 3.0])
    assert [notice.kind for notice in told].count("retry.no_budget") == 2


@pytest.mark.parametrize("error", [BreakerOpen, BulkheadFull])
def test_refusals_of_ours_are_not_hammered(error: type[Exception]) -> None:
    slept: list[float] = []
    calls = Calls(error)
    with pytest.raises(error):
        Retry(by=patient(slept)).call(calls)
    assert (calls.made, slept) == (1, [])
    with pytest.raises(error):
        Retry(by=patient(slept, attempts=3), on=error).call(calls)  # named, so it is meant
    assert (calls.made, slept) == (4, [3.0, 3.0])


def test_a_breaker_stops_a_librarys_retries_when_it_opens() -> None:
    slept: list[float] = []
    calls, breaker = Calls(), Breaker("db", minimum=2, window=2)
    policy = Policy("db", breaker=breaker, retry=Retry(by=patient(slept), budget=None))
    with pytest.raises(BreakerOpen):
        policy.call(calls)
    assert (calls.made, breaker.metrics().refused, slept) == (2, 1, [3.0, 3.0])


def test_nothing_is_tried_after_the_deadline() -> None:
    clock = ManualClock()
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        clock.advance(seconds)

    library = tenacity.Retrying(
        stop=tenacity.stop_after_attempt(9), wait=tenacity.wait_fixed(3), sleep=sleep, reraise=True
    )
    calls = Calls()
    with deadline_in(5, clock), pytest.raises(Boom):
        Retry(by=library, clock=clock).call(calls)
    assert (calls.made, slept) == (3, [3.0, 3.0])  # at 0, 3 and 6 s; and not at 9


def test_an_error_that_ends_it_is_the_callers_own_not_a_librarys() -> None:
    """Though tenacity would have wrapped it, had it made all attempts."""
    slept: list[float] = []
    library = tenacity.Retrying(
        stop=tenacity.stop_after_attempt(3), wait=tenacity.wait_none(), sleep=slept.append
    )
    with pytest.raises(tenacity.RetryError):
        Retry(by=library, budget=None).call(Calls())
    with pytest.raises(Boom):
        Retry(by=library, budget=RetryBudget(0, reserve=0, most=1)).call(Calls())


def test_async_libraries_too() -> None:
    quick = {"attempts": 5, "wait_initial": 0, "wait_max": 0, "wait_jitter": 0}
    library = tenacity.AsyncRetrying(
        stop=tenacity.stop_after_attempt(5), wait=tenacity.wait_none(), reraise=True
    )
    for by in (library, stamina.AsyncRetryingCaller(**quick).on(Boom)):
        calls = Calls()
        budget = RetryBudget(0, reserve=0, most=2)
        with pytest.raises(Boom):
            asyncio.run(Retry(by=by, budget=budget).call_async(calls.later))
        assert calls.made == 3
        calls = Calls(BreakerOpen)
        with pytest.raises(BreakerOpen):
            asyncio.run(Retry(by=by, budget=None).call_async(calls.later))
        assert calls.made == 1


def test_a_predicate_that_retries_everything_ends_all_the_same() -> None:
    slept: list[float] = []
    library = patient(slept, retry=tenacity.retry_if_exception(lambda error: True))
    calls = Calls()
    with pytest.raises(Boom):
        Retry(by=library, budget=RetryBudget(0, reserve=0, most=1)).call(calls)
    assert calls.made == 2
