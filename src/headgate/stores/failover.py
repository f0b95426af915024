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

from ..clock import ManualClock
from ..decision import Ask, Decision
from ..errors import StoreError, StoreUnavailable
from ..limit import Limit
from .base import BlockingStore, Prepared, PreparedAsync
from .in_front import InFront
from .prepared import AsyncHits, Hits
from .standing import StandIns, checked
from .steps import Flow, Step
from .store_breaker import CLOSED, StoreBreaker

__all__ = ["Failover"]

Result = TypeVar("Result")
APART = 0.02
"""Seconds between two failures that are counted as two."""
AT_ONCE = 256
"""How many give-backs are sent in one crossing once the store is back."""

_failovers: weakref.WeakSet[Failover] = weakref.WeakSet()


class Failover(InFront):
    """A store that always answers: by the store it stands in front of, or in its place.

    `on_error` is what happens when the store cannot answer and the ask does not say: "allow",
    "deny", or "local", which counts in this process against a share of one in `nodes`.
    """

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
        super().__init__(store)
        self.on_error = checked(on_error)
        self.nodes = nodes
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
        self.owed = self._stand_ins.owed
        self.closed = False
        self.uneasy = False
        """Whether anything has gone wrong lately, so that calls have more to see to."""
        self._away = False
        _failovers.add(self)

    @property
    def opened(self) -> int:
        """How often the breaker stopped asking the store."""
        return self.breaker.opened

    @property
    def degraded(self) -> bool:
        """Whether the store is being left alone, or only tried."""
        return self._away

    # -- the contract

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
        if self.owed.by_token and not (yield from self._undone(asks)):
            return self.stand_in(asks)
        step = Step(self.verb_decide, (asks,))
        return (yield from self.asking(step, lambda sent: self.stand_in(asks, sent)))

    def _deciding_many(self, groups: Sequence[Sequence[Ask]]) -> Flow[list[list[Decision]]]:
        step = Step(self.verb_decide_many, (groups,))
        return (
            yield from self.asking(
                step, lambda sent: [self.stand_in(asks, sent) for asks in groups]
            )
        )

    def _some_ours(self, asks: Sequence[Ask]) -> Flow[list[Decision]]:
        """Some of it is about permits that were granted here, perhaps in a time-out's place."""
        mine: dict[int, Decision] = {}
        rest, late = [], []
        for number, ask in enumerate(asks):
            if not self._stand_ins.is_ours(ask):
                rest.append(ask)
                continue
            mine[number], doubtful = self._stand_ins.ours(ask)
            if doubtful and ask.op == "release":
                late.append(ask)  # the store may have granted it as well, if too late
        others = iter((yield from self._deciding([*rest, *late])) if rest or late else ())
        return [mine[n] if n in mine else next(others) for n in range(len(asks))]

    def _undone(self, asks: Sequence[Ask]) -> Flow[bool]:
        """See to it that no undoing by token comes behind a take with the same token."""
        late = self.owed.before(asks)
        if not late:
            return late is not None
        ticket = self.breaker.enter()
        if ticket is None:
            self.owed.kept(late, sent=False)
            return False
        try:
            yield from self.owed.telling(self.verb_decide_many, late)
        except BaseException as error:
            self.failed(ticket, error)
            return False
        if self.uneasy:
            self.breaker.passed(ticket)
        return True

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
        if self.owed:  # somebody may be waiting for just that
            yield from self._catch_up()
        if self.breaker.state is not CLOSED:
            return
        if self._away:
            self._away = False
            self._stand_ins.forget()
            _say("the store answers again, after %d decisions without it", self.degraded_decisions)
        self.uneasy = False
        if self.closed or not self.breaker.calm or self.owed:  # perhaps since a moment ago
            self.uneasy = True

    def _catch_up(self) -> Flow[None]:
        """Tell the store what was given back while it was away."""
        late = self.owed.some(AT_ONCE)
        try:
            if late:
                yield from self.owed.telling(self.verb_decide_many, late)
        except StoreUnavailable:
            self.failures += 1
        except Exception:
            return  # whoever asked has his answer

    # -- in place of the store

    def stand_in(self, asks: Sequence[Ask], sent: bool = False) -> list[Decision]:
        """What is answered when the store cannot."""
        self.degraded_decisions += len(asks)
        found = self._stand_ins.answers(asks, sent)
        self.uneasy = True
        return found

    def __repr__(self) -> str:
        return f"Failover({self.store!r}, on_error={self.on_error!r}, nodes={self.nodes})"


def _say(text: str, *values: object) -> None:
    import logging

    logging.getLogger("headgate").warning(text, *values)


def _after_fork() -> None:
    for failover in list(_failovers):
        failover.breaker.after_fork()
        failover.owed.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
