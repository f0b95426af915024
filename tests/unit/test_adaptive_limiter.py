"""The limiter that enforces an estimator's limit: permits, samples, drops, waiting, leaks."""

from __future__ import annotations

import asyncio
import gc
import os
import pickle
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import pytest

from headgate import ManualClock
from headgate.resilience.adaptive import AIMD, AdaptiveLimiter, Fixed
from headgate.resilience.entrance import Permit
from headgate.resilience.notices import Notice
from headgate.resilience.overload import Overloaded


class Heard:
    """An estimator that keeps what it hears."""

    def __init__(self, limit: int = 2) -> None:
        self.limit = limit
        self.samples: list[tuple[int, int, bool]] = []

    def sample(self, rtt: int, in_flight: int, dropped: bool = False) -> int:
        self.samples.append((rtt, in_flight, dropped))
        return self.limit


def full(limiter: AdaptiveLimiter, calls: int) -> list[Permit]:
    permits = [limiter.admit() for _ in range(calls)]
    assert all(isinstance(permit, Permit) for permit in permits)
    return permits  # type: ignore[return-value] # as was just seen


class TestPermits:
    def test_as_many_as_the_limit(self, manual_clock: ManualClock) -> None:
        limiter = AdaptiveLimiter(Fixed(2), name="db", clock=manual_clock)
        first, _ = full(limiter, 2)
        refusal = limiter.admit()
        assert not refusal
        assert refusal.reason == "limit"  # type: ignore[union-attr] # a refusal
        assert first.release()
        assert limiter.admit()

    def test_a_second_release_changes_nothing(self, manual_clock: ManualClock) -> None:
        limiter = AdaptiveLimiter(Fixed(2), clock=manual_clock)
        (permit,) = full(limiter, 1)
        assert [permit.release(), permit.release(), permit.release("dropped")] == [True] + [
            False
        ] * 2
        assert limiter.in_flight == 0
        assert limiter.snapshot()["dropped"] == 0

    def test_each_call_is_a_sample(self, manual_clock: ManualClock) -> None:
        heard = Heard()
        limiter = AdaptiveLimiter(heard, window=0, clock=manual_clock)
        first, second = full(limiter, 2)
        manual_clock.advance(0.25)
        first.release()
        manual_clock.advance(0.25)
        second.release("dropped")
        full(limiter, 1)[0].release("ignored")
        assert heard.samples == [(250_000, 1, False), (500_000, 2, True)]

    def test_the_limit_follows_and_tells(self, manual_clock: ManualClock) -> None:
        limiter = AdaptiveLimiter(AIMD(20), window=0, name="db", clock=manual_clock)
        told: list[Notice] = []
        limiter.listeners += [lambda _: 1 / 0, told.append]  # one that breaks breaks nothing
        permits = full(limiter, 10)
        permits.pop().release()
        assert limiter.limit == 21
        permits.pop().release("dropped")
        assert [(notice.kind, dict(notice.values)) for notice in told] == [
            ("adaptive.limit", {"before": 20, "after": 21}),
            ("adaptive.limit", {"before": 21, "after": 20}),
            ("adaptive.dropped", {"took": 0.0, "partition": ""}),
        ]
        assert told[0].name == "db"
        assert told[0].at == manual_clock.now()

    def test_an_unknown_outcome_is_named(self, manual_clock: ManualClock) -> None:
        limiter = AdaptiveLimiter(Fixed(2), clock=manual_clock)
        with pytest.raises(ValueError, match="success, ignored, dropped"):
            full(limiter, 1)[0].release("fine")

    def test_a_permit_thrown_away_comes_back(self, manual_clock: ManualClock) -> None:
        limiter = AdaptiveLimiter(Fixed(1), clock=manual_clock)
        full(limiter, 1)
        gc.collect()
        assert limiter.admit()

    def test_snapshot(self, manual_clock: ManualClock) -> None:
        limiter = AdaptiveLimiter(Fixed(9), name="db", partitions={"a": 0.5}, clock=manual_clock)
        permits = full(limiter, 2)
        manual_clock.advance(0.1)
        permits[0].release()
        found = limiter.snapshot()
        assert (found["limit"], found["in_flight"], found["success"], found["admitted"]) == (
            9,
            1,
            1,
            2,
        )
        assert found["p99"] == pytest.approx(0.1, rel=0.07)
        assert found["partitions"] == {"a": {"in_flight": 0, "guaranteed": 4}}


