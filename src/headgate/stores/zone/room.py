"""Room: which key a zone forgets when it needs a chunk.

A hand goes round over the chunks. At each new key it looks at a few, and frees the keys that are
as if never used. When nothing is free it goes further, and if it meets no such key the one that
resets soonest of those it has seen has to go, or the newcomer is turned away. Keys with a permit
that is held or a reservation that is open stay.
"""

from __future__ import annotations

from ...algorithms import Concurrency
from .holders import Holders
from .places import BUMP, COUNT, EVICTED, HAND, IS_KEY
from .table import Nodes

__all__ = ["HELD", "Room"]

STEPS = 8
"""How many chunks are looked at for each new key."""
FURTHER = 64
"""How many are, when nothing is free."""
LIVE = 16
"""How many live keys are compared at most."""
FURTHEST = 4096
"""How many chunks are passed over in search of a single key."""
HELD = 60_000_000
"""How soon to try again when no key can be forgotten, in microseconds."""


class Room:
    """Makes room."""

    def __init__(self, nodes: Nodes, holders: Holders) -> None:
        self._nodes = nodes
        self._engine = nodes.engine
        self._holders = holders
        self.until = HELD
        """In how many microseconds there may be room, when there was none."""

    def sweep(self, now: int) -> None:
        """Look at a few chunks, and free the keys that are as if never used."""
        for _ in range(STEPS):
            at = self._step()
            if at and self._idle(at, now, full=False):
                self._nodes.drop(at)

    def make(self, chunks: int, now: int, *, evict: bool, keep: int = 0) -> bool:
        """Make so many chunks free, but not the key at `keep`; whether that was possible."""
        while self._engine.free() < chunks:
            found, reset = self._search(chunks, now, keep)
            if self._engine.free() >= chunks:
                break
            self.until = max(1, reset - now) if found else HELD
            if not found or not evict:
                return False
            self._engine.add(EVICTED, 1)
            self._nodes.drop(found)
        return True

    def _search(self, chunks: int, now: int, keep: int) -> tuple[int, int]:
        """Free idle keys until there are so many chunks; else the key that resets soonest."""
        found = soonest = live = 0
        for step in range(FURTHEST):
            if found and (step >= FURTHER or live >= LIVE):
                break
            at = self._step()
            if not at or at == keep:
                continue
            if self._idle(at, now, full=True):
                self._nodes.drop(at)
                if self._engine.free() >= chunks:
                    break
                continue
            reset = self._nodes.reset(at, now)
            if reset >= 0 and not self._engine.get(at) >> COUNT:
                live += 1
                if not found or reset < soonest:
                    found, soonest = at, reset
        return found, soonest

    def _step(self) -> int:
        """Move the hand on; the key at its place, or 0."""
        engine = self._engine
        hand = engine.get(HAND) + 1
        if not 0 < hand < engine.get(BUMP):
            hand = 1
        engine.poke(HAND, hand)  # wherever it is, it goes on: nothing to undo
        at = engine.at(hand)
        return at if engine.kind(at) == IS_KEY else 0

    def _idle(self, at: int, now: int, *, full: bool) -> bool:
        """Whether a key may be forgotten as if it had never been used."""
        if self._engine.get(at) >> COUNT:
            return False
        rule = self._nodes.rule(at)
        reset = self._nodes.reset(at, now)
        if reset < 0 and full and isinstance(rule, Concurrency):
            permits = self._nodes.state(at, rule)
            return all(
                self._holders.gone(permits.holders.get(token, 0)) or 0 < expires * rule.tick <= now
                for token, (_, expires) in permits.held.items()
            )
        return 0 <= reset <= now and (full or not rule.sticky)
