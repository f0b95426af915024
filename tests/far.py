"""A far store for tests: a MemoryStore behind a line that can be told to fail."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from headgate import Limit, ManualClock
from headgate.clock import Clock
from headgate.decision import Ask, Decision
from headgate.errors import StoreUnavailable
from headgate.keys import Key
from headgate.stores import MemoryStore

__all__ = ["FarStore", "by_hand"]


class FarStore:
    """Answers as a MemoryStore does, counts its crossings, and fails when told to."""

    blocking = True
    shared = True
    lease_ttl = 10.0

    def __init__(self, clock: Clock | None = None, memory: MemoryStore | None = None) -> None:
        self.memory = memory or MemoryStore(clock=clock)
        self.crossings = 0
        self.down: Exception | None = None
        self.lost: Exception | None = None
        """What is raised after a call was carried out: its answer was lost."""
        self.before: Callable[[], Any] | None = None
        self.seen: list[Ask] = []

    @property
    def clock(self) -> Clock:
        return self.memory.clock

    def fail(self, *, sent: bool = False) -> None:
        self.down = StoreUnavailable("no answer", sent=sent)

    def heal(self) -> None:
        self.down = self.lost = None

    def cross(self) -> None:
        self.crossings += 1
        if self.before is not None:
            self.before()
        if self.down is not None:
            raise self.down

    def decide(self, asks: Sequence[Ask]) -> list[Decision]:
        self.cross()
        self.seen += asks
        found = self.memory.decide(asks)
        if self.lost is not None:
            raise self.lost
        return found

    def decide_many(self, groups: Sequence[Sequence[Ask]]) -> list[list[Decision]]:
        self.cross()
        for asks in groups:
            self.seen += asks
        return self.memory.decide_many(groups)

    def quick(self, space: str, limits: Sequence[Limit], on_error: str = "") -> Any:
        return None

    def quick_async(self, space: str, limits: Sequence[Limit], on_error: str = "") -> Any:
        return None

    def forecast(self, asks: Sequence[Ask], ahead: int) -> int:
        return 0

    def deciding(self) -> bool:
        return False

    def token(self) -> int:
        return self.memory.token()

    def assign(self, space: str, limit_id: str, key: Key, limit: Limit | None) -> None:
        self.cross()
        self.memory.assign(space, limit_id, key, limit)

    def assigned(self, space: str, limit_id: str, key: Key) -> Limit | None:
        self.cross()
        return self.memory.assigned(space, limit_id, key)

    def close(self) -> None:
        self.memory.close()

    async def decide_async(self, asks: Sequence[Ask]) -> list[Decision]:
        return self.decide(asks)

    async def decide_many_async(self, groups: Sequence[Sequence[Ask]]) -> list[list[Decision]]:
        return self.decide_many(groups)

    async def assign_async(self, space: str, limit_id: str, key: Key, limit: Limit | None) -> None:
        self.assign(space, limit_id, key, limit)

    async def assigned_async(self, space: str, limit_id: str, key: Key) -> Limit | None:
        return self.assigned(space, limit_id, key)

    async def close_async(self) -> None:
        self.close()


def by_hand(start: float = 1000.0) -> tuple[ManualClock, FarStore]:
    """A clock that stands still, and a far store that goes by it."""
    clock = ManualClock(start)
    return clock, FarStore(clock)
