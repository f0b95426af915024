"""What the tests of the gate share: rules in a line, and a store that notes what it is asked."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from headgate import Ask, Decision, Gate, Limit, ManualClock, MemoryStore
from headgate.rules.model import KeyPart, Match, Rule, RuleSet

__all__ = [
    "START", "CountingStore", "NoShortcuts", "gate_of", "rule", "rules", "until",
]  # fmt: skip

START = 1_000_000


def rule(name: str, *limits: str, key: str = "", path: str = "", **more: Any) -> Rule:
    """A rule by its texts; `key` names the parts, with blanks between them."""
    match = more.pop("match", Match(paths=(path,)) if path else Match())
    parts = tuple(KeyPart(*part.split(":")) for part in key.split())
    return Rule(name, match, parts, tuple(Limit.parse(limit) for limit in limits), **more)


def rules(*given: Rule, **more: Any) -> RuleSet:
    """A set of rules."""
    return RuleSet(given, **more)


class NoShortcuts(MemoryStore):
    """A store that is always asked at length."""

    def quick(self, space: str, limits: Sequence[Limit]) -> None:
        return None


class CountingStore(NoShortcuts):
    """A store that notes what it is asked."""

    def __init__(self, clock: ManualClock | None = None) -> None:
        super().__init__(clock=clock or ManualClock(START))
        self.asked: list[list[Ask]] = []

    def decide(self, asks: Sequence[Ask]) -> list[Decision]:
        self.asked.append(list(asks))
        return super().decide(asks)


def gate_of(*given: Rule, store: Any = None, **more: Any) -> Gate:
    """A gate of these rules, on a clock that stands still."""
    own = MemoryStore(clock=ManualClock(START)) if store is None else store
    return Gate(rules(*given), own, **more)


def until(what: Callable[[], bool]) -> None:
    """Wait for what another thread does."""
    for _ in range(60_000):
        if what():
            return
        time.sleep(0.001)
    raise AssertionError("it does not come about")
