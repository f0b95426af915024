"""LeaseStore: the local tier in front of a far store.

Limits with the `lease` option are taken in chunks and used here; keys that are over their limit
are refused here until they may pass, and at most for a second. Everything else is the store's.
"""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..decision import Ask, Decision, Seen, decided
from ..keys import Key, canonical
from ..limit import Limit
from .base import BlockingStore, Prepared, PreparedAsync
from .in_front import InFront
from .steps import Flow, Step, run, run_async
from .sweeper import Sweeper
from .tier import Tier, can_lease, chunk_of

if TYPE_CHECKING:
    import asyncio

__all__ = ["LeaseStore"]

MANY = 1024
"""How many sets of limits have a tier of their own."""

_stores: weakref.WeakSet[LeaseStore] = weakref.WeakSet()


class LeaseStore(InFront):
    """A store whose hot keys are decided in this process.

    At most `keys` keys of each set of limits are known here. With `refusals=False` no refusal is
    remembered. With `write_back` a chunk is admitted before it is counted at the store, not
    after: faster to start, and up to a chunk for each process may be admitted too much.
    """

    def __init__(
        self,
        store: BlockingStore,
        *,
        keys: int = 4096,
        refusals: bool = True,
        write_back: bool = False,
    ) -> None:
        if isinstance(keys, bool) or not isinstance(keys, int) or keys < 1:
            raise ValueError(f"keys is a whole number from 1 on, not {keys!r}")
        super().__init__(store)
        self.keys = keys
        self.refusals = refusals
        self.write_back = write_back
        self._tiers: dict[tuple[str, tuple[Limit, ...], str], Tier] = {}
        self._by_limit: dict[tuple[str, str], list[Tier]] = {}
        self._lock = threading.Lock()
        self._late: deque[Ask] = deque()
        self._sweeper = Sweeper(store.clock, self.sweep, self._ends)
        _stores.add(self)

    @property
    def outstanding(self) -> int:
        """How much is leased and not used: at most a chunk for each key."""
        tiers = list(self._tiers.values())
        return sum(entry.left for tier in tiers for entry in list(tier.held.values()))

    @staticmethod
    def bound(limit: Limit) -> int:
        """How much of a limit one process holds at most: its largest chunk, for each key."""
        return chunk_of(limit)

    # -- the contract

    def quick(self, space: str, limits: Sequence[Limit], on_error: str = "") -> Prepared | None:
        """A prepared take; `on_error` stands for that of its asks."""
        if any(limit.elastic or limit.algorithm == "concurrency" for limit in limits):
            return None
        if self._idle(limits):
            return self.store.quick(space, limits, on_error)
        return self.tier(space, tuple(limits), on_error)

    def quick_async(
        self, space: str, limits: Sequence[Limit], on_error: str = ""
    ) -> PreparedAsync | None:
        """The same, awaited where it must be."""
        if self._idle(limits):
            return self.store.quick_async(space, limits, on_error)
        tier = self.quick(space, limits, on_error)
        return AsyncTier(tier) if isinstance(tier, Tier) else None

    def _idle(self, limits: Sequence[Limit]) -> bool:
        """Whether this tier has nothing to do for some limits."""
        return not self.refusals and not any(map(can_lease, limits))

    def assign(self, space: str, limit_id: str, key: Key, limit: Limit | None) -> None:
        """Give a key a limit of its own, or take it away."""
        super().assign(space, limit_id, key, limit)
        self._forget(space, limit_id, key)
        run(self._settling())

    async def assign_async(self, space: str, limit_id: str, key: Key, limit: Limit | None) -> None:
        """The same, awaited."""
        await super().assign_async(space, limit_id, key, limit)
        self._forget(space, limit_id, key)
        await run_async(self._settling())

    def close(self) -> None:
        """Give back what is leased, and let go of the store; later calls raise StoreError."""
        run(self._returning())
        self.store.close()

    async def close_async(self) -> None:
        """The same, awaited."""
        await run_async(self._returning())
        await self.store.close_async()

    # -- the flows

    def _deciding(self, asks: Sequence[Ask]) -> Flow[list[Decision]]:
        first = asks[0] if asks else None
        if first is not None and first.op in ("take", "check", "refund"):
            near = yield from self._nearby(first, asks)
            if near is not None:
                return near
        found: list[Decision] = yield Step(self.verb_decide, (asks,))
        self._note(asks)
        return found

    def _deciding_many(self, groups: Sequence[Sequence[Ask]]) -> Flow[list[list[Decision]]]:
        found: list[list[Decision]] = yield Step(self.verb_decide_many, (groups,))
        for asks in groups:
            self._note(asks)
        return found

    def _nearby(self, first: Ask, asks: Sequence[Ask]) -> Flow[list[Decision] | None]:
        """What a tier answers, if the asks are of the kind that one does."""
        if any(
            ask.op != first.op or ask.key != first.key or ask.cost != first.cost
            or ask.token or ask.least >= 0 or ask.limit.elastic or ask.space != first.space
            for ask in asks
        ):  # fmt: skip
            return None
        limits = tuple(ask.limit for ask in asks)
        tier = self._tiers.get((first.space, limits, first.on_error))
        if tier is None:
            if not any(map(can_lease, limits)) or len(self._tiers) >= MANY:
                return None
            tier = self.tier(first.space, limits, first.on_error)
        form = canonical(first.key)
        if first.op == "take" and not first.max_wait:
            near = tier.near(first.key, first.cost, partial=False)
            if near is None:
                near = yield from tier.taking(first.key, first.cost, partial=False)
            return list(near.parts)
        if len(asks) > 1 or not tier.leases:
            return None
        if first.op == "refund":
            if not tier.give_back(form, first.cost):
                return None
            done = decided(Seen(first.limit, 1_000_000), (0, 0, 0, 0), first.at, 0)
            return [tier.look(form, 1) or done]
        near = tier.look(form, first.cost)
        if near is not None and first.op == "take":  # somebody who would wait need not
            near = tier.near(first.key, first.cost, partial=False)
        return [near] if near is not None and near.allowed else None

    def _note(self, asks: Sequence[Ask]) -> None:
        """What came back shows at once in this process."""
        for ask in asks:
            if ask.op == "reset":
                self._forget(ask.space, ask.limit.id, ask.key, reset=True)
            elif ask.op in ("refund", "settle"):
                for tier in self._by_limit.get((ask.space, ask.limit.id), ()):
                    tier.reopen(canonical(ask.key))

    def _forget(self, space: str, limit_id: str, key: Key, *, reset: bool = False) -> None:
        for tier in self._by_limit.get((space, limit_id), ()):
            tier.forget(canonical(key), reset=reset)

    def tier(self, space: str, limits: tuple[Limit, ...], on_error: str) -> Tier:
        """The tier of a set of limits; the same one for everybody in this process."""
        name = (space, limits, on_error)
        with self._lock:
            tier = self._tiers.get(name)
            if tier is None:
                tier = Tier(self.clock, self, space, limits, on_error)
                more: tuple[Any, ...] = (on_error,) if on_error else ()
                awaited = getattr(self.store, "quick_async", None)
                tier.prepare(
                    self.store.quick(space, limits, *more),
                    awaited(space, limits, *more) if awaited is not None else None,
                )
                self._tiers[name] = tier
                for limit in limits:
                    self._by_limit.setdefault((space, limit.id), []).append(tier)
            return tier

    # -- what goes back

    def later(self, ask: Ask) -> None:
        """Send an ask that nobody waits for."""
        self._late.append(ask)
        self.plan_sweep(0)

    def plan_sweep(self, until: int) -> None:
        """See to it that a lease is settled some time after this instant."""
        self._sweeper.plan(until)

    def _ends(self) -> int | None:
        """When the next lease ends, or None if there is nothing to settle."""
        if self._late:
            return 0
        ends = [entry.until for tier in self._all() for entry in list(tier.held.values())]
        return min(ends) if ends else None

    def _all(self) -> list[Tier]:
        return list(self._tiers.values())

    def sweep(self) -> None:
        """Settle the leases that have ended, blocking."""
        run(self._settling())

    def _settling(self, all_of_them: bool = False) -> Flow[None]:
        asks = []
        while self._late:
            asks.append(self._late.popleft())
        for tier in self._all():
            asks += tier.idle(None if all_of_them else tier.nanos())
        if asks:
            # A store that cannot be told counts as used what was not: never too much is admitted.
            with contextlib.suppress(Exception):
                yield Step(self.verb_decide_many, ([[ask] for ask in asks],))

    def _returning(self) -> Flow[None]:
        self._sweeper.stop()
        yield from self._settling(all_of_them=True)
        for tier in self._all():  # later hits are the store's to refuse
            tier.entries.clear()

    def after_fork(self) -> None:
        """In a child: leases, and the thread that settles them, are the parent's."""
        self._lock = threading.Lock()
        self._sweeper.after_fork()
        self._late.clear()
        for tier in self._tiers.values():
            tier.after_fork()

    def __repr__(self) -> str:
        return f"LeaseStore({self.store!r})"


