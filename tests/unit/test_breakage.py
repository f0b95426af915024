"""Things that break at the wrong moment: interrupts, finalisers, closed loops, closed stores."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from garbage_tools import left_in_cycles

from headgate import (
    Ask,
    AsyncLimiter,
    Limit,
    Limiter,
    LimitExceeded,
    ManualClock,
    MemoryStore,
    StoreError,
)


class Interrupted(BaseException):
    pass


@pytest.fixture
def interrupts() -> Iterator[Callable[[float], None]]:
    """Sets an alarm that raises in the middle of whatever runs."""

    def ring(number: int, frame: object) -> None:
        raise Interrupted

    before = signal.signal(signal.SIGALRM, ring)
    yield lambda seconds: signal.setitimer(signal.ITIMER_REAL, seconds) and None
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("text", ["1000000/second fixed-window", "1000000/second sliding-log"])
def test_an_interrupt_leaves_no_lock_held(text: str, interrupts: Callable[[float], None]) -> None:
    limiter = Limiter(text)
    for _ in range(300):
        try:
            interrupts(0.0001)
            while True:
                limiter.hit("k")
        except Interrupted:
            pass
    done = threading.Thread(target=limiter.hit, args=("k",), daemon=True)
    done.start()
    done.join(60)
    assert not done.is_alive()


def test_a_finaliser_may_give_back_in_the_middle_of_a_decision() -> None:
    store = MemoryStore(clock=ManualClock(1_000_000))
    permits = Limiter("100000 concurrent", store=store)
    rates = Limiter("10/second", "10/minute", store=store)

    @permits.limited(key="k")
    def items() -> Iterator[int]:
        yield 1

    left_in_cycles(items, lambda number: rates.hit(f"user {number % 50}"), 1000, often=50)
    assert permits.peek("k").remaining == 100_000


def test_a_store_is_not_asked_in_the_middle_of_its_own_decision() -> None:
    store = MemoryStore(clock=ManualClock(1_000_000))
    limit = Limit.parse("5/minute")
    store.decide([Ask("take", limit, "k", 3)])
    with store._lock:
        with pytest.raises(StoreError, match="middle of its own decision"):
            store.decide([Ask("take", limit, "k")])
        store.decide([Ask("refund", limit, "k", 2, at=store.clock.micros())])
    assert store.decide([Ask("check", limit, "k")])[0].remaining == 4


class TestClosedLoops:
    task: asyncio.Task[Any]

    async def wait_behind(self, limiter: AsyncLimiter) -> None:
        await limiter.hit("k")
        self.task = asyncio.create_task(limiter.wait("k"))
        await asyncio.sleep(0)

    @pytest.mark.filterwarnings("ignore")
    def test_a_waiter_of_a_closed_loop_is_passed_over(self) -> None:
        limiter = AsyncLimiter("20/second token-bucket burst 1")
        loop = asyncio.new_event_loop()
        loop.run_until_complete(self.wait_behind(limiter))
        loop.close()
        assert asyncio.run(limiter.wait("k", timeout=5))
        loop._ready.clear()  # type: ignore[attr-defined] # nothing of it may run again
        del self.task

    @pytest.mark.filterwarnings("ignore")
    def test_a_permit_does_not_go_to_a_closed_loop(self) -> None:
        store = MemoryStore()
        limiter, other = (
            Limiter("1 concurrent", store=store),
            AsyncLimiter("1 concurrent", store=store),
        )
        hold = limiter.hold("k")
        hold.__enter__()

        async def main() -> None:
            self.task = asyncio.create_task(_hold(other))
            await asyncio.sleep(0)

        loop = asyncio.new_event_loop()
        loop.run_until_complete(main())
        loop.close()
        hold.__exit__(None, None, None)
        assert limiter.peek("k").remaining == 1
        del self.task


def test_closing_tells_everybody_who_waits() -> None:
    limiter = Limiter("1/hour")
    limiter.hit("k")
    errors: list[str] = []

    def work() -> None:
        try:
            limiter.wait("k")
        except StoreError as error:
            errors.append(str(error))

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    patience = threading.Event()
    while (
        sum(len(line.queue) for lines in limiter._lines._lines.values() for line in lines.values())
        < 3
    ):
        patience.wait(0.001)
    limiter.close()
    for thread in threads:
        thread.join(60)
    assert errors == ["this store is closed"] * 3


class TestOwnLimits:
    @pytest.mark.parametrize(
        ("base", "own", "most"),
        [
            ("1000/minute token-bucket", "1/minute token-bucket", 1),
            ("10/second sliding-log", "10/hour sliding-log", 10),
            ("1000/minute even", "1/minute even", 1),
            ("1000/minute gcra", "1/minute gcra", 1),
        ],
    )
    def test_a_tighter_limit_is_not_forgotten_by_the_clock_of_the_other(
        self, base: str, own: str, most: int, manual_clock: ManualClock
    ) -> None:
        assigned = Limiter(base, clock=manual_clock)
        assigned.set_limit("bad", own)
        computed = Limiter(base, clock=manual_clock, limit_for={"bad": own})
        for limiter in (assigned, computed):
            passed = 0
            for number in range(600):
                passed += limiter.hit("bad").allowed
                limiter.hit(f"other {number}")
                manual_clock.advance(0.1)
            assert passed == most
            manual_clock.advance(7200)

    def test_a_rate_cannot_stand_for_permits(self) -> None:
        with pytest.raises(ValueError, match="'2 concurrent' cannot stand for '10/minute'"):
            Limiter("10/minute").set_limit("k", "2 concurrent")
        with pytest.raises(ValueError, match="'3/minute' cannot stand for '2 concurrent'"):
            Limiter("2 concurrent", limit_for={"k": "3/minute"}).peek("k")

    def test_what_limit_for_may_answer(self) -> None:
        with pytest.raises(TypeError, match="limit_for gives limits or their texts, not int"):
            Limiter("5/s", limit_for=lambda key: 5).hit("k")  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="limit_for is a function or a mapping"):
            Limiter("5/s", limit_for=5)  # type: ignore[arg-type]
        assert Limiter("5/s", limit_for={"vip": "9/s"}).hit(b"vip").remaining == 8


class TestLeases:
    def test_a_lease_begins_when_its_holder_may_act(self) -> None:
        async def main() -> None:
            clock = ManualClock(1_000_000)
            limiter = AsyncLimiter("1 concurrent", "1/10s token-bucket burst 1", clock=clock)
            async with limiter.hold("k"):
                pass
            hold = limiter.hold("k", timeout=100, ttl=5)
            task = asyncio.create_task(hold.__aenter__())
            await asyncio.sleep(0)
            clock.advance(10)
            permit = await task
            clock.advance(4)
            assert permit.renew(5)

        asyncio.run(main())

    def test_a_cancelled_reservation_comes_back_once(self) -> None:
        async def main() -> None:
            clock = ManualClock(1_000_000)
            limiter = AsyncLimiter("10/100s token-bucket", clock=clock)
            await limiter.hit("k", 10)
            task = asyncio.create_task(limiter.reserve("k", 5, timeout=100).__aenter__())
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            clock.advance(299)
            await limiter.hit("k", 10)
            clock.advance(1)
            assert (await limiter.peek("k")).remaining == 0

        asyncio.run(main())

    def test_reset_forgets_reservations(self, manual_clock: ManualClock) -> None:
        for algorithm in ("fixed-window", "token-bucket", "sliding-log"):
            limiter = Limiter(f"10/minute {algorithm}", clock=manual_clock)
            with limiter.reserve("k", 10) as reservation:
                limiter.reset("k")
                assert limiter.hit("k", 10)
                reservation.cancel()
            assert not limiter.hit("k")

    @pytest.mark.parametrize("ttl", [0, -1, None, float("inf"), "1"])
    def test_bad_times_to_live(self, ttl: Any) -> None:
        with pytest.raises((TypeError, ValueError), match="ttl is a"):
            Limiter("5/s").reserve("k", ttl=ttl)
        permit = Limiter("5 concurrent").hold("k", ttl=5).__enter__()
        with pytest.raises((TypeError, ValueError), match="ttl is a"):
            permit.renew(ttl)

    def test_one_reservation_at_a_time(self) -> None:
        reserve = Limiter("50/s").reserve("k", 5)
        with reserve, pytest.raises(RuntimeError, match="under way"), reserve:
            pass


class TestLines:
    def test_cost_zero_does_not_wait(self) -> None:
        async def main() -> None:
            clock = ManualClock(1_000_000)
            limiter = AsyncLimiter("1/second token-bucket", clock=clock)
            await limiter.hit("k")
            waiting = asyncio.create_task(limiter.wait("k"))
            await asyncio.sleep(0)
            assert await asyncio.wait_for(limiter.wait("k", 0), 5)
            waiting.cancel()

        asyncio.run(main())

    def test_timeout_zero_does_not_join_a_line(self) -> None:
        async def main() -> None:
            limiter = AsyncLimiter("1 concurrent", clock=ManualClock(1_000_000))
            async with limiter.hold("k"):
                waiting = asyncio.create_task(_hold(limiter))
                await asyncio.sleep(0)
                with pytest.raises(LimitExceeded):
                    await asyncio.wait_for(limiter.hold("k").__aenter__(), 5)
            await waiting

        asyncio.run(main())

    def test_a_queue_beside_another_limit(self) -> None:
        async def main() -> None:
            clock = ManualClock(1_000_000)
            limiter = AsyncLimiter("10/second queue 5", "1/minute fixed-window", clock=clock)
            await limiter.wait("k")
            task = asyncio.create_task(limiter.wait("k"))
            await asyncio.sleep(0)
            assert not task.done()
            wakeup = clock.next_wakeup()
            assert wakeup is not None
            clock.advance(wakeup - clock.now())
            assert (await asyncio.wait_for(task, 5)).allowed

        asyncio.run(main())

    def test_a_rate_that_comes_too_late_is_told_at_once_beside_permits(self) -> None:
        limiter = Limiter("2 concurrent", "1/hour", clock=ManualClock(1_000_000))
        with limiter.hold("k"), pytest.raises(LimitExceeded), limiter.hold("k", timeout=5):
            pass

    @pytest.mark.parametrize("priority", ["high", 1.5, None, True])
    def test_a_bad_priority(self, priority: Any) -> None:
        with pytest.raises(TypeError, match="priority is a whole number"):
            Limiter("5/s").wait("k", priority=priority)


def test_a_refused_joint_call_is_undone_after_a_step_back(manual_clock: ManualClock) -> None:
    for text in ("100/minute sliding-log", "100/minute cells 60", "100/minute", "100/minute gcra"):
        limiter = Limiter(text, "1/hour fixed-window", clock=manual_clock)
        limiter.hit("k")
        manual_clock.turn_back(5)
        assert not any(limiter.hit("k") for _ in range(30))
        assert limiter.peek("k").parts[0].remaining == 99, text
        manual_clock.advance(7200)


def test_nobody_is_forgotten_for_a_call_that_is_refused(manual_clock: ManualClock) -> None:
    store = MemoryStore(clock=manual_clock, max_keys=4)
    limiter = Limiter("10/minute", "5/minute", store=store)
    for key in "ab":
        assert limiter.hit(key)
    assert not limiter.hit("c", 7)
    assert (store.keys, store.evicted) == (4, 0)


def test_a_look_takes_nothing(manual_clock: ManualClock) -> None:
    limiter = Limiter("5/minute", "3/hour", clock=manual_clock)
    assert limiter.peek("k").granted == 0
    refused = limiter.hit("k", 4)
    assert [part.granted for part in refused.parts] == [0, 0]
    spare = Limiter("1/minute", "9/hour", clock=manual_clock, refuse_share=0)
    spare.hit("k")
    passed = spare.hit("k")
    assert (passed.allowed, passed.granted, len(passed.parts)) == (True, 0, 2)


def test_bad_keys_among_many_take_nothing(manual_clock: ManualClock) -> None:
    limiter = Limiter("5/minute", clock=manual_clock)
    with pytest.raises(TypeError, match="a key is a str"):
        limiter.hit_many(["a", "b", 3])  # type: ignore[list-item]
    assert limiter.peek("a").remaining == 5


async def _hold(limiter: AsyncLimiter) -> None:
    async with limiter.hold("k", timeout=None):
        pass
