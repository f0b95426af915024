"""Waiting: order, deadlines, priorities, cancellation; all on a clock that stands still."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from headgate import (
    AsyncLimiter,
    Limiter,
    LimitExceeded,
    ManualClock,
    MemoryStore,
    NeverFits,
)

ALGORITHMS = [
    "1/second even", "1/second gcra burst 1", "1/second burst 1", "1/second fixed-window",
    "1/second sliding-log", "1/second leaky-bucket", "1/second leaky-bucket queue 20000",
    "1/second debt burst 1", "1/second cells 1",
]  # fmt: skip


async def step_through(clock: ManualClock, tasks: Sequence[asyncio.Task[Any]]) -> None:
    """Move the clock from wake-up to wake-up until every task is done."""
    while not all(task.done() for task in tasks):
        wakeup = clock.next_wakeup()
        assert wakeup is not None, "somebody waits for nothing"
        clock.advance(wakeup - clock.now())
        await asyncio.sleep(0)
        await asyncio.sleep(0)


def run(main: Callable[[ManualClock], Awaitable[None]]) -> None:
    asyncio.run(main(ManualClock(1_000_000)))  # type: ignore[arg-type] # a coroutine in fact


class TestOrder:
    def test_10_000_tasks_wake_in_order_at_the_right_times(self) -> None:
        async def main(clock: ManualClock) -> None:
            limiter = AsyncLimiter("1/second even", clock=clock)
            start, woken = clock.now(), list[tuple[int, float]]()

            async def work(number: int) -> None:
                await limiter.wait("k")
                woken.append((number, clock.now() - start))

            tasks = [asyncio.create_task(work(number)) for number in range(10_000)]
            await asyncio.sleep(0)
            await step_through(clock, tasks)
            assert woken == [(number, float(number)) for number in range(10_000)]

        run(main)

    @pytest.mark.parametrize("text", ALGORITHMS)
    def test_one_a_second_whatever_the_algorithm(self, text: str) -> None:
        async def main(clock: ManualClock) -> None:
            limiter = AsyncLimiter(text, clock=clock)
            start, woken = clock.now(), list[tuple[int, float]]()

            async def work(number: int) -> None:
                await limiter.wait("k")
                woken.append((number, clock.now() - start))

            tasks = [asyncio.create_task(work(number)) for number in range(20)]
            await asyncio.sleep(0)
            await step_through(clock, tasks)
            numbers = [number for number, _ in woken]
            times = [time for _, time in woken]
            assert numbers == list(range(20))
            # The debt form admits one more while nothing is owed yet.
            late = 1 if "debt" in text else 0
            assert times == [max(0.0, float(number - late)) for number in range(20)]

        run(main)

    def test_one_head_asks_and_one_timer_runs(self) -> None:
        async def main(clock: ManualClock) -> None:
            asked = 0

            class Counting(MemoryStore):
                def decide(self, asks):  # type: ignore[no-untyped-def] # as its parent
                    nonlocal asked
                    asked += 1
                    return super().decide(asks)

            limiter = AsyncLimiter("1/second fixed-window", store=Counting(clock=clock))
            tasks = [asyncio.create_task(_quietly(limiter.wait("k"))) for _ in range(1000)]
            await asyncio.sleep(0)
            asked = 0
            clock.advance(1)
            await asyncio.sleep(0)
            assert asked == 2  # the head passes, the next is told to wait
            assert len(clock._timers) <= 2
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            assert clock.next_wakeup() is None

        run(main)

    def test_a_higher_priority_goes_first(self) -> None:
        async def main(clock: ManualClock) -> None:
            limiter, woken = AsyncLimiter("1/second even", clock=clock), list[str]()
            await limiter.hit("k")

            async def work(name: str, priority: int) -> None:
                await limiter.wait("k", priority=priority)
                woken.append(name)

            names = [("first", 0), ("low", -1), ("high", 5), ("second", 0), ("also high", 5)]
            tasks = [asyncio.create_task(work(*name)) for name in names]
            await asyncio.sleep(0)
            await step_through(clock, tasks)
            # The first one was booked before the others came.
            assert woken == ["first", "high", "also high", "second", "low"]

        run(main)

    def test_one_waiting_key_does_not_block_another(self) -> None:
        async def main(clock: ManualClock) -> None:
            limiter = AsyncLimiter("1/hour", clock=clock)
            await limiter.hit("a")
            waiting = asyncio.create_task(limiter.wait("a"))
            await asyncio.sleep(0)
            assert (await asyncio.wait_for(limiter.wait("b"), 1)).allowed
            assert not waiting.done()
            waiting.cancel()

        run(main)

    def test_costs_of_different_size_keep_their_order(self) -> None:
        async def main(clock: ManualClock) -> None:
            limiter, woken = AsyncLimiter("10/second burst 10", clock=clock), list[int]()
            await limiter.hit("k", 10)

            async def work(cost: int) -> None:
                await limiter.wait("k", cost)
                woken.append(cost)

            tasks = [asyncio.create_task(work(cost)) for cost in (9, 1, 5, 1)]
            await asyncio.sleep(0)
            await step_through(clock, tasks)
            assert woken == [9, 1, 5, 1]
            assert clock.now() == 1_000_001.6

        run(main)


class TestDeadlines:
    def test_who_cannot_be_served_in_time_is_told_at_once(self, manual_clock: ManualClock) -> None:
        limiter = Limiter("1/minute", clock=manual_clock)
        limiter.hit("k")
        with pytest.raises(LimitExceeded) as refusal:
            limiter.wait("k", timeout=5)
        assert refusal.value.decision.retry_after > 5
        assert refusal.value.retry_after == refusal.value.decision.retry_after
        assert manual_clock.now() == 1_000_000

    @pytest.mark.parametrize("text", ALGORITHMS)
    def test_those_behind_a_queue_are_told_at_once_too(self, text: str) -> None:
        async def main(clock: ManualClock) -> None:
            limiter = AsyncLimiter(text, clock=clock)
            tasks = [
                asyncio.create_task(_quietly(limiter.wait("k", timeout=5))) for _ in range(100)
            ]
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert sum(task.done() for task in tasks) in (95, 96)  # one at once, 94 refused
            await step_through(clock, tasks)
            extra = 1 if "debt" in text else 0
            assert sum(task.result() for task in tasks) == 6 + extra

        run(main)

    def test_an_expired_waiter_leaves_the_line(self) -> None:
        async def main(clock: ManualClock) -> None:
            limiter = AsyncLimiter("1 concurrent", clock=clock)
            async with limiter.hold("k"):
                task = asyncio.create_task(_enter(limiter, 3.0))
                await asyncio.sleep(0)
                clock.advance(3)
                with pytest.raises(LimitExceeded):
                    await task
            assert clock.now() == 1_000_003
            async with limiter.hold("k"):
                pass

        run(main)

    def test_a_cost_that_never_fits(self, manual_clock: ManualClock) -> None:
        limiter = Limiter("5/second", clock=manual_clock)
        with pytest.raises(NeverFits, match="can never fit into the limit '5/second'"):
            limiter.wait("k", 6)
        with pytest.raises(NeverFits), Limiter("2 concurrent").hold(cost=3, timeout=None):
            pass

    @pytest.mark.parametrize("timeout", [-1, float("nan"), "1", True])
    def test_a_bad_timeout(self, timeout: float) -> None:
        with pytest.raises((TypeError, ValueError), match="timeout is"):
            Limiter("5/second").wait("k", timeout=timeout)

    def test_timeout_zero_is_a_hit_that_raises(self, manual_clock: ManualClock) -> None:
        limiter = Limiter("1/second", clock=manual_clock)
        assert limiter.wait("k", timeout=0)
        with pytest.raises(LimitExceeded):
            limiter.wait("k", timeout=0)


class TestCancellation:
    @pytest.mark.parametrize("text", ALGORITHMS)
    def test_what_was_taken_comes_back(self, text: str) -> None:
        async def main(clock: ManualClock) -> None:
            limiter = AsyncLimiter(text, clock=clock)
            while (await limiter.hit("k")).allowed:
                pass
            before = (await limiter.peek("k")).reset_after
            tasks = [asyncio.create_task(limiter.wait("k")) for _ in range(5)]
            await asyncio.sleep(0)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            if "queue" not in text:  # a place in a queue is gone if somebody stood behind it
                assert (await limiter.peek("k")).reset_after == before
            assert clock.next_wakeup() is None

        run(main)

    def test_a_waiter_cancelled_as_it_is_served_gives_back(self) -> None:
        async def main(clock: ManualClock) -> None:
            limiter = AsyncLimiter("1/second fixed-window", clock=clock)
            await limiter.hit("k")
            task = asyncio.create_task(limiter.wait("k"))
            await asyncio.sleep(0)
            clock.advance(1)  # served; the task has not run yet
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            assert (await limiter.hit("k")).allowed

        run(main)

    def test_100_000_cancellations_lose_nothing(self) -> None:
        async def main(clock: ManualClock) -> None:
            limiter = AsyncLimiter("5 concurrent", clock=clock)
            rate = AsyncLimiter("5/second gcra", clock=clock)

            async def held(number: int) -> None:
                async with limiter.hold("k", timeout=None):
                    await asyncio.sleep(0)

            for round_ in range(500):
                holds = [asyncio.create_task(held(number)) for number in range(100)]
                waits = [asyncio.create_task(rate.wait("k")) for _ in range(100)]
                for _ in range(round_ % 4):
                    await asyncio.sleep(0)
                clock.advance(0.1 * (round_ % 3))
                for task in (*holds, *waits):
                    task.cancel()
                await asyncio.gather(*holds, *waits, return_exceptions=True)
            assert (await limiter.peek("k")).remaining == 5
            clock.advance(1)
            assert (await rate.peek("k")).remaining == 5
            assert clock.next_wakeup() is None

        run(main)

    def test_an_interrupted_thread_gives_back(self, manual_clock: ManualClock) -> None:
        limiter = Limiter("1/second even", clock=manual_clock)
        limiter.hit("k")
        before = limiter.peek("k").reset_after

        from headgate.waiters import ThreadWaiter

        def interrupt(self: ThreadWaiter, clock: object) -> None:
            raise KeyboardInterrupt

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ThreadWaiter, "block", interrupt)
            with pytest.raises(KeyboardInterrupt):
                limiter.wait("k")
        assert limiter.peek("k").reset_after == before


class TestThreads:
    def test_threads_wait_in_order(self, manual_clock: ManualClock) -> None:
        limiter, woken = Limiter("1/second even", clock=manual_clock), list[tuple[int, float]]()
        limiter.hit("k")

        def work(number: int) -> None:
            limiter.wait("k")
            woken.append((number, manual_clock.now()))

        threads = []
        for number in range(5):
            thread = threading.Thread(target=work, args=(number,))
            thread.start()
            threads.append(thread)
            _until(lambda number=number: _queued(limiter) == number + 1)  # type: ignore[misc] # bound now
        for number in range(5):
            _until(lambda number=number: len(woken) == number)  # type: ignore[misc] # bound now
            manual_clock.advance(1)
        for thread in threads:
            thread.join()
        assert woken == [(number, 1_000_001.0 + number) for number in range(5)]

    def test_a_thread_waits_on_the_system_clock(self) -> None:
        limiter = Limiter("200/second even")
        for _ in range(5):
            assert limiter.wait("k", timeout=5)

    def test_tasks_wait_on_the_system_clock(self) -> None:
        async def main() -> None:
            limiter = AsyncLimiter("500/second even")
            decisions = await asyncio.gather(*(limiter.wait("k", timeout=5) for _ in range(10)))
            assert all(decisions)

        asyncio.run(main())

    def test_threads_and_tasks_share_a_line(self) -> None:
        store = MemoryStore()
        limiter, other = (
            Limiter("1 concurrent", store=store),
            AsyncLimiter("1 concurrent", store=store),
        )
        total = 0

        def work() -> None:
            nonlocal total
            for _ in range(50):
                with limiter.hold("k", timeout=10):
                    total += 1

        async def main() -> None:
            nonlocal total
            for _ in range(50):
                async with other.hold("k", timeout=10):
                    total += 1
                await asyncio.sleep(0)

        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        asyncio.run(main())
        for thread in threads:
            thread.join()
        assert total == 200
        assert limiter.peek("k").remaining == 1


async def _quietly(waiting: Awaitable[object]) -> bool:
    try:
        await waiting
    except LimitExceeded:
        return False
    return True


async def _enter(limiter: AsyncLimiter, timeout: float) -> None:
    async with limiter.hold("k", timeout=timeout):
        pass


def _queued(limiter: Limiter) -> int:
    lines = limiter._lines._lines.get(("", "k"), {})
    return sum(
        sum(waiter.queued for _, _, waiter in line.queue) + (line.booked is not None)
        for line in lines.values()
    )


def _until(true: Callable[[], bool]) -> None:
    """Spin until another thread has come so far."""
    patience = threading.Event()
    for _ in range(10_000):
        if true():
            return
        patience.wait(0.001)
    raise AssertionError("the other thread did not come so far")
