"""TimeLimit: alone and in a policy, for tasks, threads and pools."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import Any

import pytest
from policy_tools import spun

from headgate import ManualClock
from headgate.resilience.deadlines import check_deadline, deadline_in, time_left
from headgate.resilience.errors import TimeLimitExceeded
from headgate.resilience.policy import Policy
from headgate.resilience.pools import Pool
from headgate.resilience.timing import TimeLimit


def limits(clock: ManualClock | None = None) -> list[Any]:
    """A time limit of two seconds, alone and in a policy."""
    return [TimeLimit(2, name="db", clock=clock), Policy("db", time_limit=2, clock=clock)]


@pytest.mark.parametrize("way", [0, 1])
def test_a_slow_async_call_is_cancelled(way: int) -> None:
    clock = ManualClock()
    limit = limits(clock)[way]
    ended: list[str] = []

    async def slow() -> None:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise

    async def main() -> None:
        for _ in range(2):
            task = asyncio.create_task(limit.call_async(slow))
            await spun(clock, 1.999)
            assert not task.done()
            await spun(clock, 0.001)
            with pytest.raises(TimeLimitExceeded, match="db: the call took longer than 2 s"):
                await task

    asyncio.run(main())
    assert ended == ["cancelled"] * 2


@pytest.mark.parametrize("way", [0, 1])
def test_calls_in_a_row_and_at_once(way: int) -> None:
    limit = limits()[way]

    async def call(x: int) -> int:
        await asyncio.sleep(0.001 * (x % 3))
        return x

    async def main() -> None:
        made = limit(call)
        assert await asyncio.gather(*(made(x) for x in range(50))) == list(range(50))
        assert [await made(x) for x in range(3)] == [0, 1, 2]
        assert time_left() is None

    for _ in range(2):  # another loop in the same thread
        asyncio.run(main())


@pytest.mark.parametrize("way", [0, 1])
def test_someone_elses_cancellation_stays_one(way: int) -> None:
    clock = ManualClock()
    limit = limits(clock)[way]

    async def main() -> None:
        task = asyncio.create_task(limit.call_async(asyncio.sleep, 3600))
        await spun(clock, 1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        # Both in the same moment: whoever cancelled the task is to hear of it.
        for steps in range(2):
            task = asyncio.create_task(limit.call_async(asyncio.sleep, 3600))
            await asyncio.sleep(0)
            clock.advance(2)
            for _ in range(steps):
                await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(main())


@pytest.mark.parametrize("way", [0, 1])
def test_a_call_that_shrugs_off_its_cancellation_counts(way: int) -> None:
    clock = ManualClock()
    limit = limits(clock)[way]

    async def stubborn() -> str:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(3600)
        return "done"

    async def main() -> None:
        async def both() -> str:
            came: str = await limit.call_async(stubborn)
            await asyncio.sleep(0)  # no cancellation is left over
            return came

        task = asyncio.create_task(both())
        await spun(clock, 2)
        assert await task == "done"
        assert task.cancelling() == 0

    asyncio.run(main())


@pytest.mark.parametrize("way", [0, 1])
def test_the_deadline_is_seen_inside_and_by_tasks_and_only_there(way: int) -> None:
    limit = limits()[way]

    async def inner() -> float | None:
        return await asyncio.create_task(asyncio.sleep(0, time_left()))

    async def main() -> None:
        left = await limit.call_async(inner)
        assert 0 < left <= 2
        assert time_left() is None
        with deadline_in(0.5):
            assert (await limit.call_async(inner)) <= 0.5

    asyncio.run(main())
    assert 0 < limit.call(time_left) <= 2
    assert time_left() is None


@pytest.mark.parametrize("way", [0, 1])
def test_an_outer_deadline_that_is_sooner_ends_the_call(way: int) -> None:
    limit = limits()[way]

    async def main() -> None:
        with deadline_in(0.01), pytest.raises(TimeLimitExceeded):
            await limit.call_async(asyncio.sleep, 10)
        with deadline_in(0), pytest.raises(TimeLimitExceeded, match="no time was left"):
            await limit.call_async(asyncio.sleep, 10)
        assert time_left() is None

    asyncio.run(main())
    with deadline_in(0), pytest.raises(TimeLimitExceeded, match="no time was left"):
        limit.call(print)


@pytest.mark.parametrize("way", [0, 1])
def test_a_limit_inside_itself(way: int) -> None:
    limit = limits()[way]

    async def inner() -> float | None:
        return time_left()

    async def main() -> None:
        assert await limit.call_async(limit.call_async, inner) > 0
        async with limit, limit:
            assert time_left() is not None
        assert time_left() is None

    asyncio.run(main())


def test_a_plain_call_is_told_and_not_stopped() -> None:
    clock = ManualClock()
    limit = TimeLimit(2, clock=clock)

    def work() -> str:
        clock.advance(3)
        assert time_left() == 0
        with pytest.raises(TimeLimitExceeded, match="the deadline passed 1 s ago"):
            check_deadline()
        return "late, and done"

    assert limit.call(work) == "late, and done"
    check_deadline()


def test_a_plain_call_in_a_pool_is_no_longer_waited_for() -> None:
    stop = threading.Event()
    with Pool(1) as pool:
        limit = TimeLimit(0.01, pool=pool)
        with pytest.raises(TimeLimitExceeded):
            limit.call(stop.wait, 10)
        assert pool.abandoned == 1
        policy = Policy(bulkhead=pool, time_limit=0.01, fallback="instead")
        assert policy.call(print) == "instead"  # refused: the thread is held
        stop.set()


def test_no_deadline_moves_later() -> None:
    with deadline_in(1), deadline_in(100):
        left = time_left()
        assert left is not None
        assert left <= 1


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), "1"])
def test_wrong_limits(seconds: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        TimeLimit(seconds)
