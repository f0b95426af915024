"""Strategies for tasks."""

from __future__ import annotations

from typing import Any

from ..items import RateLimitItem
from ..strategies import Counting
from ..util import WindowStats
from .storage import AsyncStorage

__all__ = [
    "STRATEGIES",
    "FixedWindowRateLimiter",
    "MovingWindowRateLimiter",
    "RateLimiter",
    "SlidingWindowCounterRateLimiter",
]


class RateLimiter(Counting):
    """A strategy whose store is awaited."""

    storages = AsyncStorage
    storage: AsyncStorage

    async def hit(self, item: RateLimitItem, *identifiers: Any, cost: int = 1) -> bool:
        """Take `cost`, or be refused and take nothing."""
        flow = self.passing(item, identifiers, cost, "take")
        return bool(await self.storage.run_async(flow))

    async def test(self, item: RateLimitItem, *identifiers: Any, cost: int = 1) -> bool:
        """Would a hit pass? Takes nothing."""
        flow = self.passing(item, identifiers, cost, "check")
        return bool(await self.storage.run_async(flow))

    async def get_window_stats(self, item: RateLimitItem, *identifiers: Any) -> WindowStats:
        """What is left, and when there is more."""
        stats: WindowStats = await self.storage.run_async(self.looking(item, identifiers))
        return stats

    async def clear(self, item: RateLimitItem, *identifiers: Any) -> None:
        """Forget what was used."""
        await self.storage.run_async(self.clearing(item, identifiers))


class FixedWindowRateLimiter(RateLimiter):
    """A window begins with the first hit."""

    algorithm = "fixed-window"


class MovingWindowRateLimiter(RateLimiter):
    """Every hit is remembered for one window."""

    algorithm = "sliding-log"


class SlidingWindowCounterRateLimiter(RateLimiter):
    """The last window is weighted by the part of it that still reaches in."""

    algorithm = "sliding-window"


STRATEGIES: dict[str, type[RateLimiter]] = {
    "fixed-window": FixedWindowRateLimiter,
    "moving-window": MovingWindowRateLimiter,
    "sliding-window-counter": SlidingWindowCounterRateLimiter,
}
