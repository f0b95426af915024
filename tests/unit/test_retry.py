"""Retry: what is tried again, when, how often, and how much that costs everybody."""

from __future__ import annotations

import asyncio
import socket
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

from headgate import Limiter, LimitExceeded, ManualClock, StoreUnavailable
from headgate.resilience.budget import RetryBudget
from headgate.resilience.deadlines import deadline_in
from headgate.resilience.errors import BreakerOpen, BulkheadFull, TimeLimitExceeded
from headgate.resilience.notices import Notice
from headgate.resilience.retry import Retry


class Stub:
    """Does what it is told, one thing after the other: raises exceptions, returns the rest."""

    def __init__(self, *script: Any) -> None:
        self.script = list(script)
        self.calls = 0

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.calls += 1
        came = self.script.pop(0)
        if isinstance(came, BaseException):
            raise came
        return came

    async def later(self, *args: Any, **kwargs: Any) -> Any:
        return self(*args, **kwargs)


def now(**options: Any) -> Retry:
    """A Retry that pauses for no time."""
    return Retry(**{"pause": 0, "budget": None, **options})


def both(retry: Retry, make: Callable[[], Stub], *args: Any) -> tuple[Any, int]:
    """What a call gives, the same for threads and tasks, and how often it was made."""
    came: list[Any] = []
    for way in ("plain", "async"):
        stub = make()
        try:
            if way == "plain":
                result = retry.call(stub, *args)
            else:
                result = asyncio.run(retry.call_async(stub.later, *args))
        except Exception as error:
            result = type(error)
        came.append((result, stub.calls))
    assert came[0] == came[1]
    found: tuple[Any, int] = came[0]
    return found


def test_a_good_call_is_made_once() -> None:
    assert both(now(attempts=3), lambda: Stub("fine")) == ("fine", 1)


def test_tries_again_until_it_is_good() -> None:
    stub = lambda: Stub(ConnectionResetError(), TimeoutError(), "fine")  # noqa: E731 # made anew
    assert both(now(attempts=3, safe=True), stub) == ("fine", 3)


def test_raises_the_last_error_when_attempts_are_used_up() -> None:
    stub = lambda: Stub(ConnectionResetError(), TimeoutError())  # noqa: E731 # made anew
    assert both(now(attempts=2, safe=True), stub) == (TimeoutError, 2)


@pytest.mark.parametrize(
    "error", [ConnectionResetError(), TimeoutError(), TimeLimitExceeded("late"), KeyError("x")]
)
def test_what_may_have_been_carried_out_is_not_made_again(error: Exception) -> None:
    assert both(now(), lambda: Stub(error, "fine")) == (type(error), 1)


@pytest.mark.parametrize(
    "error",
    [ConnectionRefusedError(), socket.gaierror(), StoreUnavailable("away", sent=False)],
)
def test_what_was_surely_not_carried_out_is(error: Exception) -> None:
    assert both(now(), lambda: Stub(error, "fine")) == ("fine", 2)


def test_safety_may_depend_on_the_call() -> None:
    retry = now(safe=lambda method: method == "GET")
    assert both(retry, lambda: Stub(TimeoutError(), "fine"), "GET") == ("fine", 2)
    assert both(retry, lambda: Stub(TimeoutError(), "fine"), "POST") == (TimeoutError, 1)


def test_naming_exceptions_or_results_is_being_told() -> None:
    assert both(now(on=KeyError), lambda: Stub(KeyError("x"), 1)) == (1, 2)
    assert both(now(on=KeyError), lambda: Stub(TimeoutError(), 1)) == (TimeoutError, 1)
    assert both(now(on=lambda error: "x" in error.args), lambda: Stub(KeyError("x"), 1)) == (1, 2)
    assert both(now(results=lambda code: code == 503), lambda: Stub(503, 503, 200)) == (200, 3)
    assert both(now(results=lambda code: code == 503), lambda: Stub(503, 503, 503)) == (503, 3)


@pytest.mark.parametrize("error", [BreakerOpen("open"), BulkheadFull("full")])
def test_refusals_of_ours_are_not_hammered(error: Exception) -> None:
    assert both(now(safe=True), lambda: Stub(error, 1)) == (type(error), 1)


def test_cancellation_is_never_tried_again() -> None:
    stub = Stub(asyncio.CancelledError(), 1)
    with pytest.raises(asyncio.CancelledError):
        now(safe=True, on=Exception).call(stub)
    assert stub.calls == 1


# -- pauses


