"""Prepared takes of a store that may fail, and what is answered when it does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..decision import Ask, Decision, joined
from ..errors import StoreUnavailable
from ..keys import Key, canonical
from ..limit import Limit
from .steps import Flow, Step, Verb, run, run_async

if TYPE_CHECKING:
    from .failover import Failover

__all__ = ["AsyncHits", "Hits"]


class Takes:
    """A prepared take of the store's, and the same said at length."""

    def __init__(
        self, failover: Failover, way: Any, space: str, limits: Sequence[Limit], on_error: str
    ) -> None:
        self._failover = failover
        self._way = way
        self._verb = Verb(way.hit, way.hit)
        self._begin = getattr(way, "begin", None)
        self._space = space
        self._limits = tuple(limits)
        self._on_error = on_error

    def asks(self, key: Key, cost: int, partial: bool = False) -> list[Ask]:
        """The take of one key."""
        least = min(1, cost) if partial else -1
        return [
            Ask("take", x, key, cost, self._space, least=least, on_error=self._on_error)
            for x in self._limits
        ]

    def hitting(self, key: Key, cost: int, partial: bool) -> Flow[Decision]:
        """One take."""
        step = Step(self._verb, (key, cost), {"partial": partial})
        return (
            yield from self._failover.asking(
                step, lambda sent: self.instead(key, cost, partial, sent)
            )
        )

    def instead(self, key: Key, cost: int, partial: bool, sent: bool) -> Decision:
        """What is answered when the store cannot."""
        return joined(tuple(self._failover.stand_in(self.asks(key, cost, partial), sent)))

    def hitting_many(self, verb: Verb, keys: list[Key], cost: int) -> Flow[list[Decision]]:
        """Many takes."""
        for key in keys:  # bad input is found before anything is taken
            canonical(key)

        def instead(sent: bool) -> list[Decision]:
            groups = [self.asks(key, cost) for key in keys]
            return [joined(tuple(self._failover.stand_in(asks, sent))) for asks in groups]

        return (yield from self._failover.asking(Step(verb, (keys, cost)), instead))


class Hits(Takes):
    """For threads and plain functions."""

    def hit(self, key: Key = "", cost: int = 1, *, partial: bool = False) -> Decision:
        """Take `cost` or be refused; with `partial`, take what is there. Never sleeps."""
        failover = self._failover
        if failover.uneasy:
            return run(self.hitting(key, cost, partial))
        ticket = failover.breaker.ticket
        try:
            decision: Decision = self._way.hit(key, cost, partial=partial)
        except StoreUnavailable as error:
            return self.instead(key, cost, partial, failover.failed(ticket, error))
        return decision

    def hit_many(self, keys: list[Key], cost: int) -> list[Decision]:
        """Independent decisions, in order; the cost has been checked."""
        return run(self.hitting_many(Verb(self._way.hit_many), list(keys), cost))


class AsyncHits(Takes):
    """For tasks."""

    async def hit(self, key: Key = "", cost: int = 1, *, partial: bool = False) -> Decision:
        """Take `cost` or be refused; with `partial`, take what is there. Never sleeps."""
        failover = self._failover
        if failover.uneasy:
            return await run_async(self.hitting(key, cost, partial))
        ticket = failover.breaker.ticket
        decision: Decision | None = None
        try:
            sent = self._begin(key, cost, partial) if self._begin is not None else None
            if sent is not None:  # the way's own hit, without its frame
                decision = self._way.read(await sent, key, cost)
            if decision is None:
                decision = await self._way.hit(key, cost, partial=partial)
        except StoreUnavailable as error:
            return self.instead(key, cost, partial, failover.failed(ticket, error))
        return decision

    async def hit_many(self, keys: list[Key], cost: int) -> list[Decision]:
        """Independent decisions, in order; the cost has been checked."""
        way = self._way.hit_many
        return await run_async(self.hitting_many(Verb(way, way), list(keys), cost))
