"""Waiting in front of a store that blocks: order, deadlines, and that nothing gets lost."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Awaitable
from typing import Any

import pytest
from blocking_tools import ALGORITHMS, nobody_waits, run, step_through
from far_store import FarStore, settled

from headgate import (
    AsyncLimiter,
    Limiter,
    LimitExceeded,
    ManualClock,
    NeverFits,
    StoreError,
)


class TestOrder:
    @pytest.mark.parametrize("text", ALGORITHMS)
    def test_one_a_second_whatever_the_algorithm(self, text: str) -> None:
        async def main(clock: ManualClock, store: FarStore) -> None:
            limiter = AsyncLimiter(text, store=store)
            start, woken = clock.now(), list[tuple[int, float]]()

            async def work(number: int) -> None:
                await limiter.wait("k")
                woken.append((number, clock.now() - start))

            tasks = [asyncio.create_task(work(number)) for number in range(20)]
            await step_through(clock, tasks)
            late = 1 if "debt" in text else 0  # admits one more while nothing is owed yet
            assert woken == [(number, max(0.0, number - late)) for number in range(20)]
            assert store.crossings <= 60  # nobody but the head asks again
            assert nobody_waits(limiter)
            assert clock.next_wakeup() is None

        run(main)

    def test_everybody_asks_at_once_while_nobody_is_refused(self) -> None:
        async def main(clock: ManualClock, store: FarStore) -> None:
            limiter = AsyncLimiter("64/second", store=store)
            tasks = [asyncio.create_task(limiter.wait("k")) for _ in range(64)]
            for _ in range(8):  # one way there and one way back, and a little for the tasks
                await asyncio.sleep(0)
            assert all(task.done() for task in tasks)
            assert store.crossings == 64

        run(main)

    @pytest.mark.parametrize("text", ["1/second even", "1/second fixed-window"])
    def test_a_higher_priority_goes_first(self, text: str) -> None:
        async def main(clock: ManualClock, store: FarStore) -> None:
            limiter, woken = AsyncLimiter(text, store=store), list[str]()
            await limiter.hit("k")

            async def work(name: str, priority: int) -> None:
                await limiter.wait("k", priority=priority)
                woken.append(name)

            tasks = [asyncio.create_task(work("first", 0))]
            await settled()
            names = [("low", -1), ("high", 5), ("second", 0), ("also high", 5)]
            tasks += [asyncio.create_task(work(*name)) for name in names]
            await step_through(clock, tasks)
            # What is booked stays booked; who only waits for a window is overtaken.
            rest = ["high", "also high", "second", "low"]
            booked = ["first", *rest]
            assert woken == (booked if "even" in text else [*rest[:2], "first", *rest[2:]])

        run(main)

    def test_permits_in_order_woken_at_once(self) -> None:
        async def main(clock: ManualClock, store: FarStore) -> None:
            limiter, order = AsyncLimiter("1 concurrent", store=store), list[int]()

            async def work(number: int) -> None:
                async with limiter.hold("k", timeout=60):
                    order.append(number)
                    await settled()

            await asyncio.gather(*(work(number) for number in range(10)))
            assert order == list(range(10))
            assert clock.now() == 1_000_000  # nobody had to look again

        run(main)

    def test_a_permit_that_another_process_gives_back(self) -> None:
        async def main(clock: ManualClock, store: FarStore) -> None:
            limiter = AsyncLimiter("1 concurrent", store=store)
            other = Limiter("1 concurrent", store=store.near)
            with other.hold("k"):
                task = asyncio.create_task(_hold(limiter, None))
                await settled()
                pauses = []
                for _ in range(30):
                    wakeup = clock.next_wakeup()
                    assert wakeup is not None
                    pauses.append(wakeup - clock.now())
                    clock.advance(pauses[-1])
                    await settled()
                assert pauses[0] == pytest.approx(0.002, abs=1e-5)
                assert max(pauses) < 0.0501
            await step_through(clock, [task])

        run(main)


class TestDeadlines:
    def test_who_cannot_be_served_in_time_is_told_at_once(self, manual_clock: ManualClock) -> None:
        store = FarStore(manual_clock)
        limiter = Limiter("1/minute", store=store)
        limiter.hit("k")
        with pytest.raises(LimitExceeded) as refusal:
            limiter.wait("k", timeout=5)
        assert refusal.value.retry_after > 5
        assert store.crossings == 2
        assert nobody_waits(limiter)

    @pytest.mark.parametrize("text", ALGORITHMS)
    def test_those_behind_a_line_are_told_at_once_too(self, text: str) -> None:
        async def main(clock: ManualClock, store: FarStore) -> None:
            limiter = AsyncLimiter(text, store=store)
            tasks = [
                asyncio.create_task(_quietly(limiter.wait("k", timeout=5))) for _ in range(100)
            ]
            await settled()
            # A cell's width is not known exactly: one more may hope.
            assert sum(task.done() for task in tasks) in (94, 95, 96)
            later = [asyncio.create_task(_quietly(limiter.wait("k", timeout=5))) for _ in range(9)]
            await settled()
            assert sum(task.done() for task in later) >= 8
            await step_through(clock, [*tasks, *later])
            assert sum(task.result() for task in [*tasks, *later]) == 6 + ("debt" in text)
            assert nobody_waits(limiter)

        run(main)

    def test_an_expired_waiter_leaves_the_line(self) -> None:
        async def main(clock: ManualClock, store: FarStore) -> None:
            limiter = AsyncLimiter("1 concurrent", store=store)
            async with limiter.hold("k", ttl=60):
                head = asyncio.create_task(_hold(limiter, 3.0))
                behind = asyncio.create_task(_hold(limiter, 4.0))
                await settled()
                for task in (head, behind):
                    while not task.done():
                        wakeup = clock.next_wakeup()
                        assert wakeup is not None
                        clock.advance(wakeup - clock.now())
                        await settled()
                    with pytest.raises(LimitExceeded):
                        await task
                assert clock.now() == 1_000_004
            async with limiter.hold("k"):
                pass
            assert nobody_waits(limiter)

        run(main)

    def test_who_gives_up_is_no_longer_expected(self) -> None:
        """A store may keep a list of those who wait for a permit; a stale entry holds up others."""

        async def main(clock: ManualClock, store: FarStore) -> None:
            limiter = AsyncLimiter("1 concurrent", store=store)
            async with limiter.hold("k", ttl=60):
                tasks = [asyncio.create_task(_hold(limiter, 1.0))]
                await settled()
                tasks.append(asyncio.create_task(_hold(limiter, 0.5, priority=1)))
                await settled()
                waited = [asks[0].token for asks in store.asked if asks[0].max_wait]
                left = [asks[0].token for asks in store.asked if asks[0].op == "release"]
                assert left == waited[:1]  # overtaken
                await _drained(clock, tasks)
                left = [asks[0].token for asks in store.asked if asks[0].op == "release"]
                assert left == [waited[0], waited[1], waited[0]]

        run(main)

    def test_a_cost_that_never_fits_behind_others_too(self) -> None:
        async def main(clock: ManualClock, store: FarStore) -> None:
            limiter = AsyncLimiter("5/second gcra", store=store)
            with pytest.raises(NeverFits):
                await limiter.wait("k", 6)
            tasks = [asyncio.create_task(limiter.wait("k", 5)) for _ in range(5)]
            await settled()
            with pytest.raises(NeverFits):
                await limiter.wait("k", 6)
            await step_through(clock, tasks)

        run(main)

    def test_timeout_zero_is_a_hit_that_raises(self, manual_clock: ManualClock) -> None:
        limiter = Limiter("1/second", store=FarStore(manual_clock))
        assert limiter.wait("k", timeout=0)
        with pytest.raises(LimitExceeded):
            limiter.wait("k", timeout=0)


class TestTrouble:
    def test_a_store_that_fails_tells_each_in_turn(self) -> None:
        async def main(clock: ManualClock, store: FarStore) -> None:
            limiter = AsyncLimiter("1/second fixed-window", store=store)
            await limiter.hit("k")
            tasks = [asyncio.create_task(limiter.wait("k")) for _ in range(5)]
            await settled()
            store.broken = StoreError("away")
            clock.advance(1)
            results = await asyncio.gather(*tasks, return_exceptions=True)
            assert [type(result) for result in results] == [StoreError] * 5
            assert nobody_waits(limiter)

        run(main)

    def test_closing_tells_whoever_waits(self) -> None:
        async def main(clock: ManualClock, store: FarStore) -> None:
            limiter = AsyncLimiter("1 concurrent", store=store)
            limiter._owns = True
            await limiter.hold("k", ttl=60).__aenter__()
            tasks = [asyncio.create_task(_hold(limiter, None)) for _ in range(3)]
            await settled()
            await limiter.close()
            results = await asyncio.gather(*tasks, return_exceptions=True)
            assert [type(result) for result in results] == [StoreError] * 3

        run(main)

    def test_a_line_outlives_the_loop_of_its_head(self) -> None:
        store = FarStore(ManualClock(1_000_000))
        limiter = Limiter("1/second fixed-window", store=store)
        limiter.hit("k")
        other = AsyncLimiter("1/second fixed-window", store=store)
        loop = asyncio.new_event_loop()
        task = loop.create_task(other.wait("k"))
        loop.run_until_complete(settled())
        loop.close()
        task._log_destroy_pending = False  # type: ignore[attr-defined] # that is the point
        done = list[bool]()
        thread = threading.Thread(target=lambda: done.append(limiter.wait("k").allowed))
        thread.start()
        for _ in range(1000):
            if done:
                break
            store.clock.advance(1)  # type: ignore[attr-defined] # a ManualClock
            thread.join(0.01)
        thread.join(60)
        assert done == [True]


class TestThreads:
    def test_64_threads_and_tasks_share_a_line(self) -> None:
        store = FarStore()
        limiter = Limiter("2 concurrent", store=store)
        other = AsyncLimiter("2 concurrent", store=store)
        inside, most, total = 0, 0, 0
        lock = threading.Lock()

        def enter() -> None:
            nonlocal inside, most, total
            with lock:
                inside, total = inside + 1, total + 1
                most = max(most, inside)

        def leave() -> None:
            nonlocal inside
            with lock:
                inside -= 1

        def work() -> None:
            for _ in range(5):
                with limiter.hold("k", timeout=60):
                    enter()
                    leave()

        async def task() -> None:
            for _ in range(5):
                async with other.hold("k", timeout=60):
                    enter()
                    await asyncio.sleep(0)
                    leave()

        async def main() -> None:
            await asyncio.gather(*(task() for _ in range(16)))

        switch = sys.getswitchinterval()
        sys.setswitchinterval(1e-6)
        try:
            threads = [threading.Thread(target=work) for _ in range(48)]
            for thread in threads:
                thread.start()
            asyncio.run(main())
            for thread in threads:
                thread.join()
        finally:
            sys.setswitchinterval(switch)
        assert (total, inside) == (64 * 5, 0)
        assert most <= 2
        assert limiter.peek("k").remaining == 2
        assert nobody_waits(limiter)

    def test_rates_on_the_system_clock(self) -> None:
        store = FarStore(distance=0.0005)
        limiter = Limiter("500/second even", store=store)
        other = AsyncLimiter("500/second even", store=store)
        threads = [threading.Thread(target=limiter.wait, args=("k",)) for _ in range(8)]

        async def main() -> None:
            await asyncio.gather(*(other.wait("k", timeout=30) for _ in range(8)))

        for thread in threads:
            thread.start()
        asyncio.run(main())
        for thread in threads:
            thread.join(60)
        assert nobody_waits(limiter)


async def _quietly(waiting: Awaitable[object]) -> bool:
    try:
        await waiting
    except LimitExceeded:
        return False
    return True


async def _drained(clock: ManualClock, tasks: list[asyncio.Task[Any]]) -> None:
    await step_through(clock, tasks)
    assert [type(task.exception()) for task in tasks] == [LimitExceeded] * len(tasks)


async def _hold(limiter: AsyncLimiter, timeout: float | None, priority: int = 0) -> None:
    async with limiter.hold("k", timeout=timeout, priority=priority):
        pass