def test_pauses_double_with_full_jitter() -> None:
    retry = Retry(9, pause=0.1, longest=1.0, jitter=lambda: 1.0)
    assert [retry.pause_before(n) for n in range(2, 8)] == pytest.approx(
        [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    )
    retry = Retry(3, pause=1.0)
    pauses = [retry.pause_before(2) for _ in range(500)]
    assert min(pauses) < 0.1
    assert max(pauses) > 0.9
    assert Retry(3).pause_before(10_000) <= 30  # no overflow


def pauses_of(retry: Retry, clock: ManualClock, stub: Stub) -> list[float]:
    """When each further attempt was made, in seconds from the start."""

    async def main() -> list[float]:
        at: list[float] = []

        async def call() -> Any:
            at.append(clock.now())
            return stub()

        task = asyncio.create_task(retry.call_async(call))
        while True:
            for _ in range(5):
                await asyncio.sleep(0)
            if task.done():
                await asyncio.gather(task, return_exceptions=True)
                return at[1:]
            wakeup = clock.next_wakeup()
            assert wakeup is not None
            clock.advance(wakeup - clock.now())

    return asyncio.run(main())


class Later(Exception):
    def __init__(self, retry_after: float | None) -> None:
        self.retry_after = retry_after


def test_honours_retry_after() -> None:
    clock = ManualClock()
    retry = Retry(4, on=Later, pause=0.1, jitter=lambda: 1.0, clock=clock)
    at = pauses_of(retry, clock, Stub(Later(5), Later(None), Later(float("nan")), 1))
    assert at == pytest.approx([5.1, 5.3, 5.7])


def test_a_retry_after_of_a_response() -> None:
    clock = ManualClock()
    retry = Retry(
        2, results=lambda r: r["status"] == 429, retry_after=lambda r: float(r["after"]),
        pause=0, clock=clock,
    )  # fmt: skip
    assert pauses_of(retry, clock, Stub({"status": 429, "after": "7"}, {"status": 200})) == [7]


@pytest.mark.parametrize("wait", [31, float("inf")])
def test_a_retry_after_that_is_too_long_is_given_up_at_once(wait: float) -> None:
    assert both(now(on=Later, longest=30), lambda: Stub(Later(wait), 1)) == (Later, 1)


def test_a_limit_of_ours_is_waited_for() -> None:
    clock = ManualClock()
    limiter = Limiter("1/10s fixed-window", clock=clock)

    def call() -> int:
        decision = limiter.hit()
        if not decision:
            raise LimitExceeded(decision)
        return 1

    call()
    retry = Retry(2, pause=0, clock=clock)
    done: list[int] = []
    waiting = threading.Thread(target=lambda: done.append(retry.call(call)), daemon=True)
    waiting.start()
    while (at := clock.next_wakeup()) is None:
        pass
    clock.advance(at - clock.now())
    waiting.join(60)
    assert done == [1]
    assert clock.now() == 10


def test_nothing_is_tried_that_would_be_too_late() -> None:
    told: list[Notice] = []
    retry = Retry(3, on=KeyError, pause=10, jitter=lambda: 1.0, listeners=[told.append])
    stub = Stub(KeyError("x"), 1)
    with deadline_in(5), pytest.raises(KeyError):
        retry.call(stub)
    assert stub.calls == 1
    assert [notice.kind for notice in told] == ["retry.too_late"]


def test_events() -> None:
    told: list[Notice] = []
    retry = now(attempts=2, on=KeyError, name="api", listeners=[told.append])
    with pytest.raises(KeyError):
        retry.call(Stub(KeyError("x"), KeyError("y")))
    assert [(notice.kind, notice.name) for notice in told] == [
        ("retry.again", "api"),
        ("retry.exhausted", "api"),
    ]


# -- budgets


def test_retries_are_at_most_a_share_of_the_calls() -> None:
    clock = ManualClock()
    budget = RetryBudget(0.1, reserve=0, most=5, clock=clock)
    retry = now(attempts=10, on=KeyError, budget=budget)
    calls = 0

    def call() -> None:
        nonlocal calls
        calls += 1
        raise KeyError("down")

    for _ in range(1000):
        with pytest.raises(KeyError):
            retry.call(call)
    assert calls - 1000 == 5 + 100 or calls - 1000 == 5 + 99  # the last call's tenth may be left


def test_the_reserve_serves_a_quiet_client() -> None:
    clock = ManualClock()
    budget = RetryBudget(0, reserve=2, most=3, clock=clock)
    assert [budget.take() for _ in range(4)] == [True, True, True, False]
    clock.advance(0.5)
    assert [budget.take() for _ in range(2)] == [True, False]
    clock.advance(1000)
    assert budget.left == 3


def test_the_budget_keeps_fractions() -> None:
    clock = ManualClock()
    budget = RetryBudget(0.3, reserve=0, most=2, clock=clock)
    while budget.take():
        pass
    taken = 0
    for _ in range(1000):
        budget.call()
        taken += budget.take()
    assert taken == 300


def test_the_budget_is_exact_among_threads() -> None:
    budget = RetryBudget(0.5, reserve=0, most=10_000)
    while budget.take():
        pass
    taken: list[int] = []

    def work() -> None:
        mine = 0
        for _ in range(1000):
            budget.call()
            mine += budget.take()
        taken.append(mine)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=work) for _ in range(8)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
    finally:
        sys.setswitchinterval(interval)
    assert sum(taken) + budget.left == 4000


