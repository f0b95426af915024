"""InFront: what every store in front of another does alike."""

from __future__ import annotations

from collections.abc import Sequence

from ..clock import Clock
from ..decision import Ask, Decision
from ..keys import Key
from ..limit import Limit
from .base import BlockingStore
from .steps import Flow, both, run, run_async

__all__ = ["InFront"]


class InFront:
    """Decides by a flow, in both colours, and passes on whatever is not its own affair."""

    blocking = True

    def __init__(self, store: BlockingStore) -> None:
        self.store = store
        self.shared = store.shared
        self.lease_ttl = getattr(store, "lease_ttl", 10.0)
        self.verb_decide, self.verb_decide_many = both(store, "decide"), both(store, "decide_many")

    @property
    def clock(self) -> Clock:
        """What tells the store the time."""
        return self.store.clock

    # -- deciding

    def _deciding(self, asks: Sequence[Ask]) -> Flow[list[Decision]]:
        raise NotImplementedError

    def _deciding_many(self, groups: Sequence[Sequence[Ask]]) -> Flow[list[list[Decision]]]:
        raise NotImplementedError

    def decide(self, asks: Sequence[Ask]) -> list[Decision]:
        """Answer the asks in order; takes pass together or not at all."""
        return run(self._deciding(asks))

    async def decide_async(self, asks: Sequence[Ask]) -> list[Decision]:
        """The same, awaited."""
        return await run_async(self._deciding(asks))

    def decide_many(self, groups: Sequence[Sequence[Ask]]) -> list[list[Decision]]:
        """Answer groups of asks, each all-or-nothing by itself, in one crossing."""
        return run(self._deciding_many(groups))

    async def decide_many_async(self, groups: Sequence[Sequence[Ask]]) -> list[list[Decision]]:
        """The same, awaited."""
        return await run_async(self._deciding_many(groups))

    # -- passed on

    def assign(self, space: str, limit_id: str, key: Key, limit: Limit | None) -> None:
        """Give a key a limit of its own, or take it away."""
        self.store.assign(space, limit_id, key, limit)

    async def assign_async(self, space: str, limit_id: str, key: Key, limit: Limit | None) -> None:
        """The same, awaited."""
        await self.store.assign_async(space, limit_id, key, limit)

    def assigned(self, space: str, limit_id: str, key: Key) -> Limit | None:
        """The limit a key was given, if any."""
        return self.store.assigned(space, limit_id, key)

    async def assigned_async(self, space: str, limit_id: str, key: Key) -> Limit | None:
        """The same, awaited."""
        return await self.store.assigned_async(space, limit_id, key)

    def forecast(self, asks: Sequence[Ask], ahead: int) -> int:
        """Not before how many microseconds the asks can pass behind `ahead` of others."""
        return self.store.forecast(asks, ahead)

    def deciding(self) -> bool:
        """Whether this thread is in the middle of a decision of this store."""
        return self.store.deciding()

    def token(self) -> int:
        """A new token, larger than every earlier one of this store."""
        return self.store.token()
