"""Turns: what somebody does who waits in front of a store that blocks, as one flow.

As long as nobody has been refused there is no reason to stand in line, and everybody asks at
once. Across processes the order is the store's affair: a head says how long it would wait, and
a rate is booked for it at the next free instant, while for a permit it is noted and asks again.
"""

from __future__ import annotations

from collections.abc import Sequence

from .answers import (
    FOREVER,
    by_token,
    given_back,
    next_try,
    refused_for_good,
    too_large,
)
from .callers import Caller, Sleep, Take
from .clock import ManualClock
from .decision import Ask, Decision, joined
from .flows import Decide, Flow
from .queues import Queues
from .waiters import Waiter
from .waiting import LONGEST, SHORTEST, Name, paused

__all__ = ["Turn"]

AWAY = 1_000_000
"""How many microseconds later to ask again when a stand-in has answered, at most."""
JITTER = 5_000
"""At most so many microseconds later than planned, or those refused together ask in step."""


class Turn(Waiter):
    """Somebody who waits, and what they do about it: a flow."""

    def __init__(
        self,
        queues: Queues,
        name: Name,
        asks: Sequence[Ask],
        timeout: int | None,
        priority: int,
        caller: Caller,
    ) -> None:
        self._clock = caller.store.clock
        now = self._clock.micros()
        super().__init__(asks, None if timeout is None else now + timeout, priority)
        self.name = name
        self.kicked = False
        self._queues = queues
        self._caller = caller
        self._taken: tuple[Sequence[Ask], Decision] | None = None
        self._pending = False
        """Whether the store may have this one on its list of those who wait for a permit."""
        self._pause = SHORTEST
        self._came = now

    def gone(self) -> bool:
        return self._caller.gone()

    def wake(self) -> bool:
        return self._caller.wake()

    def steps(self) -> Flow[Decision]:
        """Take, waiting for it as long as it may take; the last decision, allowed or not."""
        try:
            if not self.cost or self._left() == 0:
                decision = yield from self._ask(0)
            elif any(ask.limit.queues for ask in self.asks):
                # A queue limit is its own line: everybody asks at once.
                decision = yield from self._ask(self._left())
                if not decision.allowed and not refused_for_good(decision):
                    decision = yield from self._in_line()
            else:
                decision = yield from self._in_line()
            if decision.allowed and decision.delay:
                decision = yield from self._until_due(decision)
            elif self._pending:
                self._caller.give(self._places())
        except BaseException:
            self._let_go()
            raise
        finally:
            self._queues.leave(self)
        return decision

    def over(self) -> None:
        """Leave the line, should an interrupt have kept the flow from doing so."""
        if self.line is not None:
            self._queues.leave(self)

    def _in_line(self) -> Flow[Decision]:
        queues, looked = self._queues, None
        if queues.outranked(self.asks, self.priority):  # whoever asks now overtakes
            looked = yield from self._look()
            if too_large(looked):
                return looked
        elif queues.lead(self):
            return (yield from self._at_head(None))
        decision, fresh = None, False
        known, kicks = queues.known(self.name), queues.kicks
        if known is None and looked is not None:
            known = looked, self._clock.micros()
        elif known is None:  # nobody has been refused so far
            decision = yield from self._ask(0)
            if decision.allowed or refused_for_good(decision):
                return decision
            known = decision, self._came
            fresh = queues.kicks == kicks and not _asks_again(decision)
        elif self._exceeds(known[0]):
            looked = yield from self._look()
            if too_large(looked):
                return looked
        if not queues.join(self, known, self._clock.micros()):
            return decision if decision is not None else (yield from self._look())
        return (yield from self._at_head(decision if fresh else None))

    def _at_head(self, decision: Decision | None) -> Flow[Decision]:
        """Wait for the turn, and then for the store; `decision` is a refusal just heard."""
        queues = self._queues
        while True:
            while not queues.begin(self):
                if self._pending:  # overtaken by somebody more important, who must find it free
                    self._pending = False
                    yield Decide(self._places())
                if self._left() == 0:
                    return (yield from self._look())
                yield Sleep(self._caller, self.deadline)
                decision = None
            if decision is None:
                decision = yield from self._ask(self._left())
            queues.end(self, decision, self._came)
            if decision.allowed:
                return decision
            again = self._again(decision)
            if again is None or self._left() == 0:
                return decision
            decision = None
            while self._clock.micros() < again and not self.kicked and queues.leads(self):
                yield Sleep(self._caller, None if again == FOREVER else again)

    def _ask(self, max_wait: int) -> Flow[Decision]:
        asks = [ask._replace(max_wait=max_wait) for ask in self.asks] if max_wait else self.asks
        decision = joined(tuple((yield Take(self._caller, asks))))
        # When the answer came, unless the clock is one that the store was given.
        manual = isinstance(self._clock, ManualClock)
        self._came = max(part.at for part in decision.parts) if manual else self._clock.micros()
        if decision.allowed:
            self._taken = asks, decision
        self._pending = not decision.allowed and bool(
            self._pending or (max_wait and self._places())
        )
        return decision

    def _look(self) -> Flow[Decision]:
        checks = [ask._replace(op="check", max_wait=0) for ask in self.asks]
        decisions: list[Decision] = yield Decide(checks)
        return joined(tuple(decisions)).refused()

    def _until_due(self, decision: Decision) -> Flow[Decision]:
        """Let the delay of a booking pass."""
        delay = round(decision.delay * 1_000_000)
        due = self._came + delay
        # A lease begins when its holder may act.
        leased = [ask._replace(op="renew", ttl=ask.ttl + delay) for ask in self.asks if ask.ttl]
        if leased:
            yield Decide(leased)
        while self._clock.micros() < due:
            yield Sleep(self._caller, due)
        return decision.after_delay()

    def _left(self) -> int:
        if self.deadline is None:
            return FOREVER
        return max(0, self.deadline - self._clock.micros())

    def _again(self, decision: Decision) -> int | None:
        """When a refused head asks again, if it is to."""
        deadline = FOREVER if self.deadline is None else self.deadline
        now = self._came
        again = next_try(decision, now, deadline, self._poll)
        if again is not None and decision.degraded:  # the store may be back sooner
            again = min(again, now + AWAY)
        if again is None or again == FOREVER or isinstance(self._clock, ManualClock):
            return again if again is None else min(again, deadline)
        spread = min((again - now) // 10, JITTER)
        return min(again + paused(2 * spread, self._clock) - spread, deadline)

    def _poll(self) -> int:
        """How long to wait for a permit that another process may give back."""
        pause = self._pause
        self._pause = min(LONGEST, pause * 5 // 4)
        return paused(pause, self._clock)

    def _exceeds(self, known: Decision) -> bool:
        """Whether this may be too much for a limit even when it is unused."""
        return any(part.limit.raised(part.limit.capacity, 1000) < self.cost for part in known.parts)

    def _places(self) -> list[Ask]:
        """What takes this one off the store's list of those who wait for a permit."""
        return [ask for ask in by_token(self.asks) if ask.op == "release"]

    def _let_go(self) -> None:
        """Give up: what was taken goes back."""
        if self._taken is not None:
            taken, self._taken = self._taken, None
            self._caller.give(given_back(*taken))
        elif self._pending:
            self._caller.give(self._places())


def _asks_again(decision: Decision) -> bool:
    """Whether somebody refused had better ask at once, to be booked or noted by the store."""
    return any(
        part.limit.algorithm == "concurrency" or getattr(part._source, "books", False)
        for part in decision.parts
        if not part.allowed
    )