class AsyncTier:
    """A tier's takes for tasks: awaited only where the store must be asked."""

    def __init__(self, tier: Tier) -> None:
        self._tier = tier
        self._near = tier.near

    async def hit(self, key: Key = "", cost: int = 1, *, partial: bool = False) -> Decision:
        """Take `cost` or be refused; with `partial`, take what is there. Never sleeps."""
        found = self._near(key, cost, partial)
        if found is not None:
            return found
        call = self._tier.longer_async(key, cost, partial)
        if not self._tier.leases:
            return await call
        import asyncio

        # A chunk that comes for somebody who was cancelled is still there for the others.
        task = asyncio.get_running_loop().create_task(call)
        _tasks.add(task)
        task.add_done_callback(_done)
        return await asyncio.shield(task)

    async def hit_many(self, keys: list[Key], cost: int) -> list[Decision]:
        """Independent decisions, in order; the cost has been checked."""
        return await run_async(self._tier.taking_many(list(keys), cost))


_tasks: set[asyncio.Task[Any]] = set()
"""An event loop knows its tasks only weakly."""


def _done(task: asyncio.Task[Any]) -> None:
    _tasks.discard(task)
    if not task.cancelled():
        task.exception()  # seen, though nobody may be there any more to be told


def _after_fork() -> None:
    _tasks.clear()
    for store in list(_stores):
        store.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
