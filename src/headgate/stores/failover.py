"""Failover: a store in front of another, which answers when that one cannot.

A breaker decides whether the store is asked at all. Whatever goes wrong with the store itself
is answered in its place, and the decision says `degraded`; a closed store and bad input are
errors as ever. An administrator's calls are never answered by anybody else.
"""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Callable, Sequence
from typing import TypeVar

from ..clock import Clock, ManualClock
from ..decision import Ask, Decision
from ..errors import StoreError, StoreUnavailable
from ..keys import Key
from ..limit import Limit
from .base import BlockingStore, Prepared, PreparedAsync
from .prepared import AsyncHits, Hits
from .standing import CHOICES, StandIns, again
from .steps import Flow, Step, both, run, run_async
from .store_breaker import CLOSED, StoreBreaker

__all__ = ["Failover"]

Result = TypeVar("Result")
APART = 0.02
"""Seconds between two failures that are counted as two."""
AT_ONCE = 256
"""How many give-backs are sent in one crossing once the store is back."""

_failovers: weakref.WeakSet[Failover] = weakref.WeakSet()


class Failover:
    """A store that always answers: by the store it stands in front of, or in its place.

    `on_error` is what happens when the store cannot answer and the ask does not say: "allow",
    "deny", or "local", which counts in this process against a share of one in `nodes`.
    """

    blocking = True

    def __init__(
        self,
        store: BlockingStore,
        on_error: str = "local",
        nodes: int = 1,
        *,
        breaker: StoreBreaker | None = None,
    ) -> None:
        if isinstance(nodes, bool) or not isinstance(nodes, int) or nodes < 1:
            raise ValueError(f"nodes is a whole number from 1 on, not {nodes!r}")
        self.store = store
        self.on_error = checked(on_error)
        self.nodes = nodes
        self.shared = store.shared
        self.lease_ttl = getattr(store, "lease_ttl", 10.0)
        clock = store.clock
        by_hand = isinstance(clock, ManualClock)
        self.breaker = breaker or (
            StoreBreaker(clock.now) if by_hand else StoreBreaker(time.monotonic, apart=APART)
        )
        self.failures = 0
        """How often the store did not answer."""
        self.degraded_decisions = 0
        """How many decisions were made in its place."""
        self._stand_ins = StandIns(clock, on_error, nodes)
        self.closed = False
        self.uneasy = False
        """Whether anything has gone wrong lately, so that calls have more to see to."""
        self._away = False
        self._decide, self._decide_many = both(store, "decide"), both(store, "decide_many")
        _failovers.add(self)

    @property
    def clock(self) -> Clock:
        """What tells the store the time."""
        return self.store.clock

    @property
    def opened(self) -> int:
        """How often the breaker stopped asking the store."""
        return self.breaker.opened

    @property
    def degraded(self) -> bool:
        """Whether the store is being left alone, or only tried."""
        return self._away

    # -- the contract

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

    def quick(self, space: str, limits: Sequence[Limit], on_error: str = "") -> Prepared | None:
        """A prepared take, if the store has one; `on_error` stands for that of its asks."""
        chosen = checked(on_error) if on_error else ""
        way = self.store.quick(space, limits)
        return None if way is None else Hits(self, way, space, limits, chosen)

    def quick_async(
        self, space: str, limits: Sequence[Limit], on_error: str = ""
    ) -> PreparedAsync | None:
        """The same, awaited."""
        chosen = checked(on_error) if on_error else ""
        way = self.store.quick_async(space, limits)
        return None if way is None else AsyncHits(self, way, space, limits, chosen)

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

    def close(self) -> None:
        """Let go of everything; later calls raise StoreError."""
        self.closed = self.uneasy = True
        self.store.close()

    async def close_async(self) -> None:
        """The same, awaited."""
        self.closed = self.uneasy = True
        await self.store.close_async()

    # -- the flows

    def _deciding(self, asks: Sequence[Ask]) -> Flow[list[Decision]]:
        if self._stand_ins.tokens and any(map(self._stand_ins.is_ours, asks)):
            return (yield from self._some_ours(asks))
        step = Step(self._decide, (asks,))
        return (yield from self.asking(step, lambda sent: self.stand_in(asks, sent)))

    def _deciding_many(self, groups: Sequence[Sequence[Ask]]) -> Flow[list[list[Decision]]]:
        step = Step(self._decide_many, (groups,))
        return (
            yield from self.asking(
                step, lambda sent: [self.stand_in(asks, sent) for asks in groups]
            )
        )

    def _some_ours(self, asks: Sequence[Ask]) -> Flow[list[Decision]]:
        """Some of it is about permits that were granted here: the store has never heard of them."""
        stand_ins = self._stand_ins
        mine = {n: stand_ins.ours(ask) for n, ask in enumerate(asks) if stand_ins.is_ours(ask)}
        rest = [ask for number, ask in enumerate(asks) if number not in mine]
        others = iter((yield from self._deciding(rest)) if rest else ())
        return [mine[n] if n in mine else next(others) for n in range(len(asks))]

    def asking(self, step: Step, instead: Callable[[bool], Result]) -> Flow[Result]:
        """Ask the store, or somebody else if it is not to be asked or does not answer."""
        if self.closed:
            raise StoreError("this store is closed")
        ticket = self.breaker.enter()
        if ticket is None:
            return instead(False)  # noqa: FBT003 # not sent
        try:
            found: Result = yield step
        except BaseException as error:
            return instead(self.failed(ticket, error))
        if self.uneasy:
            self.breaker.passed(ticket)
            yield from self._settle_down()
        return found

    def failed(self, ticket: int, error: BaseException) -> bool:
        """Note that the store did not answer; whether it may have done what it was asked.

        What is not the store's fault is raised again.
        """
        if not isinstance(error, StoreUnavailable):
            self.breaker.dropped(ticket)
            raise error
        self.failures += 1
        self.breaker.failed(ticket)
        self.uneasy = True  # after the breaker knows: see _settle_down
        if not self._away and self.breaker.state is not CLOSED:
            self._away = True
            how = "deciding without it"
            _say("the store does not answer (%s): %s, on_error=%s", error, how, self.on_error)
        return error.sent

    def _settle_down(self) -> Flow[None]:
        """The store has answered: if it does so for good, all is as before."""
        breaker = self.breaker
        if breaker.state is not CLOSED:
            if self._stand_ins.kept:  # somebody may be waiting for just that
                yield from self._catch_up()
            return
        if self._away:
            self._away = False
            self._stand_ins.forget()
            _say("the store answers again, after %d decisions without it", self.degraded_decisions)
        if self._stand_ins.kept:
            yield from self._catch_up()
        self.uneasy = False
        if self.closed or not breaker.calm or self._stand_ins.kept:  # perhaps since a moment ago
            self.uneasy = True

    def _catch_up(self) -> Flow[None]:
        """Tell the store what was given back while it was away."""
        kept = self._stand_ins.kept
        late: list[Ask] = []
        while kept and len(late) < AT_ONCE:
            late.append(kept.popleft())
        try:
            yield Step(self._decide_many, ([[ask] for ask in late],))
        except StoreUnavailable as error:
            self.failures += 1
            kept.extend(ask for ask in late if again(ask) or not error.sent)
        except Exception:
            return  # whoever asked has his answer; this is not sent again
        except BaseException:  # cancelled, and perhaps sent
            kept.extend(filter(again, late))
            raise

    # -- in place of the store

    def stand_in(self, asks: Sequence[Ask], sent: bool = False) -> list[Decision]:
        """What is answered when the store cannot."""
        self.degraded_decisions += len(asks)
        found = self._stand_ins.answers(asks, sent)
        self.uneasy = True
        return found

    def __repr__(self) -> str:
        return f"Failover({self.store!r}, on_error={self.on_error!r}, nodes={self.nodes})"


def checked(on_error: str) -> str:
    """A choice that there is, or an error that names them."""
    if on_error not in CHOICES:
        raise ValueError(f"on_error is one of {', '.join(CHOICES)}, not {on_error!r}")
    return on_error


def _say(text: str, *values: object) -> None:
    import logging

    logging.getLogger("headgate").warning(text, *values)


def _after_fork() -> None:
    for failover in list(_failovers):
        failover.breaker.after_fork()
        failover._stand_ins.kept.clear()  # the parent will say it


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
