"""Limiter and AsyncLimiter: the front door."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar, Unpack

from .callers import errands_done
from .clock import ttl_of
from .decision import Decision, check_cost
from .door import Door
from .flows import Flow, run, run_async
from .front import Front, LimitFor, Own
from .held import AsyncAttempt, AsyncHold, AsyncReserve, Attempt, Hold, Reserve
from .keys import Key
from .limit import Limit
from .limited import Limited, Options

__all__ = ["AsyncLimiter", "LimitFor", "Limiter"]

Result = TypeVar("Result")


class Limiter(Door, Front):
    """Limits for threads and plain functions.

    >>> limiter = Limiter("2/minute fixed-window", clock=ManualClock())
    >>> [bool(limiter.hit("user:42")) for _ in range(3)]
    [True, True, False]
    """

    coloured = False

    def far(self, store: Any) -> Any:
        """The prepared way of a store that blocks."""
        way = store.quick(self.name, self.limits, **self._far_options)
        if way is not None and type(self).hit is Door.hit:
            # In place of the method, which would only call it; a subclass's own is left alone.
            vars(self)["hit"] = way.hit
        return way

    def _take(self, key: Key, cost: int, partial: bool) -> Decision:
        return self._do(self._taking(key, cost, partial))

    def _do(self, flow: Flow[Result]) -> Result:
        return run(flow, self.store)

    def hit_many(self, keys: Iterable[Key], cost: int = 1) -> list[Decision]:
        """Independent decisions for many keys, in order."""
        check_cost(cost)
        prepared = self._prepared  # once, as it may be taken away for a moment: see workers
        if prepared is not None:
            return prepared.hit_many(keys if type(keys) is list else list(keys), cost)
        if self._far is not None:
            far: list[Decision] = self._far.hit_many(list(keys), cost)
            return far
        return self._do(self._taking_many(list(keys), cost))

    def peek(self, key: Key = "", cost: int = 1) -> Decision:
        """Would a hit pass? Takes nothing."""
        return self._do(self._peeking(key, cost))

    def wait(
        self, key: Key = "", cost: int = 1, *, timeout: float | None = None, priority: int = 0
    ) -> Decision:
        """Take, waiting up to `timeout` seconds for it; LimitExceeded if it cannot be.

        First come first served; a higher priority goes first.
        """
        self._refuse_concurrent("wait")
        return self.wait_for(key, self.asks("take", key, check_cost(cost)), timeout, priority)

    def hold(
        self,
        key: Key = "",
        cost: int = 1,
        *,
        timeout: float | None = 0.0,
        priority: int = 0,
        ttl: float | None = None,
    ) -> Hold:
        """Take now and, of concurrent limits, give back on the way out: `with limiter.hold():`.

        With a `ttl` a permit that is neither released nor renewed comes back after so long.
        """
        return Hold(self, key, cost, timeout, priority, 0 if ttl is None else ttl_of(ttl))

    def reserve(
        self,
        key: Key = "",
        cost: int = 1,
        *,
        timeout: float | None = 0.0,
        priority: int = 0,
        ttl: float = 300.0,
    ) -> Reserve:
        """Take an estimated cost, to be settled: `with limiter.reserve("org:1", 900) as r:`.

        Left unsettled it keeps the estimate, left by an exception it is cancelled, and
        abandoned it comes back after `ttl` seconds.
        """
        self.refuse_reserving("reserve")
        return Reserve(self, key, cost, timeout, priority, ttl_of(ttl))

    def attempt(
        self, key: Key = "", cost: int = 1, *, timeout: float | None = 0.0, priority: int = 0
    ) -> Attempt:
        """Count only failures: one is counted on the way in and given back on success."""
        self.refuse_reserving("attempt")
        return Attempt(self, key, cost, timeout, priority, 0)

    def limited(self, **options: Unpack[Options]) -> Limited:
        """A decorator; see `Limited` for its options."""
        return Limited(self, **options)

    def reset(self, key: Key = "") -> None:
        """Forget what a key has used."""
        self._do(self._resetting(key))

    def set_limit(self, key: Key, *limits: Own) -> None:
        """Give a key limits of its own, one for each of this limiter's; None takes it away.

        What the key has used stays used.
        """
        self._do(self._setting(key, limits))

    def get_limit(self, key: Key = "") -> tuple[Limit, ...]:
        """The limits that hold for a key."""
        return self._do(self.getting(key))

    def close(self) -> None:
        """Let go of the store, if this limiter opened it."""
        self._do(self._closing())

    def __enter__(self) -> Limiter:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class AsyncLimiter(Front):
    """Limits for tasks: the names of Limiter, awaited."""

    coloured = True

    def far(self, store: Any) -> Any:
        """The prepared way of a store that blocks."""
        way = store.quick_async(self.name, self.limits, **self._far_options)
        if way is not None and type(self).hit is AsyncLimiter.hit:
            # In place of the method, which would only await it.
            vars(self)["hit"] = way.hit
        return way

    async def _do(self, flow: Flow[Result]) -> Result:
        if self.store.blocking:
            return await run_async(flow, self.store)
        return run(flow, self.store)

    async def hit(self, key: Key = "", cost: int = 1, *, partial: bool = False) -> Decision:
        """Take `cost` or be refused; with `partial`, take what is there. Never sleeps."""
        prepared = self._prepared  # once, as it may be taken away for a moment: see workers
        if prepared is not None:
            return prepared.hit(key, cost, partial=partial)
        return await self._do(self._taking(key, cost, partial))

    async def hit_many(self, keys: Iterable[Key], cost: int = 1) -> list[Decision]:
        """Independent decisions for many keys, in order."""
        check_cost(cost)
        prepared = self._prepared
        if prepared is not None:
            return prepared.hit_many(keys if type(keys) is list else list(keys), cost)
        if self._far is not None:
            far: list[Decision] = await self._far.hit_many(list(keys), cost)
            return far
        return await self._do(self._taking_many(list(keys), cost))

    async def peek(self, key: Key = "", cost: int = 1) -> Decision:
        """Would a hit pass? Takes nothing."""
        return await self._do(self._peeking(key, cost))

    async def wait(
        self, key: Key = "", cost: int = 1, *, timeout: float | None = None, priority: int = 0
    ) -> Decision:
        """Take, waiting up to `timeout` seconds for it; LimitExceeded if it cannot be."""
        self._refuse_concurrent("wait")
        asks = self.asks("take", key, check_cost(cost))
        return await self.await_for(key, asks, timeout, priority)

    def hold(
        self,
        key: Key = "",
        cost: int = 1,
        *,
        timeout: float | None = 0.0,
        priority: int = 0,
        ttl: float | None = None,
    ) -> AsyncHold:
        """Take now and, of concurrent limits, give back on the way out."""
        return AsyncHold(self, key, cost, timeout, priority, 0 if ttl is None else ttl_of(ttl))

    def reserve(
        self,
        key: Key = "",
        cost: int = 1,
        *,
        timeout: float | None = 0.0,
        priority: int = 0,
        ttl: float = 300.0,
    ) -> AsyncReserve:
        """Take an estimated cost, to be settled."""
        self.refuse_reserving("reserve")
        return AsyncReserve(self, key, cost, timeout, priority, ttl_of(ttl))

    def attempt(
        self, key: Key = "", cost: int = 1, *, timeout: float | None = 0.0, priority: int = 0
    ) -> AsyncAttempt:
        """Count only failures: one is counted on the way in and given back on success."""
        self.refuse_reserving("attempt")
        return AsyncAttempt(self, key, cost, timeout, priority, 0)

    def limited(self, **options: Unpack[Options]) -> Limited:
        """A decorator for async functions; see `Limited` for its options."""
        return Limited(self, **options)

    async def reset(self, key: Key = "") -> None:
        """Forget what a key has used."""
        await self._do(self._resetting(key))

    async def set_limit(self, key: Key, *limits: Own) -> None:
        """Give a key limits of its own, one for each of this limiter's; None takes it away."""
        await self._do(self._setting(key, limits))

    async def get_limit(self, key: Key = "") -> tuple[Limit, ...]:
        """The limits that hold for a key."""
        return await self._do(self.getting(key))

    async def close(self) -> None:
        """Let go of the store, if this limiter opened it."""
        if self.store.blocking:  # what was sent on its way still needs the store
            await errands_done()
        await self._do(self._closing())

    async def __aenter__(self) -> AsyncLimiter:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()
