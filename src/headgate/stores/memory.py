"""MemoryStore: state in this process, exact under threads, bounded, without a thread of its own."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from ..algorithms import REFUSED, Concurrency, rule_of
from ..clock import Clock, SystemClock
from ..decision import Ask, Decision, Seen, check_cost, decided
from ..errors import StoreError
from ..keys import Canonical, Key, canonical
from ..limit import Limit
from .base import Quick
from .quick import quick_spread, quick_words
from .reclaim import Reclaimer
from .reservations import Reservations
from .table import Table

__all__ = ["MemoryStore"]

OPS = ("take", "check", "shadow", "charge", "refund", "settle", "release", "renew", "reset")
HELD = 60_000_000
"""How soon to look again at a key that cannot be forgotten, in microseconds."""
SWEEP = 3
"""How many idle candidates an insert looks at."""

_stores: weakref.WeakSet[MemoryStore] = weakref.WeakSet()


class MemoryStore:
    """A store for one process.

    At most `max_keys` keys are kept. Keys that are as if never used go first, a few at each
    insert; when every key is live, the one that resets soonest is forgotten and counted in
    `evicted`, or, with `on_full="deny"`, the new key is refused.
    """

    blocking = False

    def __init__(
        self,
        *,
        clock: Clock | None = None,
        max_keys: int = 1 << 20,
        on_full: str = "evict",
    ) -> None:
        if isinstance(max_keys, bool) or not isinstance(max_keys, int) or max_keys < 1:
            raise ValueError(f"max_keys is a whole number from 1 on, not {max_keys!r}")
        if on_full not in ("evict", "deny"):
            raise ValueError(f"on_full is 'evict' or 'deny', not {on_full!r}")
        self._clock = clock if clock is not None else SystemClock()
        self._micros = self._clock.micros
        self._lock = threading.Lock()
        self._tables: dict[tuple[str, str], Table] = {}
        self._reclaimer = Reclaimer(self._reset_of)
        self._reservations = Reservations()
        self._now = 0
        self.max_keys = max_keys
        self.on_full = on_full
        self.keys = 0
        """How many keys are kept."""
        self.evicted = 0
        """How many live keys were forgotten because the store was full."""
        self.closed = False
        _stores.add(self)

    @property
    def clock(self) -> Clock:
        return self._clock

    # -- the verb

    def decide(self, asks: Sequence[Ask]) -> list[Decision]:
        """Answer the asks in order; takes pass together or not at all."""
        with self._lock:
            micros = self._enter()
            for ask in asks:
                check_cost(ask.cost)
            if any(ask.least >= 0 for ask in asks):
                asks = self._partial(asks, micros)
            undo: list[Callable[[], None]] = []
            decisions = [self._answer(ask, micros, undo) for ask in asks]
            pairs = list(zip(asks, decisions, strict=True))
            if all(decision.allowed or ask.op != "take" for ask, decision in pairs):
                return decisions
            for back in reversed(undo):
                back()
            # What would have passed alone says so, with what is left as if it had not been asked.
            return [
                self._answer(ask._replace(op="check"), micros, undo)
                if ask.op == "take" and decision.allowed
                else decision
                for ask, decision in pairs
            ]

    def decide_many(self, groups: Sequence[Sequence[Ask]]) -> list[list[Decision]]:
        return [self.decide(group) for group in groups]

    def quick(self, space: str, limit: Limit) -> Quick | None:
        with self._lock:
            table = self._table(space, limit)
        if limit.elastic or limit != table.rule.limit or isinstance(table.rule, Concurrency):
            return None
        make = quick_words if table.rule.words else quick_spread
        return make(self, table, space, limit)

    def forecast(self, asks: Sequence[Ask], ahead: int) -> int:
        with self._lock:
            micros, latest = self._enter(), 0
            for ask in asks:
                table, key, rule = self._find(ask)
                state = self._state(table, key, rule, micros)
                now = micros // rule.tick
                args = (*state, now) if rule.words else (state, now)
                latest = max(latest, rule.forecast(*args, ahead, ask.cost) * rule.tick)
            return latest

    def assign(self, space: str, limit_id: str, key: Key, limit: Limit | None) -> None:
        form = canonical(key)
        with self._lock:
            self._enter()
            table = self._tables.get((space, limit_id))
            if limit is None:
                if table is not None:
                    table.own.pop(form, None)
                return
            limit = limit.named(limit_id)
            (table or self._table(space, limit)).own[form] = limit

    def assigned(self, space: str, limit_id: str, key: Key) -> Limit | None:
        with self._lock:
            table = self._tables.get((space, limit_id))
            return table.own.get(canonical(key)) if table else None

    def close(self) -> None:
        with self._lock:
            self.closed = True
            for table in self._tables.values():  # prepared takes hold on to their table
                table.cells.clear()
            self._tables.clear()
            self._reservations.clear()
            self._reclaimer = Reclaimer(self._reset_of)
            self.keys = 0

    # -- what holds while the lock is held

    def _enter(self) -> int:
        if self.closed:
            raise StoreError("this store is closed")
        self._now = micros = self._micros()
        if self._reservations.expiries:
            self._reap(micros)
        return micros

    def _table(self, space: str, limit: Limit) -> Table:
        table = self._tables.get((space, limit.id))
        if table is None:
            table = self._tables[(space, limit.id)] = Table(limit)
        return table

    def _find(self, ask: Ask) -> tuple[Table, Canonical, Any]:
        table, key = self._table(ask.space, ask.limit), canonical(ask.key)
        limit = table.own.get(key, ask.limit) if table.own else ask.limit
        return table, key, rule_of(limit, ask.room if limit.elastic else 0)

    def _state(self, table: Table, key: Canonical, rule: Any, micros: int) -> Any:
        state = table.read(key, rule, micros)
        if state is None:
            return rule.fresh(micros // rule.tick) if rule.words else rule.empty()
        return state

    def _partial(self, asks: Sequence[Ask], micros: int) -> list[Ask]:
        """What can be granted to all of the takes, if it is worth having."""
        checks = [self._answer(ask._replace(op="check"), micros, []) for ask in asks]
        room = min(
            check.remaining for ask, check in zip(asks, checks, strict=True) if ask.op == "take"
        )
        return [
            ask._replace(cost=min(ask.cost, max(room, ask.least))) if ask.op == "take" else ask
            for ask in asks
        ]

    def _answer(self, ask: Ask, micros: int, undo: list[Callable[[], None]]) -> Decision:
        table, key, rule = self._find(ask)
        now = micros // rule.tick
        state = self._state(table, key, rule, micros)
        match ask.op:
            case "take" | "shadow" if ask.cost:
                return self._take(ask, table, key, rule, state, now, undo)
            case "take" | "shadow" | "check":
                return self._check(ask, rule, state, now)
            case "charge":
                self._charge(table, key, rule, state, now, ask.cost)
            case "refund":
                self._refund(table, key, rule, state, now, ask.cost, ask.at // rule.tick)
            case "settle":
                self._settle(ask, table, key, rule, state, micros)
            case "release" | "renew":
                return self._permit(ask, rule, state, now)
            case "reset":
                if key in table.cells:
                    fresh = rule.fresh(now) if rule.words else rule.empty()
                    table.cells[key] = table.form(rule, fresh)
            case _:
                raise ValueError(f"unknown op {ask.op!r}; known are {', '.join(OPS)}")
        state = self._state(table, key, rule, micros)
        return self._decision(rule, state, 0, now, 0)

    def _decision(self, rule: Any, state: Any, wait: int, now: int, cost: int) -> Decision:
        if not rule.words:
            rule.roll(state, now)
            state = rule.view(state, now, cost)
        return decided(rule, (wait, *state), now, cost)

    def _check(self, ask: Ask, rule: Any, state: Any, now: int) -> Decision:
        wait = 0
        if ask.cost:
            if rule.words:
                wait = rule.take(*state, now, ask.cost, ask.max_wait // rule.tick)[0]
            else:
                wait = rule.take(state, now, ask.cost)
        return self._decision(rule, state, wait, now, ask.cost)

    def _take(
        self, ask: Ask, table: Table, key: Canonical, rule: Any, state: Any, now: int,
        undo: list[Callable[[], None]],
    ) -> Decision:  # fmt: skip
        cost, seen = ask.cost, table.cells.get(key)
        if rule.words:
            max_wait = min(ask.max_wait // rule.tick, rule.horizon) if rule.books else 0
            outcome = rule.take(*state, now, cost, max_wait)
            wait, after = outcome[0], outcome[1:]
            if wait == REFUSED and rule.sticky and seen is None and self._room():
                self._insert(table, key, table.form(rule, state))
        else:
            wait, after = rule.take(state, now, cost), state
        if wait == REFUSED:
            if seen is not None and after != state:
                table.cells[key] = table.form(rule, after)
            return self._decision(rule, after, wait, now, cost)
        if seen is None and not self._room():
            full = (REFUSED, 0, max(1, self._until_room() // rule.tick), 0)
            return decided(Seen(rule.limit, rule.per_second), full, now, cost)
        if rule.words:
            value = table.form(rule, after)
            undo.append(lambda: self._restore(table, key, rule, seen))
        else:
            expires = now + -(-ask.ttl // rule.tick) if ask.ttl else 0
            rule.put(state, now, cost, ask.token, expires)
            value = table.form(rule, state)
            undo.append(lambda: self._undo_put(rule, state, now, cost, ask.token))
        if seen is None:
            self._insert(table, key, value)
        else:
            table.cells[key] = value
        if ask.token and ask.ttl and not isinstance(rule, Concurrency):
            name = (ask.token, ask.space, ask.limit.id, key)
            self._reservations.add(name, cost, (now + wait) * rule.tick, self._now + ask.ttl)
            undo.append(lambda: self._reservations.pop(name) and None)
        return self._decision(rule, after, wait, now, cost)

    def _restore(self, table: Table, key: Canonical, rule: Any, seen: Any) -> None:
        if seen is None:  # the key stays filed, so it stays: as if never used
            seen = table.form(rule, rule.fresh(self._now // rule.tick))
        table.cells[key] = seen

    def _undo_put(self, rule: Any, state: Any, now: int, cost: int, token: int) -> None:
        if isinstance(rule, Concurrency):
            rule.release(state, token)
        else:
            rule.refund(state, now, cost, now)

    def _charge(
        self, table: Table, key: Canonical, rule: Any, state: Any, now: int, cost: int
    ) -> None:
        if not cost:
            return
        if rule.words:
            state = rule.charge(*state, now, cost)
        else:
            rule.roll(state, now)
            rule.put(state, now, cost)
        value = table.form(rule, state)
        if key in table.cells:
            table.cells[key] = value
        elif self._room():
            self._insert(table, key, value)

    def _refund(
        self, table: Table, key: Canonical, rule: Any, state: Any, now: int, cost: int, at: int
    ) -> None:
        if key not in table.cells or not cost:
            return
        if rule.words:
            state = rule.refund(*state, now, cost, at)
        else:
            rule.refund(state, now, cost, at)
        table.cells[key] = table.form(rule, state)

    def _permit(self, ask: Ask, rule: Any, state: Any, now: int) -> Decision:
        held = False
        if isinstance(rule, Concurrency):
            rule.roll(state, now)
            if ask.op == "release":
                held = rule.release(state, ask.token)
            else:
                held = rule.renew(state, ask.token, now + ask.ttl // rule.tick if ask.ttl else 0)
        return self._decision(rule, state, 0 if held else REFUSED, now, 0)

    # -- reservations

    def _settle(
        self, ask: Ask, table: Table, key: Canonical, rule: Any, state: Any, micros: int
    ) -> None:
        taken, at = self._reservations.pop((ask.token, ask.space, ask.limit.id, key))
        now = micros // rule.tick
        if ask.cost > taken:  # or the reservation had expired, and all of it is charged again
            self._charge(table, key, rule, state, now, ask.cost - taken)
        else:
            self._refund(table, key, rule, state, now, taken - ask.cost, at // rule.tick)

    def _reap(self, micros: int) -> None:
        """Give back what was reserved and neither settled nor cancelled in time."""
        for (_, space, limit_id, key), (cost, at) in self._reservations.expired(micros):
            table = self._tables[(space, limit_id)]
            value = table.cells.get(key)
            rule = value[0] if type(value) is tuple else table.rule
            state = self._state(table, key, rule, micros)
            self._refund(table, key, rule, state, micros // rule.tick, cost, at // rule.tick)

    # -- room

    def _insert(self, table: Table, key: Canonical, value: Any) -> None:
        table.cells[key] = value
        self.keys += 1
        self._reclaimer.file(table, key, self._reset_of(table, key))
        found = self._reclaimer.idle(self._now, SWEEP)
        if found is not None:
            self._drop(*found)

    def _room(self) -> bool:
        """Make room for one more key, if it can be had: idle keys first, then by reset."""
        if self.keys < self.max_keys:
            return True
        found = self._reclaimer.soonest()
        if found is None:
            return False
        table, key, reset = found
        if reset > self._now:
            if self.on_full == "deny":
                self._reclaimer.file(table, key, reset)
                return False
            self.evicted += 1
        self._drop(table, key)
        return True

    def _until_room(self) -> int:
        found = self._reclaimer.soonest()
        if found is None:
            return HELD
        self._reclaimer.file(*found)
        return max(1, found[2] - self._now)

    def _drop(self, table: Table, key: Canonical) -> None:
        del table.cells[key]
        self.keys -= 1

    def _reset_of(self, table: Table, key: Canonical) -> int:
        found = table.reset(key, self._now)
        if found is None:
            return 0
        rule, reset = found
        if reset < 0 or (rule.sticky and reset <= self._now and self.keys < self.max_keys):
            return -(self._now + HELD)
        return max(1, reset)


def _after_fork() -> None:
    # A thread of the parent may have held a lock at the moment of the fork.
    for store in _stores:
        store._lock._at_fork_reinit()  # type: ignore[attr-defined] # as threading itself does


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
