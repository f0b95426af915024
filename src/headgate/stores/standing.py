"""Standing in: the answers given in place of a store that could not answer.

What takes is decided by the ask's `on_error`: let pass, refused, or counted in this process
against the node's share. What gives back is kept, as far as it may be sent later, and answered
as done.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..clock import Clock
from ..decision import Ask, Decision, Seen, decided
from ..limit import Limit
from .local import check_op
from .memory import MemoryStore
from .owed import MOST, Owed, Place, place_of

__all__ = ["CHOICES", "StandIns", "checked"]

CHOICES = ("allow", "deny", "local")
RETRY = 1_000_000
"""After how many microseconds somebody who was denied may ask again."""
TAKING = ("take", "shadow", "check")


def checked(on_error: str) -> str:
    """A choice that there is, or an error that names them."""
    if on_error not in CHOICES:
        raise ValueError(f"on_error is one of {', '.join(CHOICES)}, not {on_error!r}")
    return on_error


class StandIns:
    """What one process answers in place of its store."""

    def __init__(self, clock: Clock, on_error: str, nodes: int) -> None:
        self._clock = clock
        self._on_error = on_error
        self._nodes = nodes
        self._shares: dict[Limit, Limit] = {}
        self._local: MemoryStore | None = None
        self._began = 0
        self.tokens: dict[Place, tuple[str, bool]] = {}
        """Who granted the permits and reservations that the store did not answer for, and
        whether it may have granted them as well."""
        self.owed = Owed()
        """What the store is still to be told."""

    def answers(self, asks: Sequence[Ask], sent: bool) -> list[Decision]:
        """Answer the asks; `sent` says that the store may have carried them out."""
        for ask in asks:  # bad input is found before any change
            check_op(ask)
        chosen = [ask.on_error or self._on_error for ask in asks]
        takes = [(number, ask) for number, ask in enumerate(asks) if ask.op == "take" and ask.cost]
        refused = any(chosen[number] == "deny" for number, _ in takes)
        found: dict[int, Decision] = {}
        local = [n for n, ask in enumerate(asks) if chosen[n] == "local" and ask.op in TAKING]
        if local:
            mine = [self._scaled(asks[number]) for number in local]
            if refused:  # nothing is taken for a call that will be refused
                mine = [ask._replace(op="check", least=-1) for ask in mine]
            for number, decision in zip(local, self._memory().decide(mine), strict=True):
                found[number] = decision.in_place(asks[number].limit)
        refused = refused or any(
            number in found and not found[number].allowed for number, _ in takes
        )
        for number, ask in enumerate(asks):
            if number not in found:
                if ask.op in TAKING:
                    found[number] = self._simple(ask, chosen[number], refused)
                else:
                    found[number] = self._given_back(ask, chosen[number], sent)
        for number, ask in enumerate(asks):
            if ask.token and ask.cost and ask.op in ("take", "shadow"):
                if found[number].granted:
                    self._remember(ask, chosen[number], sent)
                elif sent:  # whoever asked is refused, but the store may have granted it
                    self._undo(ask)
        return [found[number] for number in range(len(asks))]

    def forget(self) -> None:
        """The store is back: what was counted here is its business again."""
        self._local = None

    def is_ours(self, ask: Ask) -> bool:
        """Whether an ask is about a permit that was granted here."""
        return ask.op in ("release", "renew") and place_of(ask) in self.tokens

    def ours(self, ask: Ask) -> tuple[Decision, bool]:
        """Answer an ask about such a permit, and whether the store is to hear of it too."""
        granted, sent = self.tokens.get(place_of(ask), ("", False))
        if ask.op == "release":
            self.tokens.pop(place_of(ask), None)
        if granted == "local" and self._local is not None:
            return self._here(ask), sent
        return self._done(ask), sent

    # -- one ask

    def _simple(self, ask: Ask, choice: str, refused: bool) -> Decision:
        if choice == "deny" and ask.cost:
            return self._made(ask, (-1, 0, RETRY, RETRY), ask.cost)
        passed = self._made(ask, (0, ask.limit.capacity, 0, 0), ask.cost)
        return passed.glance() if refused or ask.op == "check" or not ask.cost else passed

    def _given_back(self, ask: Ask, choice: str, sent: bool) -> Decision:
        if ask.op in ("release", "renew", "settle") and place_of(ask) in self.tokens:
            decision, known = self.ours(ask)
            if known and ask.op != "renew":
                self._undo(ask)
            return decision
        if ask.op == "renew":
            return self._done(ask)  # whether it is still held, only the store knows
        if ask.op == "refund" and choice == "local" and self._local and ask.at >= self._began:
            return self._here(ask)  # it was taken here
        self.owed.keep(ask, sent=sent)
        if choice == "local" and ask.op in ("charge", "reset"):
            return self._here(ask)
        return self._done(ask)

    def _here(self, ask: Ask) -> Decision:
        return self._memory().decide([self._scaled(ask)])[0].in_place(ask.limit)

    def _done(self, ask: Ask) -> Decision:
        return self._made(ask, (0, ask.limit.capacity, 0, 0), 0)

    def _made(self, ask: Ask, outcome: tuple[int, int, int, int], cost: int) -> Decision:
        source = Seen(ask.limit, 1_000_000, degraded=True)
        return decided(source, outcome, self._clock.micros(), cost)

    # -- the store of this process

    def _memory(self) -> MemoryStore:
        local = self._local
        if local is None:
            self._began = self._clock.micros()
            local = self._local = MemoryStore(clock=self._clock)
        return local

    def _scaled(self, ask: Ask) -> Ask:
        share = self._shares.get(ask.limit)
        if share is None:
            if len(self._shares) >= 1024:
                self._shares.clear()  # many limits of many keys: cheap to make again
            share = self._shares[ask.limit] = ask.limit.share(self._nodes)
        return ask._replace(limit=share)

    def _remember(self, ask: Ask, choice: str, sent: bool) -> None:
        self.tokens[place_of(ask)] = choice, sent
        while len(self.tokens) > MOST:
            self.tokens.pop(next(iter(self.tokens)), None)

    def _undo(self, ask: Ask) -> None:
        """See to it that the store, should it have granted it, does not count it for long."""
        if ask.limit.algorithm == "concurrency":
            self.owed.keep(ask._replace(op="release"), sent=True)
        elif ask.ttl or ask.op == "settle":  # a reservation
            self.owed.keep(ask._replace(op="settle", cost=0), sent=True)