class TestFaces:
    def test_blocks_calls_and_decorators(self, manual_clock: ManualClock) -> None:
        limiter = AdaptiveLimiter(Fixed(1), name="db", clock=manual_clock)

        @limiter
        def double(number: int) -> int:
            assert limiter.in_flight == 1
            return 2 * number

        with limiter, pytest.raises(Overloaded, match=r"db: .*limit of 1 calls"):
            double(4)
        with limiter.hold() as permit:
            assert permit.in_flight == 1
        assert double(4) == limiter.call(double.__wrapped__, 4) == 8  # type: ignore[attr-defined] # by functools
        assert limiter.in_flight == 0

    def test_async_faces(self, manual_clock: ManualClock) -> None:
        limiter = AdaptiveLimiter(Fixed(1), clock=manual_clock)

        @limiter
        async def double(number: int) -> int:
            await asyncio.sleep(0)
            assert limiter.in_flight == 1
            return 2 * number

        async def main() -> None:
            async with limiter:
                with pytest.raises(Overloaded):
                    await double(4)
            async with limiter.hold(priority=-1):
                pass
            assert await double(4) == 8
            assert await limiter.call_async(double.__wrapped__, 4) == 8  # type: ignore[attr-defined] # by functools
            assert limiter.in_flight == 0

        asyncio.run(main())

    def test_errors_are_judged(self, manual_clock: ManualClock) -> None:
        heard = Heard()
        limiter = AdaptiveLimiter(
            heard, window=0, clock=manual_clock, drops=(TimeoutError, ConnectionError)
        )
        for error in (ValueError, ConnectionResetError, KeyboardInterrupt):
            with pytest.raises(error), limiter:
                raise error
        assert [dropped for _, _, dropped in heard.samples] == [True]
        assert limiter.snapshot()["ignored"] == 2
        assert limiter.in_flight == 0

    def test_generators_are_refused_clearly(self, manual_clock: ManualClock) -> None:
        limiter = AdaptiveLimiter(Fixed(1), clock=manual_clock)

        def numbers() -> Iterator[int]:
            yield 1

        with pytest.raises(TypeError, match="generator"):
            limiter(numbers)

    def test_a_coroutine_is_not_called_plainly(self, manual_clock: ManualClock) -> None:
        limiter = AdaptiveLimiter(Fixed(1), clock=manual_clock)

        async def call() -> None: ...

        with pytest.raises(TypeError, match="call_async"):
            limiter.call(call)

    def test_a_kind_of_calls(self, manual_clock: ManualClock) -> None:
        limiter = AdaptiveLimiter(Fixed(10), clock=manual_clock)
        low = limiter.of(priority=-1)
        with ExitStack() as stack:
            for _ in range(8):
                stack.enter_context(low.hold())
            with pytest.raises(Overloaded):
                low.call(print)
            with limiter:
                assert limiter.in_flight == 9
        assert limiter.in_flight == 0

    def test_a_hold_is_for_one_call(self, manual_clock: ManualClock) -> None:
        hold = AdaptiveLimiter(Fixed(1), clock=manual_clock).hold()
        with hold:
            pass
        with pytest.raises(RuntimeError, match="one call"), hold:
            pass

    def test_the_error_can_be_pickled(self) -> None:
        limiter = AdaptiveLimiter(Fixed(1), name="db")
        with limiter, pytest.raises(Overloaded) as caught, limiter:
            pass
        again = pickle.loads(pickle.dumps(caught.value))
        assert (str(again), again.reason, again.name) == (str(caught.value), "limit", "db")


