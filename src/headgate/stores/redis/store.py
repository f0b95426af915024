"""RedisStore: one limit for all machines, on Redis or Valkey."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Sequence
from typing import Any

from ...clock import Clock, SystemClock
from ...decision import Ask, Decision
from ...errors import StoreError
from ...keys import Key
from ...limit import Limit
from .change import assigning, read_own
from .link import AsyncLink, Options, SyncLink, read_address, target_of
from .merge import merging
from .naming import Names
from .plan import Planner
from .prepared import AsyncPrepared, Prepared, can_prepare

__all__ = ["RedisStore"]

TOGETHER = 8
"""Threads that speak to a server at once, each by itself; what others ask travels together."""


class RedisStore:
    """State in Redis or Valkey: every decision is one script call, and the server tells the time.

    `address` is a URL (`redis://`, `rediss://`, `redis+unix://`, `redis+sentinel://`,
    `redis+cluster://`, or the same with `valkey`) or a client of redis-py or valkey-py.
    """

    blocking = True
    shared = True
    lease_ttl = 10.0
    """Seconds after which a permit comes back whose holder died."""

    def __init__(self, address: Any, *, clock: Clock | None = None, **options: Any) -> None:
        if isinstance(address, str):
            target, found = read_address(address)
        else:
            target, found = target_of(address), Options()
        self.options = found.changed(**options)
        self.given_clock = clock
        target.load()
        budget, patience = self.options.budget, self.options.connect_timeout
        self.merges = target.kind != "cluster"
        """Whether one script can see all keys: in a cluster they lie apart."""
        joins = self.options.coalesce
        merge = merging if self.merges and joins else None
        self.link = SyncLink(
            target,
            budget=budget,
            connect_timeout=patience,
            together=TOGETHER if joins else 0,
            merge=merge,
        )
        routes = self.link.routes
        self.alink = AsyncLink(
            target, budget=budget, connect_timeout=patience, routes=routes, merge=merge
        )
        names = Names(self.options.prefix, self.options.tag)
        self.plan = Planner(names, clock, self.link.slot)
        routes.forgot = self.plan.written.clear
        self._clock = clock or SystemClock()
        self._token = 0
        self._lock = threading.Lock()
        self.closed = False

    @property
    def clock(self) -> Clock:
        """What waits are planned by; decisions go by the server's time unless a clock was given."""
        return self._clock

    # -- the contract, for threads

    def decide(self, asks: Sequence[Ask]) -> list[Decision]:
        """Answer the asks in order; takes pass together or not at all."""
        self._check()
        return self.link.run(self.plan.deciding(asks))

    def decide_many(self, groups: Sequence[Sequence[Ask]]) -> list[list[Decision]]:
        """Answer groups of asks, each all-or-nothing by itself, in one round trip."""
        self._check()
        return self.link.run(self.plan.deciding_many(groups))

    def assign(self, space: str, limit_id: str, key: Key, limit: Limit | None) -> None:
        """Give a key a limit of its own, or take it away."""
        self._check()
        own = None if limit is None else limit.named(limit_id)
        self.link.run(assigning(self.plan, space, limit_id, key, own))

    def assigned(self, space: str, limit_id: str, key: Key) -> Limit | None:
        """The limit a key was given, if any."""
        self._check()
        return self.link.run(read_own(self.plan, space, limit_id, key))

    def quick(self, space: str, limits: Sequence[Limit], on_error: str = "") -> Prepared | None:
        """A prepared take of these limits together, where all takes are alike."""
        return Prepared(self, space, limits) if can_prepare(self, limits) else None

    def close(self) -> None:
        """Let go of every connection; later calls raise StoreError."""
        self.closed = True
        self.link.close()

    # -- the contract, for tasks

    async def decide_async(self, asks: Sequence[Ask]) -> list[Decision]:
        """Answer the asks in order; takes pass together or not at all."""
        self._check()
        return await self.alink.run(self.plan.deciding(asks))

    async def decide_many_async(self, groups: Sequence[Sequence[Ask]]) -> list[list[Decision]]:
        """Answer groups of asks, each all-or-nothing by itself, in one round trip."""
        self._check()
        return await self.alink.run(self.plan.deciding_many(groups))

    async def assign_async(self, space: str, limit_id: str, key: Key, limit: Limit | None) -> None:
        """Give a key a limit of its own, or take it away."""
        self._check()
        own = None if limit is None else limit.named(limit_id)
        await self.alink.run(assigning(self.plan, space, limit_id, key, own))

    async def assigned_async(self, space: str, limit_id: str, key: Key) -> Limit | None:
        """The limit a key was given, if any."""
        self._check()
        return await self.alink.run(read_own(self.plan, space, limit_id, key))

    def quick_async(
        self, space: str, limits: Sequence[Limit], on_error: str = ""
    ) -> AsyncPrepared | None:
        """A prepared take for tasks, where all takes are alike."""
        return AsyncPrepared(self, space, limits) if can_prepare(self, limits) else None

    async def close_async(self) -> None:
        """Let go of every connection; later calls raise StoreError."""
        self.closed = True
        await self.alink.close()
        self.link.close()

    # -- what needs no server

    def forecast(self, asks: Sequence[Ask], ahead: int) -> int:
        """Nothing is known without asking."""
        return 0

    def deciding(self) -> bool:
        """Never: nothing of this store is held while it decides."""
        return False

    def token(self) -> int:
        """A token that no other process makes, larger than every earlier one of this process."""
        with self._lock:
            self._token = max(self._token + 1, self.plan.about() << 64 | secrets.randbits(64))
            return self._token

    def _check(self) -> None:
        if self.closed:
            raise StoreError("this store is closed")

    def __repr__(self) -> str:
        return f"RedisStore({self.link.routes.shown(None)!r})"
