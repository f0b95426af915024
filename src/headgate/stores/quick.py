"""The short way: one take of one limit, with everything looked up beforehand.

The answers are those of `MemoryStore.decide`, which is called for whatever is unusual: a new
key, an odd cost, a partial take, a key with a limit of its own. What it saves are calls: the
lock and the decision are handled without their methods' frames.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from time import monotonic_ns
from typing import TYPE_CHECKING, Any

from ..clock import SystemClock
from ..decision import Ask, Decision, Refusal
from ..keys import Canonical, Key, canonical
from ..options import CEILING
from .table import LOW, MIDDLE

if TYPE_CHECKING:
    from ..limit import Limit
    from .base import Quick
    from .memory import MemoryStore
    from .table import Table

__all__ = ["Guard", "Plain", "quick_spread", "quick_together", "quick_words"]

Guard = threading.RLock
"""What keeps others out while a store decides."""
ONE = 1  # nearly every cost; True is equal to it but not the same


class Plain:
    """A prepared take and its plural."""

    __slots__ = ("hit",)

    def __init__(self, hit: Quick) -> None:
        self.hit = hit

    def hit_many(self, keys: list[Key], cost: int) -> list[Decision]:
        """Independent decisions, in order; the cost has been checked."""
        hit, keys = self.hit, list(keys)  # the caller's own, which others may change
        for key in keys:  # bad input is found before anything is taken
            if key.__class__ is not str:
                canonical(key)
        return [hit(key, cost) for key in keys]


def quick_words(store: MemoryStore, table: Table, space: str, limit: Limit) -> Plain:
    """A take for an algorithm of three words."""
    cells, own, rule, expiries = table.cells, table.own, table.rule, store._reservations.expiries
    get, take, look, micros = cells.get, rule.take, rule.look, store._micros
    acquire, release, owned = _lock(store)
    put_off = store._put_off
    system, offset, tick, nanos = _time(store, rule.tick)

    def hit(key: Key = "", cost: int = 1, *, partial: bool = False) -> Decision:
        """Take `cost` or be refused; with `partial`, take what is there. Never sleeps."""
        # A str found in the table is canonical; one that is not goes the long way.
        form = key if key.__class__ is str else canonical(key)
        try:
            acquire()
            value = get(form)
            new = value is None
            if new and not rule.sticky and _has_room(store, form):
                value = 0  # a key that was never seen: three zeros
            if (
                value.__class__ is int
                and (cost is ONE or (cost.__class__ is int and 0 < cost < CEILING))
                and not (own or expiries or put_off or partial)
            ):
                now = (monotonic_ns() + offset) // nanos if system else micros() // tick
                old, b = value & LOW, value >> 53
                if b <= MIDDLE:
                    outcome = take(old, b, 0, now, cost, 0)
                else:
                    outcome = take(old, b & MIDDLE, b >> 64, now, cost, 0)
                wait, a, b, c = outcome
                if wait == 0:
                    decision = Decision()
                    cells[form] = a | b << 53 | c << 117 if c else a | b << 53
                    if new:
                        reset = now + look(a, b, c, now, 0)[2]
                        store._came_in(table, form, now * tick, reset * tick)
                else:
                    decision = Refusal()
                    if a != old:
                        cells[form] = a | b << 53 | c << 117
                decision._source = rule
                decision._outcome = outcome
                decision._now = now
                decision._cost = cost
                release()
                return decision
            release()
        except BaseException:  # an interrupt may come before the lock is held, or right after
            if owned():
                release()
            raise
        return store.decide((Ask("take", limit, key, cost, space, 0, 1 if partial else -1),))[0]

    return Plain(hit)


def quick_spread(store: MemoryStore, table: Table, space: str, limit: Limit) -> Plain:
    """A take for an algorithm whose state is one object."""
    cells, own, rule, expiries = table.cells, table.own, table.rule, store._reservations.expiries
    get, take, look, micros = cells.get, rule.hit, rule.look, store._micros
    kind = type(rule.empty())
    acquire, release, owned = _lock(store)
    put_off = store._put_off
    system, offset, tick, nanos = _time(store, rule.tick)

    def hit(key: Key = "", cost: int = 1, *, partial: bool = False) -> Decision:
        """Take `cost` or be refused; with `partial`, take what is there. Never sleeps."""
        # A str found in the table is canonical; one that is not goes the long way.
        form = key if key.__class__ is str else canonical(key)
        try:
            acquire()
            state = get(form)
            new = state is None
            if new and _has_room(store, form):
                state = rule.empty()
            if (
                state.__class__ is kind
                and (cost is ONE or (cost.__class__ is int and 0 < cost < CEILING))
                and not (own or expiries or put_off or partial)
            ):
                now = (monotonic_ns() + offset) // nanos if system else micros() // tick
                outcome = take(state, now, cost)
                if outcome[0] == 0:
                    decision = Decision()
                    if new:
                        cells[form] = state
                        reset = now + look(*outcome[1:], now, 0)[2]
                        store._came_in(table, form, now * tick, reset * tick)
                else:
                    decision = Refusal()
                decision._source = rule
                decision._outcome = outcome
                decision._now = now
                decision._cost = cost
                release()
                return decision
            release()
        except BaseException:  # an interrupt may come before the lock is held, or right after
            if owned():
                release()
            raise
        return store.decide((Ask("take", limit, key, cost, space, 0, 1 if partial else -1),))[0]

    return Plain(hit)


def quick_together(ways: Sequence[Plain]) -> Plain | None:
    """None: several limits at once have no shorter way in pure Python."""
    return None


def _lock(store: MemoryStore) -> tuple[Any, Any, Any]:
    """The lock's methods; a `with` would cost half as much again as the whole locking."""
    lock: Any = store._lock
    return lock.acquire, lock.release, lock._is_owned


def _has_room(store: MemoryStore, form: Canonical) -> bool:
    """Whether a new key can simply be entered: its form is certain, and there is room."""
    return (
        form.__class__ is str
        and form.isascii()
        and store.keys < store.max_keys
        and not store.closed
    )


def _time(store: MemoryStore, tick: int) -> tuple[bool, int, int, int]:
    """How to read the time in ticks: from the system's clock at once, or from any clock."""
    clock = store.clock
    if type(clock) is SystemClock:
        return True, clock.offset, tick, tick * 1000
    return False, 0, tick, 0
