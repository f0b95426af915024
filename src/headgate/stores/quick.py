"""The short way: one take of one limit, with everything looked up beforehand.

The answers are those of `MemoryStore.decide`, which is called for whatever is unusual: a new
key, an odd cost, a key with a limit of its own.
"""

from __future__ import annotations

from time import monotonic_ns
from typing import TYPE_CHECKING

from ..decision import Ask, Decision, Seen
from ..keys import Key, canonical
from .table import LOW, MIDDLE

if TYPE_CHECKING:
    from ..limit import Limit
    from .base import Quick
    from .memory import MemoryStore
    from .table import Table

__all__ = ["quick_spread", "quick_words"]


def quick_words(
    store: MemoryStore, table: Table, space: str, limit: Limit, offset: int | None
) -> Quick:
    """A take for an algorithm of three words."""
    cells, own, rule, expiries = table.cells, table.own, table.rule, store._expiries
    get, take, micros = cells.get, rule.take, store._micros
    tick, nanos, shift = rule.tick, rule.tick * 1000, offset or 0
    system = offset is not None

    def hit(key: Key, cost: int) -> Decision:
        form = key if key.__class__ is str and key.isascii() else canonical(key)
        with store._lock:
            value = get(form)
            if value.__class__ is int and cost.__class__ is int and cost > 0 and not own and not expiries:
                now = (monotonic_ns() + shift) // nanos if system else micros() // tick
                b = value >> 53
                if b <= MIDDLE:
                    outcome = take(value & LOW, b, 0, now, cost, 0)
                else:
                    outcome = take(value & LOW, b & MIDDLE, b >> 64, now, cost, 0)
                wait, a, b, c = outcome
                if wait == 0:
                    cells[form] = a | b << 53 | c << 117
                return Decision(rule, outcome, now, cost)
        return store.decide((Ask("take", limit, key, cost, space),))[0]

    return hit


def quick_spread(
    store: MemoryStore, table: Table, space: str, limit: Limit, offset: int | None
) -> Quick:
    """A take for an algorithm whose state is one object."""
    cells, own, rule, expiries = table.cells, table.own, table.rule, store._expiries
    get, take, put, look = cells.get, rule.take, rule.put, rule.look
    micros, tick, nanos, shift = store._micros, rule.tick, rule.tick * 1000, offset or 0
    system, seen = offset is not None, Seen(limit, rule.per_second)

    def hit(key: Key, cost: int) -> Decision:
        form = key if key.__class__ is str and key.isascii() else canonical(key)
        with store._lock:
            state = get(form)
            plain = cost.__class__ is int and cost > 0 and not own and not expiries
            if state is not None and state.__class__ is not tuple and plain:
                now = (monotonic_ns() + shift) // nanos if system else micros() // tick
                wait = take(state, now, cost)
                if wait == 0:
                    put(state, now, cost)
                return Decision(seen, (wait, *look(state, now, cost)), now, cost)
        return store.decide((Ask("take", limit, key, cost, space),))[0]

    return hit
