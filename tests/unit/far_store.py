"""A store that blocks, made of one that does not: every call is slow, in both of its colours."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from headgate import Ask, Clock, Decision, Limit, MemoryStore
from headgate.keys import Key

__all__ = ["FarStore", "settled"]


class FarStore:
    """A MemoryStore at some distance: a call leaves, has its effect, and comes back later."""

    blocking = True
    shared = True
    lease_ttl = 10.0

    def __init__(self, clock: Clock | None = None, distance: float = 0.0) -> None:
        self.near = MemoryStore(clock=clock)
        self.distance = distance
        self.asked: list[Sequence[Ask]] = []
        self.crossings = 0
        self.broken: Exception | None = None

    @property
    def clock(self) -> Clock:
        return self.near.clock

    # -- the blocking colour

    def decide(self, asks: Sequence[Ask]) -> list[Decision]:
        return self.decide_many([asks])[0]

    def decide_many(self, groups: Sequence[Sequence[Ask]]) -> list[list[Decision]]:
        time.sleep(self.distance)
        answers = self._decide(groups)
        time.sleep(self.distance)
        return answers

    def assign(self, space: str, limit_id: str, key: Key, limit: Limit | None) -> None:
        time.sleep(self.distance)
        self.near.assign(space, limit_id, key, limit)

    def assigned(self, space: str, limit_id: str, key: Key) -> Limit | None:
        time.sleep(self.distance)
        return self.near.assigned(space, limit_id, key)

    def close(self) -> None:
        self.near.close()

    # -- the awaited one

    async def decide_async(self, asks: Sequence[Ask]) -> list[Decision]:
        return (await self.decide_many_async([asks]))[0]

    async def decide_many_async(self, groups: Sequence[Sequence[Ask]]) -> list[list[Decision]]:
        await asyncio.sleep(self.distance)
        answers = self._decide(groups)
        await asyncio.sleep(self.distance)
        return answers

    async def assign_async(self, space: str, limit_id: str, key: Key, limit: Limit | None) -> None:
        await asyncio.sleep(self.distance)
        self.near.assign(space, limit_id, key, limit)

    async def assigned_async(self, space: str, limit_id: str, key: Key) -> Limit | None:
        await asyncio.sleep(self.distance)
        return self.near.assigned(space, limit_id, key)

    async def close_async(self) -> None:
        await asyncio.sleep(self.distance)
        self.near.close()

    # -- what does not cross

    def _decide(self, groups: Sequence[Sequence[Ask]]) -> list[list[Decision]]:
        self.crossings += 1
        self.asked.extend(groups)
        if self.broken is not None:
            raise self.broken
        return self.near.decide_many(groups)

    def quick(self, space: str, limits: Sequence[Limit], on_error: str = "") -> None:
        return None

    def quick_async(self, space: str, limits: Sequence[Limit], on_error: str = "") -> None:
        return None

    def forecast(self, asks: Sequence[Ask], ahead: int) -> int:
        raise AssertionError("nobody asks a distant store what will be")

    def deciding(self) -> bool:
        return self.near.deciding()

    def token(self) -> int:
        return self.near.token()


async def settled() -> None:
    """Let every task go as far as it can."""
    for _ in range(30):
        await asyncio.sleep(0)
