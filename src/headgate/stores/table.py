"""Table: the keys of one limit and what each has used, as small as Python allows."""

from __future__ import annotations

from typing import Any

from ..algorithms import carried, rule_of
from ..algorithms.base import MOST
from ..keys import Canonical, Key, canonical
from ..limit import Limit

__all__ = ["Table", "handle_of", "packed", "unpacked"]

handle_of = canonical
"""What a key is known by in every table."""

LOW = 2**53 - 1
MIDDLE = 2**64 - 1
assert MOST <= MIDDLE


def packed(a: int, b: int, c: int) -> int:
    """Three words as one int, which takes far less room than a tuple of them."""
    return a | b << 53 | c << 117


def unpacked(value: int) -> tuple[int, int, int]:
    """The three words again."""
    return value & LOW, value >> 53 & MIDDLE, value >> 117


class Table:
    """The state of every key of one limit in one namespace.

    A value is an int (three packed words) or the state object of a spread algorithm, both of
    the table's own rule; or, for a key with a limit of its own, a tuple of the rule it was
    written under and its state.
    """

    __slots__ = ("cells", "grain", "grains", "name", "own", "rule")

    def __init__(self, name: tuple[str, str], limit: Limit, own: dict[Canonical, Limit]) -> None:
        self.name = name
        self.rule: Any = rule_of(limit)
        self.cells: dict[Canonical, Any] = {}
        self.own = own
        span = limit.window or 60_000_000
        self.grain = max(16, span.bit_length() - 6)
        self.grains: dict[int, dict[Canonical, int]] = {}
        """Where the reclaimer has filed these keys, in grains of 2**grain microseconds or more."""

    def handle(self, key: Key) -> Canonical:
        """What a key is known by in this table."""
        return canonical(key)

    def known(self, key: Canonical) -> bool:
        """Whether a key has a state here."""
        return key in self.cells

    def own_limit(self, key: Canonical) -> Limit | None:
        """The limit a key was given, if any."""
        return self.own.get(key) if self.own else None

    def read(self, key: Canonical, rule: Any, micros: int) -> Any:
        """A key's state as this rule sees it; None if the key was never seen."""
        value = self.cells.get(key)
        if value is None:
            return None
        if type(value) is tuple:
            old, state = value
        else:
            old = self.rule
            state = unpacked(value) if old.words else value
        return state if old is rule else carried(old, state, rule, micros)

    def rule_at(self, key: Canonical) -> Any:
        """The rule a key was written under."""
        value = self.cells.get(key)
        return value[0] if type(value) is tuple else self.rule

    def write(self, key: Canonical, rule: Any, state: Any) -> None:
        """Keep a key's state, written under a rule."""
        if rule is not self.rule:
            self.cells[key] = rule, state
        else:
            self.cells[key] = packed(*state) if rule.words else state

    def forget(self, key: Canonical) -> None:
        """Drop a key."""
        del self.cells[key]

    def __len__(self) -> int:
        return len(self.cells)

    def clear(self) -> None:
        """Drop every key."""
        self.cells.clear()
        self.grains.clear()

    def reset(self, key: Canonical, micros: int) -> tuple[Any, int] | None:
        """The rule a key was written under and the instant of its reset (-1: not foreseen)."""
        value = self.cells.get(key)
        if value is None:
            return None
        rule, state = value if type(value) is tuple else (self.rule, value)
        now = micros // rule.tick
        if rule.words:
            words = unpacked(state) if type(state) is int else state
            ticks = rule.look(*words, now, 0)[2]
        else:
            ticks = rule.read(state, now, 0)[2]
        return rule, (now + ticks) * rule.tick if ticks >= 0 else -1