class TestWaiting:
    def waiting(self, limiter: AdaptiveLimiter, count: int) -> None:
        while limiter.waiting < count:
            time.sleep(0)

    def test_first_come_first_served_then_priority(self, manual_clock: ManualClock) -> None:
        async def main() -> list[str]:
            limiter = AdaptiveLimiter(Fixed(1), queue=9, timeout=60, clock=manual_clock)
            served: list[str] = []

            async def call(name: str, priority: int) -> None:
                async with limiter.hold(priority=priority):
                    served.append(name)
                    await asyncio.sleep(0)

            async with limiter.hold():
                tasks = []
                for name, priority in (("a", 0), ("low", -1), ("b", 0), ("high", 5)):
                    tasks.append(asyncio.create_task(call(name, priority)))
                    await asyncio.sleep(0)
            await asyncio.gather(*tasks)
            assert limiter.in_flight == limiter.waiting == 0
            return served

        assert asyncio.run(main()) == ["high", "a", "b", "low"]

    def test_patience_ends(self, manual_clock: ManualClock) -> None:
        async def main() -> None:
            limiter = AdaptiveLimiter(Fixed(1), queue=9, timeout=2, clock=manual_clock)
            with limiter.hold():
                task = asyncio.create_task(limiter.call_async(asyncio.sleep, 0))
                await asyncio.sleep(0)
                assert manual_clock.next_wakeup() == manual_clock.now() + 2
                manual_clock.advance(2)
                with pytest.raises(Overloaded, match="in time"):
                    await task
            assert limiter.waiting == limiter.in_flight == 0

        asyncio.run(main())

    def test_a_full_line_sends_the_least_important_away(self, manual_clock: ManualClock) -> None:
        async def main() -> None:
            limiter = AdaptiveLimiter(Fixed(1), queue=1, timeout=60, clock=manual_clock)
            told: list[Any] = []
            limiter.listeners.append(lambda notice: told.append(notice.values["reason"]))

            async def call(priority: int) -> int:
                async with limiter.hold(priority=priority):
                    return priority

            async with limiter:
                low = asyncio.create_task(call(-1))
                await asyncio.sleep(0)
                with pytest.raises(Overloaded, match="1 calls wait already"):
                    await call(-1)
                high = asyncio.create_task(call(1))
                with pytest.raises(Overloaded, match="more important"):
                    await low
            assert await high == 1
            assert told == ["line", "pushed"]
            assert limiter.in_flight == 0

        asyncio.run(main())

    def test_threads_wait_too(self, manual_clock: ManualClock) -> None:
        limiter = AdaptiveLimiter(Fixed(1), queue=9, timeout=60, clock=manual_clock)
        with ThreadPoolExecutor(2) as pool:
            with limiter.hold():
                waits = pool.submit(limiter.call, lambda: "served")
                self.waiting(limiter, 1)
            assert waits.result(60) == "served"
            with limiter.hold():
                waits = pool.submit(limiter.call, lambda: "served")
                self.waiting(limiter, 1)
                while manual_clock.next_wakeup() is None:
                    time.sleep(0)
                manual_clock.advance(60)
                with pytest.raises(Overloaded, match="in time"):
                    waits.result(60)
        assert limiter.in_flight == limiter.waiting == 0

    def test_cancellation_at_any_moment_leaks_nothing(self, manual_clock: ManualClock) -> None:
        async def main() -> None:
            limiter = AdaptiveLimiter(Fixed(2), queue=50, timeout=60, clock=manual_clock)

            async def call() -> None:
                async with limiter.hold():
                    await asyncio.sleep(0)
                    await asyncio.sleep(0)

            for patience in range(2000):
                tasks = [asyncio.create_task(call()) for _ in range(5)]
                for _ in range(patience % 9):
                    await asyncio.sleep(0)
                for task in tasks[patience % 3 :: 2]:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
                assert limiter.in_flight == limiter.waiting == 0
            with limiter, limiter:
                pass

        asyncio.run(main())

    def test_a_raised_limit_serves_the_line(self, manual_clock: ManualClock) -> None:
        async def main() -> None:
            heard = Heard(2)
            limiter = AdaptiveLimiter(heard, window=0, queue=9, timeout=60, clock=manual_clock)
            permits = full(limiter, 2)
            tasks = [asyncio.create_task(limiter.call_async(asyncio.sleep, 0)) for _ in range(3)]
            await asyncio.sleep(0)
            assert limiter.waiting == 3
            heard.limit = 4
            permits.pop().release()
            assert limiter.waiting == 0
            await asyncio.gather(*tasks)

        asyncio.run(main())


class TestThreads:
    def test_exact_at_a_tiny_switch_interval(self) -> None:
        limiter = AdaptiveLimiter(Fixed(5), partitions={"a": 0.4, "b": 0.4}, lend=False)
        inside = {"a": 0, "b": 0}
        most = 0
        lock = threading.Lock()

        def work(name: str) -> None:
            nonlocal most
            for _ in range(800):
                permit = limiter.admit(name)
                if isinstance(permit, Permit):
                    with lock:
                        inside[name] += 1
                        most = max(most, sum(inside.values()))
                    with lock:
                        inside[name] -= 1
                    permit.release()

        before = sys.getswitchinterval()
        sys.setswitchinterval(1e-6)
        try:
            with ThreadPoolExecutor(8) as pool:
                list(pool.map(work, ["a", "b"] * 4))
        finally:
            sys.setswitchinterval(before)
        found = limiter.snapshot()
        assert most <= 5
        assert limiter.in_flight == 0
        assert found["admitted"] == found["success"]
        assert found["admitted"] + found["refused"] == 8 * 800


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_child_begins_anew() -> None:
    limiter = AdaptiveLimiter(Fixed(1))
    (permit,) = full(limiter, 1)
    with limiter._lock:  # as another thread may hold it at that moment
        child = os.fork()
        if not child:
            fine = limiter.in_flight == 0 and bool(limiter.admit()) and not permit.release()
            os._exit(0 if fine else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert limiter.in_flight == 1


def test_settings_are_checked() -> None:
    with pytest.raises(ValueError, match="aimd, vegas, gradient2"):
        AdaptiveLimiter("bbr")
    with pytest.raises(TypeError, match="estimator"):
        AdaptiveLimiter(7)  # type: ignore[arg-type] # on purpose
    with pytest.raises(ValueError, match="queue"):
        AdaptiveLimiter(queue=-1)
    with pytest.raises(ValueError, match="timeout"):
        AdaptiveLimiter(timeout=-1)
    with pytest.raises(ValueError, match="window"):
        AdaptiveLimiter(window=-1)
    with pytest.raises(TypeError, match="priority"):
        AdaptiveLimiter().of(priority="high")  # type: ignore[arg-type] # on purpose
    with pytest.raises(TypeError, match="deadline"):
        AdaptiveLimiter().hold(deadline="soon")  # type: ignore[arg-type] # on purpose
    for name in ("aimd", "vegas", "gradient2"):
        assert AdaptiveLimiter(name).limit == 20