@pytest.mark.parametrize(
    "options", [{"share": 2}, {"share": -0.1}, {"most": 0}, {"reserve": -1}, {"share": "x"}]
)
def test_wrong_budgets(options: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        RetryBudget(**options)


# -- libraries: a stand-in for theirs, and theirs if they are installed


class Library:
    """Calls up to three times, as tenacity.Retrying does."""

    def __init__(self) -> None:
        self.attempts = 0

    def __call__(self, function: Any, *args: Any) -> Any:
        for attempt in range(3):
            self.attempts += 1
            try:
                return function(*args)
            except KeyError:
                if attempt == 2:
                    raise
        return None


class AsyncLibrary(Library):
    async def __call__(self, function: Any, *args: Any) -> Any:
        for attempt in range(3):
            self.attempts += 1
            try:
                return await function(*args)
            except KeyError:
                if attempt == 2:
                    raise
        return None


def test_a_library_is_asked_only_after_a_first_failure() -> None:
    library = Library()
    retry = Retry(by=library, budget=None)
    assert retry.call(Stub("fine")) == "fine"
    assert library.attempts == 0
    stub = Stub(KeyError(1), KeyError(2), "fine")
    assert retry.call(stub) == "fine"
    assert (stub.calls, library.attempts) == (3, 3)  # the first one was played back
    stub = Stub(*[KeyError(n) for n in range(5)])
    with pytest.raises(KeyError):
        retry.call(stub)
    assert stub.calls == 3


def test_an_async_library() -> None:
    library = AsyncLibrary()
    stub = Stub(KeyError(1), "fine")
    assert asyncio.run(Retry(by=library).call_async(stub.later)) == "fine"
    assert (stub.calls, library.attempts) == (2, 2)
    with pytest.raises(TypeError, match="AsyncLibrary cannot retry a plain function"):
        Retry(by=library).call(print)
    with pytest.raises(TypeError, match="Library cannot retry an async function"):
        asyncio.run(Retry(by=Library()).call_async(stub.later))


def test_the_budget_holds_for_a_library_too() -> None:
    budget = RetryBudget(0, reserve=0, most=1)
    stub = Stub(*[KeyError(n) for n in range(5)])
    with pytest.raises(KeyError):
        Retry(by=Library(), budget=budget).call(stub)
    assert stub.calls == 2


def test_tenacity_and_stamina() -> None:
    tenacity = pytest.importorskip("tenacity")
    stamina = pytest.importorskip("stamina")
    stop = {"stop": tenacity.stop_after_attempt(3), "wait": tenacity.wait_none(), "reraise": True}
    quick = {"attempts": 3, "wait_initial": 0, "wait_max": 0, "wait_jitter": 0}
    for plain, later in (
        (tenacity.Retrying(**stop), tenacity.AsyncRetrying(**stop)),
        (
            stamina.RetryingCaller(**quick).on(KeyError),
            stamina.AsyncRetryingCaller(**quick).on(KeyError),
        ),
    ):
        stub = Stub(KeyError(1), KeyError(2), "fine")
        assert Retry(by=plain).call(stub) == "fine"
        stub = Stub(KeyError(1), KeyError(2), "fine")
        assert asyncio.run(Retry(by=later).call_async(stub.later)) == "fine"
        stub = Stub(*[KeyError(n) for n in range(5)])
        with pytest.raises(KeyError):
            Retry(by=plain).call(stub)
        assert stub.calls == 3


@pytest.mark.parametrize(
    "options",
    [{"attempts": 0}, {"pause": -1}, {"by": 3}, {"on": "KeyError"}, {"on": (KeyError, 3)}],
)
def test_wrong_options(options: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        Retry(**options)
