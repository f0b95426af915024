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
from .cell import Cell
from .quick import quick_spread, quick_words
from .reclaim import Reclaimer
from .reservations import Reservations
from .table import Table

__all__ = ["MemoryStore"]

OPS = ("take", "check", "shadow", "charge", "refund", "settle", "release", "renew", "reset")
HELD = 60_000_000
"""How soon to try again when no key can be forgotten, in microseconds."""
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
        self._lock = threading.RLock()
        self._put_off: list[Sequence[Ask]] = []
        self._tables: dict[tuple[str, str], Table] = {}
        self._own: dict[tuple[str, str], dict[Canonical, Limit]] = {}
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
        """What tells this store the time."""
        return self._clock

    # -- the contract

    def decide(self, asks: Sequence[Ask]) -> list[Decision]:
        """Answer the asks in order; takes pass together or not at all."""
        if self._lock._is_owned():  # type: ignore[attr-defined] # as threading.Condition does
            return self._later(asks)
        with self._lock:
            self._enter()
            places = [self._place(ask) for ask in asks]  # bad input is found before any change
            if any(ask.least >= 0 for ask in asks):
                asks = self._partial(asks, places)
            pairs = list(zip(asks, places, strict=True))
            if len(asks) > 1 and self.keys >= self.max_keys and not self._all_fit(pairs):
                # Nobody is forgotten for a call that will be refused.
                return [self._answer(_looking(ask), place, []) for ask, place in pairs]
            undo: list[Callable[[], object]] = []
            decisions = [self._answer(ask, place, undo) for ask, place in pairs]
            if all(d.allowed or ask.op != "take" for ask, d in zip(asks, decisions, strict=True)):
                return decisions
            for back in reversed(undo):
                back()
            # What would have passed alone says so, with what is left as if it had not been asked.
            return [
                self._answer(_looking(ask), place, undo)
                if ask.op == "take" and decision.allowed
                else decision
                for (ask, place), decision in zip(pairs, decisions, strict=True)
            ]

    def decide_many(self, groups: Sequence[Sequence[Ask]]) -> list[list[Decision]]:
        """Answer groups of asks, each all-or-nothing by itself."""
        return [self.decide(group) for group in groups]

    def quick(self, space: str, limit: Limit) -> Quick | None:
        """A prepared take of one limit, if there is a shorter way for it."""
        with self._lock:
            table = self._table(space, limit)
        if limit.elastic or limit != table.rule.limit or isinstance(table.rule, Concurrency):
            return None
        make = quick_words if table.rule.words else quick_spread
        return make(self, table, space, limit)

    def forecast(self, asks: Sequence[Ask], ahead: int) -> int:
        """Not before how many microseconds the asks can pass behind `ahead` of others."""
        with self._lock:
            self._enter()
            cells = [(self._cell(*self._place(ask)), ask.cost) for ask in asks]
            return max(cell.forecast(ahead, cost) for cell, cost in cells)

    def deciding(self) -> bool:
        """Whether this thread is in the middle of a decision of this store."""
        return bool(self._lock._is_owned())  # type: ignore[attr-defined] # as above

    def assign(self, space: str, limit_id: str, key: Key, limit: Limit | None) -> None:
        """Give a key a limit of its own, or take it away."""
        form = canonical(key)
        with self._lock:
            self._enter()
            own = self._own.setdefault((space, limit_id), {})
            own.pop(form, None)
            if limit is not None:
                own[form] = limit.named(limit_id)
            table = self._tables.get((space, limit_id))
            if table is not None and form in table.cells:
                # Up to now under the old limit, from now on under the new one.
                new = rule_of(own[form]) if limit is not None else table.rule
                for rule in (table.rule_at(form), new):
                    cell = self._cell(table, form, rule)
                    cell.settle_up()
                    self._keep(cell)

    def assigned(self, space: str, limit_id: str, key: Key) -> Limit | None:
        """The limit a key was given, if any."""
        with self._lock:
            return self._own.get((space, limit_id), {}).get(canonical(key))

    def close(self) -> None:
        """Forget everything; later calls raise StoreError."""
        with self._lock:
            self.closed = True
            for table in self._tables.values():  # prepared takes hold on to their table
                table.cells.clear()
            self._tables.clear()
            self._own.clear()
            self._reservations.clear()
            self._reclaimer = Reclaimer(self._reset_of)
            self.keys = 0

    # -- answers, while the lock is held

    def _later(self, asks: Sequence[Ask]) -> list[Decision]:
        """A call from inside a decision of the same thread: a finaliser, or a signal handler.

        What gives back is done by the next decision; nothing can be taken here.
        """
        if any(ask.op not in ("release", "refund", "settle") for ask in asks):
            raise StoreError("a store cannot be asked in the middle of its own decision")
        self._put_off.append(asks)
        return [decided(Seen(ask.limit, 1_000_000), (0, 0, 0, 0), self._now, 0) for ask in asks]

    def _enter(self) -> None:
        if self.closed:
            raise StoreError("this store is closed")
        self._now = self._micros()
        while self._put_off:
            for ask in self._put_off.pop():
                self._answer(ask, self._place(ask), [])
        for (_, space, limit_id, key), (cost, at) in self._reservations.expired(self._now):
            table = self._tables[(space, limit_id)]
            self._refund(self._cell(table, key, table.rule_at(key)), cost, at)

    def _table(self, space: str, limit: Limit) -> Table:
        name = (space, limit.id)
        table = self._tables.get(name)
        if table is None:
            table = self._tables[name] = Table(name, limit, self._own.setdefault(name, {}))
        return table

    def _place(self, ask: Ask) -> tuple[Table, Canonical, Any]:
        """Where an ask belongs, and under which rule; errors for what cannot be asked."""
        if ask.op not in OPS:
            raise ValueError(f"unknown op {ask.op!r}; known are {', '.join(OPS)}")
        check_cost(ask.cost)
        key = canonical(ask.key)
        table = self._table(ask.space, ask.limit)
        limit = table.own.get(key, ask.limit) if table.own else ask.limit
        if limit == table.rule.limit:
            limit = table.rule.limit  # equal limits share one rule
        return table, key, rule_of(limit, ask.room if limit.elastic else 0)

    def _cell(self, table: Table, key: Canonical, rule: Any) -> Cell:
        return Cell(table, key, rule, self._now)

    def _partial(self, asks: Sequence[Ask], places: Sequence[Any]) -> list[Ask]:
        """What can be granted to all of the takes, if it is worth having."""
        room = min(
            self._cell(*place).decision(0, 0).remaining
            for ask, place in zip(asks, places, strict=True)
            if ask.op == "take"
        )
        return [
            ask._replace(cost=min(ask.cost, max(room, ask.least))) if ask.op == "take" else ask
            for ask in asks
        ]

    def _all_fit(self, pairs: Sequence[tuple[Ask, tuple[Table, Canonical, Any]]]) -> bool:
        return all(
            self._cell(*place).fits(ask.cost, ask.max_wait) != REFUSED
            for ask, place in pairs
            if ask.op == "take" and ask.cost
        )

    def _answer(
        self, ask: Ask, place: tuple[Table, Canonical, Any], undo: list[Callable[[], object]]
    ) -> Decision:
        cell = self._cell(*place)
        match ask.op:
            case "take" | "shadow" if ask.cost:
                return self._take(ask, cell, undo)
            case "take" | "shadow" | "check":
                wait = cell.fits(ask.cost, ask.max_wait) if ask.cost else 0
                return cell.decision(wait, ask.cost).glance()
            case "charge":
                self._charge(cell, ask.cost)
            case "refund":
                self._refund(cell, ask.cost, ask.at)
            case "settle":
                taken, at = self._reservations.pop((ask.token, ask.space, ask.limit.id, cell.key))
                # If it had expired, nothing is taken any more and all of it is charged.
                self._charge(cell, max(0, ask.cost - taken))
                self._refund(cell, max(0, taken - ask.cost), at)
            case "release":
                return cell.decision(0 if cell.release(ask.token) else REFUSED, 0)
            case "renew" if cell.permits:
                return cell.decision(0 if cell.renew(ask.token, ask.ttl) else REFUSED, 0)
            case "renew":
                name = (ask.token, ask.space, ask.limit.id, cell.key)
                kept = self._reservations.renew(name, self._now + ask.ttl)
                return cell.decision(0 if kept else REFUSED, 0)
            case "reset" if cell.seen is not None:
                self._reservations.drop((ask.space, ask.limit.id, cell.key))
                cell.forget()
                cell.table.cells[cell.key] = cell.form()
        return cell.decision(0, 0)

    def _take(self, ask: Ask, cell: Cell, undo: list[Callable[[], object]]) -> Decision:
        rule, before = cell.rule, cell.state
        if cell.seen is None and not rule.sticky and cell.fits(ask.cost, ask.max_wait) == REFUSED:
            return cell.decision(REFUSED, ask.cost)  # nobody is forgotten for this
        if cell.seen is None and not self._room():
            full = (REFUSED, 0, max(1, self._until_room() // rule.tick), 0)
            return decided(Seen(rule.limit, rule.per_second), full, cell.now, ask.cost)
        wait = cell.take(ask.cost, ask.max_wait, ask.token, ask.ttl)
        if wait == REFUSED:
            if rule.words and (cell.state != before or (rule.sticky and cell.seen is None)):
                self._keep(cell)
            return cell.decision(wait, ask.cost)
        self._keep(cell)
        if rule.words:
            undo.append(lambda: self._restore(cell, before))
        else:
            undo.append(lambda: cell.untake(ask.cost, ask.token))
        if ask.token and ask.ttl and not cell.permits:
            name = (ask.token, ask.space, ask.limit.id, cell.key)
            at = (cell.now + wait) * rule.tick
            self._reservations.add(name, ask.cost, at, self._now + ask.ttl)
            undo.append(lambda: self._reservations.pop(name))
        return cell.decision(wait, ask.cost)

    def _restore(self, cell: Cell, before: Any) -> None:
        if cell.key in cell.table.cells:  # unless a later ask of the same call needed the room
            cell.state = before
            cell.table.cells[cell.key] = cell.form()

    def _charge(self, cell: Cell, cost: int) -> None:
        if cost and (cell.seen is not None or self._room()):
            cell.charge(cost)
            self._keep(cell)

    def _refund(self, cell: Cell, cost: int, at: int) -> None:
        if cost and cell.seen is not None:
            cell.refund(cost, at)
            self._keep(cell)

    def _keep(self, cell: Cell) -> None:
        if cell.key in cell.table.cells:
            cell.table.cells[cell.key] = cell.form()
        else:
            self._insert(cell.table, cell.key, cell.form())

    # -- room

    def _insert(self, table: Table, key: Canonical, value: Any) -> None:
        table.cells[key] = value
        self._file(table, key, self._reset_of(table, key))

    def _came_in(self, table: Table, key: Canonical, now: int, reset: int) -> None:
        """A prepared take has entered a key."""
        self._now = now
        self._file(table, key, reset)

    def _file(self, table: Table, key: Canonical, reset: int) -> None:
        """A key has come in; look whether another can go."""
        self.keys += 1
        self._reclaimer.file(table, key, reset)
        found = self._reclaimer.idle(self._now, SWEEP)
        if found is not None:
            self._drop(*found)

    def _room(self) -> bool:
        """Make room for one more key, if it can be had: idle keys first, then by reset."""
        if self.keys < self.max_keys:
            return True
        found = self._reclaimer.idle(self._now, SWEEP)  # also among those that had to be kept
        if found is not None:
            self._drop(*found)
            return True
        soonest = self._reclaimer.soonest()
        if soonest is None:
            return False
        table, key, reset = soonest
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
        self._reservations.drop((*table.name, key))
        del table.cells[key]
        self.keys -= 1

    def _reset_of(self, table: Table, key: Canonical) -> int:
        found = table.reset(key, self._now)
        if found is None:
            return 0
        rule, reset = found
        if reset < 0 or (rule.sticky and reset <= self._now and self.keys < self.max_keys):
            return -1
        return max(1, reset)


def _looking(ask: Ask) -> Ask:
    return ask._replace(op="check") if ask.op in ("take", "shadow") else ask


def _after_fork() -> None:
    # A thread of the parent may have held a lock at the moment of the fork.
    for store in _stores:
        store._lock._at_fork_reinit()  # type: ignore[attr-defined] # as threading itself does


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
