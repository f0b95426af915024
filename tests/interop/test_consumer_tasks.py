"""Paced messages in tasks: the pace, cancellation, blocks and gates."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from typing import Any

import pytest
from consumer_tools import AsyncSource, rules_of

from headgate import (
    AsyncGate,
    AsyncLimiter,
    LimitExceeded,
    ManualClock,
    Refused,
)
from headgate.integrations.consumer import AsyncPaced, paced


async def fail_soon(messages: Any) -> None:
    """The same in a task."""
    async for _ in messages:
        raise ZeroDivisionError


def test_the_pace_of_tasks() -> None:
    async def main() -> list[Any]:
        clock, seen = ManualClock(), []
        limiter = AsyncLimiter("2/second even", clock=clock)

        async def consume() -> None:
            async for message in paced(AsyncSource("a", "b", "c"), limiter):
                seen.append((message, clock.now()))  # noqa: PERF401 # a loop is what is tested

        task = asyncio.create_task(consume())
        while not task.done():
            await asyncio.sleep(0)
            wakeup = clock.next_wakeup()
            if wakeup is not None:
                clock.advance(max(0, wakeup - clock.now()))
        await task
        return seen

    assert asyncio.run(main()) == [("a", 0.0), ("b", 0.5), ("c", 1.0)]


async def has_room(limiter: AsyncLimiter) -> bool:
    try:
        async with limiter.hold():
            return True
    except LimitExceeded:
        return False


def test_cancellation_gives_back() -> None:
    async def main() -> None:
        limiter, source = AsyncLimiter("1 concurrent"), AsyncSource("a", None, "b")
        messages = paced(source, limiter)
        assert await anext(messages) == "a"
        assert not await has_room(limiter)
        task = asyncio.ensure_future(anext(messages))
        while not source.waits:
            await asyncio.sleep(0)
        assert not await has_room(limiter)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await has_room(limiter)
        async with limiter.hold():  # and while it waits for its turn
            task = asyncio.ensure_future(anext(messages))
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert await anext(messages) == "b"
        await messages.aclose()
        assert source.closed == 1
        assert await has_room(limiter)

    asyncio.run(main())


def test_blocks_and_garbage_of_tasks() -> None:
    async def main() -> None:
        limiter, source = AsyncLimiter("1 concurrent"), AsyncSource("a", "b", "c", "d")
        with pytest.raises(ZeroDivisionError):
            await fail_soon(paced(source, limiter, wait=0))
        gc.collect()
        assert await has_room(limiter)
        with pytest.raises(ZeroDivisionError):
            async with paced(source, limiter, wait=0) as messages:
                await fail_soon(messages)
        assert source.closed == 1
        assert await has_room(limiter)
        held = await anext(paced(source, limiter, until_done=True, wait=0))
        assert held.message == "c"
        assert not await has_room(limiter)
        async with held:
            pass
        assert await has_room(limiter)

        closed = []

        async def generator() -> AsyncIterator[int]:
            try:
                yield 1
                yield 2
            finally:
                closed.append(True)

        async with paced(generator(), "1 concurrent", "100/second") as more:
            assert isinstance(more, AsyncPaced)
            assert await anext(more) == 1
            await more.done()
        assert closed == [True]

    asyncio.run(main())


def test_an_async_gate() -> None:
    async def main() -> None:
        clock = ManualClock(1_000_000)
        gate = AsyncGate(rules_of("1 concurrent"), clock=clock)
        messages = paced(AsyncSource(1, 2, 3), gate, facts="orders", until_done=True, wait=0.05)
        held = await anext(messages)
        waiting = asyncio.ensure_future(anext(messages))
        await asyncio.sleep(0)
        clock.advance(0.05)
        with pytest.raises(Refused):
            await waiting
        await held.done()
        assert (await anext(messages)).message == 2

    asyncio.run(main())


def test_many_cancellations_lose_nothing() -> None:
    async def main() -> None:
        limiter = AsyncLimiter("2 concurrent")

        async def consume() -> None:
            async with paced(AsyncSource(*range(3)), limiter) as messages:
                async for _ in messages:
                    await asyncio.sleep(0)

        for place in range(200):
            tasks = [asyncio.create_task(consume()) for _ in range(4)]
            for _ in range(place % 12):
                await asyncio.sleep(0)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        async with limiter.hold(), limiter.hold():
            pass

    asyncio.run(main())
