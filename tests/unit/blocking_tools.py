"""What the tests of waiting for a store that blocks share: the store, and steps of its clock."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from far_store import FarStore, settled

from headgate import AsyncLimiter, Limiter, ManualClock

ALGORITHMS = [
    "1/second even", "1/second gcra burst 1", "1/second burst 1", "1/second fixed-window",
    "1/second sliding-log", "1/second leaky-bucket", "1/second leaky-bucket queue 20000",
    "1/second debt burst 1", "1/second cells 1",
]  # fmt: skip


def run(main: Callable[[ManualClock, FarStore], Awaitable[None]]) -> None:
    """Do something with a clock and a store that answers when the loop has turned."""
    clock = ManualClock(1_000_000)
    asyncio.run(main(clock, FarStore(clock)))  # type: ignore[arg-type] # a coroutine in fact


async def step_through(clock: ManualClock, tasks: Sequence[asyncio.Task[Any]]) -> None:
    """Move the clock from wake-up to wake-up until every task is done."""
    await settled()
    while not all(task.done() for task in tasks):
        wakeup = clock.next_wakeup()
        assert wakeup is not None, "somebody waits for nothing"
        clock.advance(max(0.0, wakeup - clock.now()))
        await settled()


def nobody_waits(limiter: Limiter | AsyncLimiter) -> bool:
    """Whether no line is left of those who waited."""
    return not limiter._lines._lines
