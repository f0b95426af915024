"""LocalStore: how asks are answered by a store that holds its state within reach.

What differs between such stores is where state, own limits and reservations live, how a call
keeps others out, and how room is made for a new key; those parts are named at the end of the
class. A key is known here by its handle alone, which a table makes of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, TypeAlias, TypeVar

from ..algorithms import REFUSED, rule_of
from ..clock import Clock
from ..decision import Ask, Decision, Seen, check_cost, decided
from ..errors import StoreError
from ..keys import Key
from ..limit import Limit
from .base import Prepared
from .cell import Cell

__all__ = ["HELD", "LocalStore", "Place", "Result", "Undo", "check_op"]

OPS = ("take", "check", "shadow", "charge", "refund", "settle", "release", "renew", "reset")
HELD = 60_000_000
"""How soon to try again when no key can be forgotten, in microseconds."""

Result = TypeVar("Result")
Undo: TypeAlias = list[Callable[[], object]]
Place: TypeAlias = tuple[Any, Any, Any]
"""A table, a handle in it, and the rule that holds for it."""


LONGEST = 1 << 62
"""In microseconds: so much as a time to live means that it has no end."""


class LocalStore:
    """What a store does with asks, over tables of its own making."""

    blocking = False
    shared = False
    """Whether other processes decide on the same state."""

    _lock: AbstractContextManager[Any]
    """Held while this store decides."""
    _reservations: Any

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._micros = clock.micros
        self._put_off: list[Sequence[Ask]] = []
        self._now = 0
        self.closed = False

    @property
    def clock(self) -> Clock:
        """What tells this store the time."""
        return self._clock

    # -- the contract

    def decide(self, asks: Sequence[Ask]) -> list[Decision]:
        """Answer the asks in order; takes pass together or not at all."""
        if self.deciding():
            return self._later(asks)
        return self._alone(self._decide, asks)

    def decide_many(self, groups: Sequence[Sequence[Ask]]) -> list[list[Decision]]:
        """Answer groups of asks, each all-or-nothing by itself."""
        return [self.decide(group) for group in groups]

    def quick(self, space: str, limits: Sequence[Limit]) -> Prepared | None:
        """A prepared take of these limits together, if there is a shorter way for it."""
        return None

    def forecast(self, asks: Sequence[Ask], ahead: int) -> int:
        """Not before how many microseconds the asks can pass behind `ahead` of others."""
        return self._alone(self._forecast, asks, ahead)

    def assign(self, space: str, limit_id: str, key: Key, limit: Limit | None) -> None:
        """Give a key a limit of its own, or take it away."""
        own = None if limit is None else limit.named(limit_id)
        self._alone(self._assign, space, limit_id, key, own)

    def assigned(self, space: str, limit_id: str, key: Key) -> Limit | None:
        """The limit a key was given, if any."""
        return self._alone(self._get_own, space, limit_id, self._handle(space, limit_id, key))

    # -- calls that keep others out

    def _alone(self, call: Callable[..., Result], *arguments: Any) -> Result:
        """What a call returns that happens as a whole, while nobody else decides."""
        now = self._before()
        with self._lock:
            try:
                self._enter(now)
                result = call(*arguments)
                self._commit()
                return result
            finally:
                self._leave()

    def _before(self) -> int:
        """The time, where it is to be read before anybody is kept out; else -1."""
        return -1

    def _commit(self) -> None:
        """What was done stays."""

    def _leave(self) -> None:
        """Let others in; what was not committed is undone."""

    # -- answers, while others are kept out

    def _later(self, asks: Sequence[Ask]) -> list[Decision]:
        """A call from inside a decision of the same thread: a finaliser, or a signal handler.

        What gives back is done by the next decision; nothing can be taken here.
        """
        if any(ask.op not in ("release", "refund", "settle") for ask in asks):
            raise StoreError("a store cannot be asked in the middle of its own decision")
        self._put_off.append(asks)
        return [decided(Seen(ask.limit, 1_000_000), (0, 0, 0, 0), self._now, 0) for ask in asks]

    def _enter(self, now: int) -> None:
        """Begin a decision: what came back in the meantime is given back first."""
        if self.closed:
            raise StoreError("this store is closed")
        self._now = now if now >= 0 else self._micros()
        while self._put_off:
            for ask in self._put_off.pop():
                self._answer(ask, self._place(ask), [])
            self._commit()
        for table, handle, cost, at in self._expired():
            self._refund(self._cell(table, handle, table.rule_at(handle)), cost, at)
            self._commit()

    def _decide(self, asks: Sequence[Ask]) -> list[Decision]:
        places = [self._place(ask) for ask in asks]  # bad input is found before any change
        if any(ask.least >= 0 and ask.op == "take" for ask in asks):
            asks = self._partial(asks, places)
        pairs = list(zip(asks, places, strict=True))
        if len(asks) > 1 and self._crowded() and not self._all_fit(pairs):
            # Nobody is forgotten for a call that will be refused.
            return [self._answer(_looking(ask), place, []) for ask, place in pairs]
        undo: Undo = []
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

    def _forecast(self, asks: Sequence[Ask], ahead: int) -> int:
        cells = [(self._cell(*self._place(ask)), ask.cost) for ask in asks]
        return max(cell.forecast(ahead, cost) for cell, cost in cells)

    def _assign(self, space: str, limit_id: str, key: Key, own: Limit | None) -> None:
        handle = self._handle(space, limit_id, key)
        self._set_own(space, limit_id, handle, own)
        table = self._known_table(space, limit_id)
        if table is not None and table.known(handle):
            # Up to now under the old limit, from now on under the new one.
            new = rule_of(own) if own is not None else table.rule
            for rule in (table.rule_at(handle), new):
                if rule is not None:
                    cell = self._cell(table, handle, rule)
                    cell.settle_up()
                    self._keep_less(cell)

    def _place(self, ask: Ask) -> Place:
        """Where an ask belongs, and under which rule; errors for what cannot be asked."""
        check_op(ask)
        table = self._table(ask.space, ask.limit)
        handle = table.handle(ask.key)
        limit = table.own_limit(handle) or ask.limit
        if limit == table.rule.limit:
            limit = table.rule.limit  # equal limits share one rule
        return table, handle, rule_of(limit, ask.room if limit.elastic else 0)

    def _cell(self, table: Any, handle: Any, rule: Any) -> Cell:
        return Cell(table, handle, rule, self._now)

    def _partial(self, asks: Sequence[Ask], places: Sequence[Place]) -> list[Ask]:
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

    def _all_fit(self, pairs: Sequence[tuple[Ask, Place]]) -> bool:
        return all(
            self._cell(*place).fits(ask.cost, ask.max_wait) != REFUSED
            for ask, place in pairs
            if ask.op == "take" and ask.cost
        )

    def _answer(self, ask: Ask, place: Place, undo: Undo) -> Decision:
        cell = self._cell(*place)
        match ask.op:
            case "take" | "shadow" if ask.cost:
                return self._take(ask, cell, undo)
            case "take" | "shadow" | "check":
                return self._look(ask, cell)
            case "charge":
                self._charge(cell, ask.cost)
            case "refund":
                self._refund(cell, ask.cost, ask.at)
            case "settle":
                taken, at = self._reservations.pop(cell.table, cell.handle, ask.token)
                # If it had expired, nothing is taken any more and all of it is charged.
                self._charge(cell, max(0, ask.cost - taken))
                self._refund(cell, max(0, taken - ask.cost), at)
            case "release":
                return self._permit(cell, cell.release(ask.token))
            case "renew" if cell.permits:
                return self._permit(cell, cell.renew(ask.token, ask.ttl))
            case "renew":
                expires = self._now + ask.ttl
                kept = self._reservations.renew(cell.table, cell.handle, ask.token, expires)
                return cell.decision(0 if kept else REFUSED, 0)
            case "reset" if cell.seen:
                self._reservations.drop(cell.table, cell.handle)
                cell.forget()
                self._keep_less(cell)
        return cell.decision(0, 0)

    def _look(self, ask: Ask, cell: Cell) -> Decision:
        wait = cell.fits(ask.cost, ask.max_wait) if ask.cost else 0
        if wait == REFUSED and self._reap(cell):
            wait = cell.fits(ask.cost, ask.max_wait)
        return cell.decision(wait, ask.cost).glance()

    def _permit(self, cell: Cell, held: bool) -> Decision:
        if held:
            self._keep_less(cell)
        return cell.decision(0 if held else REFUSED, 0)

    def _take(self, ask: Ask, cell: Cell, undo: Undo) -> Decision:
        rule, before = cell.rule, cell.state
        if not cell.seen:
            if not rule.sticky and cell.fits(ask.cost, ask.max_wait) == REFUSED:
                return cell.decision(REFUSED, ask.cost)  # nobody is forgotten for this
            if not self._room(cell):
                full = (REFUSED, 0, max(1, self._until_room() // rule.tick), 0)
                return decided(Seen(rule.limit, rule.per_second), full, cell.now, ask.cost)
        wait = cell.take(ask.cost, ask.max_wait, ask.token, ask.ttl)
        if wait == REFUSED and self._reap(cell):
            wait = cell.take(ask.cost, ask.max_wait, ask.token, ask.ttl)
        if wait == REFUSED:
            if rule.words:
                changed = cell.state != before or (rule.sticky and not cell.seen)
            else:
                changed = cell.seen  # it has seen the time, before which it does not go back
            if changed:
                self._keep(cell)
            return cell.decision(wait, ask.cost)
        self._keep(cell)
        if rule.words:
            undo.append(lambda: self._restore(cell, before))
        else:
            undo.append(lambda: self._untake(cell, ask))
        if ask.token and ask.ttl and not cell.permits:
            at = (cell.now + wait) * rule.tick
            held = (cell.table, cell.handle, ask.token)
            self._reservations.add(*held, ask.cost, at, self._now + ask.ttl)
            undo.append(lambda: self._reservations.pop(*held))
        return cell.decision(wait, ask.cost)

    def _restore(self, cell: Cell, before: Any) -> None:
        if cell.table.known(cell.handle):  # unless a later ask of the same call needed the room
            cell.state = before
            self._keep_less(cell)

    def _untake(self, cell: Cell, ask: Ask) -> None:
        cell.untake(ask.cost, ask.token)
        if cell.table.known(cell.handle):
            self._keep_less(cell)

    def _charge(self, cell: Cell, cost: int) -> None:
        if cost and (cell.seen or self._room(cell)):
            cell.charge(cost)
            self._keep(cell)

    def _refund(self, cell: Cell, cost: int, at: int) -> None:
        if cost and cell.seen:
            cell.refund(cost, at)
            self._keep_less(cell)

    # -- what a store of this kind says for itself

    def deciding(self) -> bool:
        """Whether this thread is in the middle of a decision of this store."""
        raise NotImplementedError

    def token(self) -> int:
        """A new token, larger than every earlier one of this store."""
        raise NotImplementedError

    def _table(self, space: str, limit: Limit) -> Any:
        """The table of a limit in a namespace."""
        raise NotImplementedError

    def _known_table(self, space: str, limit_id: str) -> Any:
        """A table whose limit may not be known here; None if there is none."""
        raise NotImplementedError

    def _handle(self, space: str, limit_id: str, key: Key) -> Any:
        """What a key is known by."""
        raise NotImplementedError

    def _get_own(self, space: str, limit_id: str, handle: Any) -> Limit | None:
        """A key's own limit."""
        raise NotImplementedError

    def _set_own(self, space: str, limit_id: str, handle: Any, limit: Limit | None) -> None:
        """Note a key's own limit, or forget it."""
        raise NotImplementedError

    def _keep(self, cell: Cell) -> None:
        """Write a cell's state where it is kept."""
        raise NotImplementedError

    def _keep_less(self, cell: Cell) -> None:
        """The same for a known key that may reset earlier now, as something came back."""
        self._keep(cell)

    def _reap(self, cell: Cell) -> bool:
        """Drop permits whose holders are known to be gone; whether there were any."""
        return False

    def _expired(self) -> Iterator[tuple[Any, Any, int, int]]:
        """Take out the reservations that have expired: table, handle, cost, instant."""
        raise NotImplementedError

    def _crowded(self) -> bool:
        """Whether a new key may cost an old one its place."""
        raise NotImplementedError

    def _room(self, cell: Cell) -> bool:
        """Make room for a new key, if it can be had."""
        raise NotImplementedError

    def _until_room(self) -> int:
        """In how many microseconds there may be room, when there is none."""
        return HELD


def check_op(ask: Ask) -> None:
    """Errors for what no store can be asked."""
    if ask.op not in OPS:
        raise ValueError(f"unknown op {ask.op!r}; known are {', '.join(OPS)}")
    check_cost(ask.cost)
    if not (0 <= ask.ttl <= LONGEST and -LONGEST < ask.at < LONGEST and ask.max_wait >= 0):
        raise ValueError(f"times of an ask are whole microseconds up to 2**62, not {ask!r}")


def _looking(ask: Ask) -> Ask:
    return ask._replace(op="check") if ask.op in ("take", "shadow") else ask
