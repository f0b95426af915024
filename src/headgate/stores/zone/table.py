"""ZoneTable: the keys of one limit in one namespace, as a zone keeps them.

A key is a node: the rule it was written under, and its state, which is three words or, of an
algorithm with more, a chain of bytes with the instant of its reset.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...algorithms import carried
from ...algorithms.base import MOST
from ...keys import Key, encode
from ...limit import Limit
from .engine import Engine
from .places import IS_KEY, IS_OWN, KEYS, LINK, OWN, PAYLOAD
from .registry import Registry

__all__ = ["HITS", "REFUSALS", "Nodes", "ZoneTable", "chunks_of", "prefix_of"]

RULE, A, B, C, HITS, REFUSALS = range(2, 8)
CHAIN, RESET = A, B
"""Where a state of bytes has its first chunk and length, and the instant of its reset."""


def prefix_of(space: str, limit_id: str) -> bytes:
    """What the names of all keys of a limit begin with."""
    first = space.encode("utf-8", "surrogatepass")
    second = limit_id.encode("utf-8", "surrogatepass")
    return b"%d:%b%d:%b" % (len(first), first, len(second), second)


def chunks_of(length: int) -> int:
    """How many chunks hold so many bytes."""
    return -(-length // (PAYLOAD * 8))


class Nodes:
    """The nodes of keys, whichever table they belong to."""

    def __init__(self, engine: Engine, registry: Registry) -> None:
        self.engine = engine
        self.registry = registry

    def rule(self, at: int) -> Any:
        """The rule a node was written under."""
        return self.registry.rule(self.engine.get(at + RULE) & LINK)

    def state(self, at: int, rule: Any) -> Any:
        """A node's state, as its own rule wrote it."""
        engine = self.engine
        if rule.words:
            words = engine.get(at + A), engine.get(at + B), engine.get(at + C)
            if not all(0 <= word <= MOST for word in words):
                raise engine.damaged("a count")
            return words
        chain = engine.get(at + CHAIN)
        try:
            return rule.load(engine.load(chain & LINK, chain >> 32))
        except (ValueError, IndexError, OverflowError):
            raise engine.damaged("a state") from None

    def reset(self, at: int, micros: int) -> int:
        """The instant at which a node is as if never used; -1 if that is not foreseen."""
        rule = self.rule(at)
        if not rule.words:
            return self.engine.get(at + RESET)
        now = micros // rule.tick
        ticks = rule.look(*self.state(at, rule), now, 0)[2]
        return (now + ticks) * rule.tick if ticks >= 0 else -1

    def needs(self, at: int, data: bytes | None) -> int:
        """How many more chunks a state needs, at a node or (0) a new one."""
        needed = 0 if at else 1
        if data is not None:
            length = self.engine.get(at + CHAIN) >> 32 if at and not self.rule(at).words else 0
            needed += max(0, chunks_of(len(data)) - chunks_of(length))
        return needed

    def write(self, at: int, rule: Any, state: Any, data: bytes | None, reset: int) -> None:
        """Let a node hold a state, given as words or as bytes."""
        engine, old = self.engine, self.engine.get(at + RULE)
        chain = 0
        if old & LINK and not self.registry.rule(old & LINK).words:
            chain = engine.get(at + CHAIN) & LINK
        engine.put(at + RULE, (old & ~LINK) | self.registry.number(rule))
        if data is None:
            if chain:
                engine.drop(chain)
            for place in range(3):
                engine.put(at + A + place, state[place])
        else:
            engine.put(at + CHAIN, engine.save(chain, data) | len(data) << 32)
            engine.put(at + RESET, reset)
            engine.put(at + C, 0)

    def text(self, at: int) -> int:
        """The first chunk of a key's text, or 0."""
        return self.engine.get(at + RULE) >> 32 & LINK

    def drop(self, at: int) -> None:
        """Forget a key."""
        engine, chain = self.engine, 0
        if not self.rule(at).words:
            chain = engine.get(at + CHAIN) & LINK
        for first in (chain, self.text(at)):
            if first:
                engine.drop(first)
        engine.remove(at)
        engine.add(KEYS, -1)


class ZoneTable:
    """What a decision asks about the keys of one limit."""

    __slots__ = ("_engine", "_name", "_nodes", "name", "prefix", "rule")

    def __init__(
        self, nodes: Nodes, name: Callable[[bytes], int], of: tuple[str, str], rule: Any
    ) -> None:
        self._nodes = nodes
        self._engine = nodes.engine
        self._name = name
        self.name = of
        self.prefix = prefix_of(*of)
        self.rule = rule
        """The rule of the limit itself; None where that is not known."""

    def handle(self, key: Key) -> int:
        """What a key is known by, everywhere in the zone."""
        return self._name(self.prefix + encode(key))

    def known(self, handle: int) -> bool:
        """Whether a key has a state."""
        return self._engine.find(handle, IS_KEY) != 0

    def own_limit(self, handle: int) -> Limit | None:
        """The limit a key was given, if any."""
        if not self._engine.get(OWN):
            return None
        at = self._engine.find(handle, IS_OWN)
        if not at:
            return None
        limit: Limit = self._nodes.rule(at).limit
        return limit.named(self.name[1])

    def read(self, handle: int, rule: Any, micros: int) -> Any:
        """A key's state as this rule sees it; None if the key was never seen."""
        at = self._engine.find(handle, IS_KEY)
        if not at:
            return None
        old = self._nodes.rule(at)
        state = self._nodes.state(at, old)
        if old is rule or (old.limit.text == rule.limit.text and old.permille == rule.permille):
            return state
        return carried(old, state, rule, micros)

    def rule_at(self, handle: int) -> Any:
        """The rule a key was written under."""
        at = self._engine.find(handle, IS_KEY)
        return self._nodes.rule(at) if at else self.rule
