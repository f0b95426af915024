"""What the tests of policies and time limits share."""

from __future__ import annotations

import asyncio

from headgate import ManualClock

__all__ = ["spun"]


async def spun(clock: ManualClock, seconds: float) -> None:
    """Let time pass, and the loop do what it has to."""
    await asyncio.sleep(0)
    clock.advance(seconds)
    for _ in range(5):
        await asyncio.sleep(0)
