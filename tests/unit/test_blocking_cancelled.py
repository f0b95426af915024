"""Waiting for a store that blocks: cancellation at any moment leaves nothing behind."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from blocking_tools import ALGORITHMS, nobody_waits, run, step_through
from far_store import FarStore

from headgate import (
    AsyncLimiter,
    Limiter,
    ManualClock,
)
from headgate.callers import ThreadCaller, errands_done


class TestCancellation:
    @pytest.mark.parametrize("text", [*ALGORITHMS, "1 concurrent"])
    def test_at_every_step_nothing_is_lost_and_the_next_is_served(self, text: str) -> None:
        async def once(step: int, advance: bool) -> bool:
            """Cancel a waiter after so many steps of the loop; whether it was done before."""
            clock = ManualClock(1_000_000)
            limiter = AsyncLimiter(text, store=FarStore(clock))
            enter = _enter if "concurrent" in text else AsyncLimiter.wait
            first = await enter(limiter, "k")
            tasks = [asyncio.create_task(enter(limiter, "k")) for _ in range(3)]
            for number in range(step):
                if number == 12:
                    if advance:
                        clock.advance(1)
                    if isinstance(first, tuple):
                        await first[0].__aexit__(None, None, None)
                await asyncio.sleep(0)
            done = tasks[0].done()
            tasks[0].cancel()
            await asyncio.gather(tasks[0], return_exceptions=True)
            await errands_done()
            if "concurrent" in text:
                return await _all_come_back(limiter, tasks, first, done, released=step > 12)
            served = clock.now()
            await step_through(clock, tasks)
            assert nobody_waits(limiter)
            # Served one second after another, as if the cancelled one had never been there.
            if not done and "queue" not in text and "debt" not in text:
                assert clock.now() - 1_000_000 <= 2 + (served - 1_000_000)
            assert clock.next_wakeup() is None
            return done

        for advance in (True, False):
            assert not asyncio.run(once(0, advance))
            for step in range(1, 26):
                asyncio.run(once(step, advance))

    def test_10_000_cancellations_lose_nothing(self) -> None:
        async def main(clock: ManualClock, store: FarStore) -> None:
            limiter = AsyncLimiter("5 concurrent", store=store)
            rate = AsyncLimiter("5/second gcra", store=store)

            async def held() -> None:
                async with limiter.hold("k", timeout=None):
                    await asyncio.sleep(0)

            for round_ in range(100):
                holds = [asyncio.create_task(held()) for _ in range(50)]
                waits = [asyncio.create_task(rate.wait("k")) for _ in range(50)]
                for _ in range(round_ % 16):
                    await asyncio.sleep(0)
                clock.advance(0.1 * (round_ % 3))
                for task in (*holds, *waits):
                    task.cancel()
                await asyncio.gather(*holds, *waits, return_exceptions=True)
            await errands_done()
            assert (await limiter.peek("k")).remaining == 5
            clock.advance(1)
            assert (await rate.peek("k")).remaining == 5
            assert nobody_waits(limiter)
            assert clock.next_wakeup() is None

        run(main)

    @pytest.mark.parametrize("after", [False, True])
    @pytest.mark.parametrize("text", ["1 concurrent", "1/hour", "1/second even"])
    def test_an_interrupted_thread(self, text: str, after: bool) -> None:
        """Before the take had its effect or, of a permit, right after it."""
        clock = ManualClock(1_000_000)
        store = FarStore(clock)
        limiter = Limiter(text, store=store)
        permits = "concurrent" in text
        before = limiter.peek("k").remaining

        def interrupt(self: ThreadCaller, asks: Any) -> Any:
            if after and permits:
                store.decide(asks)
            raise KeyboardInterrupt

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ThreadCaller, "take", interrupt)
            call = limiter.hold("k", timeout=1).__enter__ if permits else limiter.wait
            with pytest.raises(KeyboardInterrupt):
                call(*(() if permits else ("k",)))
        assert limiter.peek("k").remaining == before
        assert nobody_waits(limiter)

    def test_a_thread_interrupted_as_it_sleeps_gives_back(self, manual_clock: ManualClock) -> None:
        limiter = Limiter("1/second even", store=FarStore(manual_clock))
        limiter.hit("k")
        before = limiter.peek("k").reset_after

        def interrupt(self: ThreadCaller, until: object) -> None:
            raise KeyboardInterrupt

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ThreadCaller, "sleep", interrupt)
            with pytest.raises(KeyboardInterrupt):
                limiter.wait("k")
        assert limiter.peek("k").reset_after == before

    def test_interrupts_at_any_instruction(self) -> None:
        """What they cut off comes back with its lease, and nobody waits for it for ever."""
        done = subprocess.run(
            [sys.executable, "-c", INTERRUPTED, str(Path(__file__).parent)],
            check=True, capture_output=True, text=True, timeout=300,
        )  # fmt: skip
        assert done.stdout.split() == ["2", "0"]


INTERRUPTED = """
import gc, random, signal, sys, threading, time
sys.path.insert(0, sys.argv[1])
from far_store import FarStore
from headgate import Limiter, LimitExceeded

class Interrupt(BaseException):
    pass

def interrupt(*about):
    raise Interrupt

store = FarStore()
store.lease_ttl = 0.2
limiter = Limiter("2 concurrent", store=store)
rate = Limiter("2000/second even", store=store, name="rate")
end = time.monotonic() + 2

def work(timeout):
    while time.monotonic() < end:
        with limiter.hold("k", timeout=timeout):
            pass
        rate.wait("k", timeout=timeout)

threads = [threading.Thread(target=work, args=(None,)) for _ in range(3)]
for thread in threads:
    thread.start()
signal.signal(signal.SIGALRM, interrupt)
while time.monotonic() < end:
    try:
        signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-5, 3e-3))
        work(5)
    except (Interrupt, LimitExceeded):
        pass
    except RuntimeError as error:  # of threading.Condition, which they cut in two as well
        if "unlocked lock" not in str(error):
            raise
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
for thread in threads:
    thread.join()
late = time.monotonic() + 60
while limiter.peek("k").remaining < 2 and time.monotonic() < late:
    gc.collect()  # a frame that was cut off may hold a permit, which is renewed until it goes
    time.sleep(0.1)
print(limiter.peek("k").remaining, len(limiter._lines._lines))
"""


async def _enter(limiter: AsyncLimiter, key: str) -> tuple[Any, Any]:
    context = limiter.hold(key, timeout=None, ttl=3600)
    return context, await context.__aenter__()


async def _all_come_back(
    limiter: AsyncLimiter, tasks: list[Any], first: Any, done: bool, *, released: bool
) -> bool:
    """Each of the others gets the permit in its turn, and then it is free."""
    if not released:
        await first[0].__aexit__(None, None, None)
    if done:
        await tasks[0].result()[0].__aexit__(None, None, None)
    for task in tasks[1:]:
        context, _ = await asyncio.wait_for(task, 10)
        await context.__aexit__(None, None, None)
    assert (await limiter.peek("k")).remaining == 1
    assert nobody_waits(limiter)
    return done
