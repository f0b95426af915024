"""Refusals: takes in front of a far store, which remember what it refused.

A key that is over its limit is refused here, for costs at least as large, until the moment of
asking + retry_after and at most for a second; so what comes back elsewhere shows within one.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..clock import Clock
from ..decision import Ask, Decision, check_cost, decided, joined
from ..keys import Canonical, Key, canonical
from ..limit import Limit
from ..options import CEILING
from .near import Entry, Near
from .steps import Flow, Step, Verb, run, run_async

if TYPE_CHECKING:
    from .lease import LeaseStore

__all__ = ["SECOND", "Refusals"]

SECOND = 1_000_000_000
TRIES = 8
"""How many keys are passed over, as they were used lately, before one has to go."""


class Refusals(Near):
    """The takes of one set of limits, of which only refusals are remembered."""

    leases = False
    """Whether anything is leased."""

    def __init__(
        self, clock: Clock, store: LeaseStore, space: str, limits: Sequence[Limit], on_error: str
    ) -> None:
        super().__init__(clock)
        self.store = store
        self.space = space
        self.limits = tuple(limits)
        self.on_error = on_error
        self.single = len(self.limits) == 1
        self._keeps = store.refusals and all(x.algorithm != "concurrency" for x in self.limits)
        self._lock = threading.Lock()
        self._hit: Verb | None = None
        self._hit_many: Verb | None = None

    def prepare(self, plain: Any, awaited: Any) -> None:
        """Use the store's own prepared takes, where it has them."""
        if plain is not None:
            self._hit = Verb(plain.hit, getattr(awaited, "hit", None))
            self._hit_many = Verb(plain.hit_many, getattr(awaited, "hit_many", None))

    # -- the ways that ask the store

    def longer(self, key: Key, cost: int, partial: bool) -> Decision:
        """The answer of the store."""
        if self._hit is None or not self.straight():
            return run(self.taking(key, cost, partial))
        sent = self.nanos()
        decision: Decision = self._hit.plain(key, cost, partial=partial)
        return decision if decision.allowed else self.refused(key, decision, sent)

    async def longer_async(self, key: Key, cost: int, partial: bool) -> Decision:
        """The same, awaited."""
        if self._hit is None or self._hit.awaited is None or not self.straight():
            return await run_async(self.taking(key, cost, partial))
        sent = self.nanos()
        decision: Decision = await self._hit.awaited(key, cost, partial=partial)
        return decision if decision.allowed else self.refused(key, decision, sent)

    def straight(self) -> bool:
        """Whether there is nothing to do but to ask the store."""
        return not self.leases and (self.single or not self.entries)

    def refused(self, key: Key, decision: Decision, sent: int) -> Decision:
        """A refusal, remembered."""
        self.note_refusal(canonical(key), key, decision, sent)
        return decision

    def hit_many(self, keys: list[Key], cost: int) -> list[Decision]:
        """Independent decisions, in order; the cost has been checked."""
        return run(self.taking_many(list(keys), cost))

    def taking(self, key: Key, cost: int, partial: bool) -> Flow[Decision]:
        """One take that could not be answered here."""
        check_cost(cost)
        form, now = canonical(key), self.nanos()
        entry = self.entries.get(form)
        if entry is not None and entry.refusal is not None and cost and not partial:
            refusal = self._still_refused(entry, cost, now)
            if refusal is not None:
                return refusal
        if self.leases:
            return (yield from self._leased(form, key, cost, partial))
        return (yield from self._plain(form, key, cost, partial))

    def _leased(self, form: Canonical, key: Key, cost: int, partial: bool) -> Flow[Decision]:
        """A take of limits of which some are leased."""
        raise NotImplementedError

    def _plain(self, form: Canonical, key: Key, cost: int, partial: bool = False) -> Flow[Decision]:
        """A take of the store, exactly as asked."""
        sent = self.nanos()
        if self._hit is not None:
            decision: Decision = yield Step(self._hit, (key, cost), {"partial": partial})
        else:
            asks = self.asks(key, cost, least=min(1, cost) if partial else -1)
            decision = joined(tuple((yield Step(self.store.verb_decide, (asks,)))))
        if not decision.allowed:
            self.note_refusal(form, key, decision, sent)
        return decision

    def taking_many(self, keys: list[Key], cost: int) -> Flow[list[Decision]]:
        """What can be answered here, and the rest in one crossing."""
        for key in keys:  # bad input is found before anything is taken
            canonical(key)
        found = [self.near(key, cost, partial=False) for key in keys]
        rest = [number for number, decision in enumerate(found) if decision is None]
        if rest:
            sent = self.nanos()
            asked = [keys[number] for number in rest]
            if self._hit_many is not None:
                answers = yield Step(self._hit_many, (asked, cost))
            else:
                groups = [self.asks(key, cost) for key in asked]
                many = yield Step(self.store.verb_decide_many, (groups,))
                answers = [joined(tuple(decisions)) for decisions in many]
            for number, decision in zip(rest, answers, strict=True):
                found[number] = decision
                if not decision.allowed:
                    self.note_refusal(canonical(keys[number]), keys[number], decision, sent)
        return found  # type: ignore[return-value] # none is None any more

    def asks(self, key: Key, cost: int, least: int = -1) -> list[Ask]:
        """The take of one key said at length."""
        return [self._ask("take", limit, key, cost, least=least) for limit in self.limits]

    def _ask(self, op: str, limit: Limit, key: Key, cost: int, **more: Any) -> Ask:
        return Ask(op, limit, key, cost, self.space, on_error=self.on_error, **more)

    # -- refusals

    def note_refusal(self, form: Canonical, key: Key, decision: Decision, sent: int) -> None:
        """Remember that a key is over its limit: until it may pass, and at most for a second."""
        if not self._keeps or decision.degraded or not decision.cost:
            return
        wait = decision.retry_after
        until = sent + (SECOND if wait >= 1 else round(wait * SECOND))
        entry = self.entry(form, key)
        received = self.nanos()
        if not self.single:
            entry.refusal, entry.shut, entry.since = decision, until, received
            return
        source: Any = decision._source
        nanos = SECOND // source.per_second
        costs = decision.cost, CEILING - 1 if getattr(source, "words", False) else decision.cost
        since = decision._now * nanos - received
        self.refuse(entry, source, decision._outcome, costs, nanos, since, until)

    def _still_refused(self, entry: Entry, cost: int, now: int) -> Decision | None:
        """What several limits together refused, as it is by now."""
        refusal: Decision = entry.refusal
        parts = refusal.parts
        words = all(getattr(part._source, "words", False) for part in parts)
        if now >= entry.shut or cost < refusal.cost or (cost > refusal.cost and not words):
            return None
        moved = []
        for part in parts:
            later = part._now + (now - entry.since) * part._source.per_second // SECOND
            wait, a, b, c = part._outcome
            if part.allowed and cost > part.cost:
                return None  # it might refuse the larger cost too, and say something else
            found = decided(part._source, (wait, a, b, c), later, cost)
            moved.append(found.glance() if part.allowed else found)
        entry.touched = True
        return joined(tuple(moved))

    # -- the keys

    def entry(self, form: Canonical, key: Key) -> Entry:
        """What is known of a key, which may be new; then one that was not used lately may go."""
        entry = self.entries.get(form)
        if entry is not None:
            return entry
        gone = None
        with self._lock:
            entry = self.entries.get(form)
            if entry is None:
                entry = Entry()
                entry.key = key
                if len(self.entries) >= self.store.keys:
                    gone = self._make_room()
                self.entries[form] = entry
        if gone is not None:
            self._end(*gone)
        return entry

    def _make_room(self) -> tuple[Canonical, Entry]:
        for _ in range(TRIES):
            form = next(iter(self.entries))
            entry = self.entries.pop(form)
            if not entry.busy and not entry.touched:
                return form, entry
            entry.touched = False  # used since it was last looked at: it goes to the end
            self.entries[form] = entry
        form = next(iter(self.entries))
        return form, self.entries.pop(form)

    def reopen(self, form: Canonical) -> None:
        """Something came back: a refusal need not hold any more."""
        entry = self.entries.get(form)
        if entry is not None:
            entry.shut, entry.refusal = 0, None

    def forget(self, form: Canonical, *, reset: bool) -> None:
        """A key's limit has changed, or it was reset: then nothing of it is counted any more."""
        entry = self.entries.pop(form, None)
        if entry is not None:
            entry.shut = 0
            entry.debited = entry.debited and not reset
            self._end(form, entry)

    def _end(self, form: Canonical, entry: Entry) -> None:
        """A key goes."""

    def after_fork(self) -> None:
        """In a child: a lock may have been held."""
        super().after_fork()
        self._lock = threading.Lock()
