"""ZoneAnswers: where a zone's state, own limits and reservations live, and how room is made."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ...algorithms import REFUSED, Concurrency, rule_of
from ...clock import Clock
from ...decision import Ask, Decision, Seen, decided
from ...errors import StoreError
from ...keys import Key, canonical, encode
from ...limit import Limit
from ..cell import Cell
from ..local import LocalStore, Place, Result, check_op
from .clock import ZoneClock
from .engine import Full
from .places import DENIED, IS_KEY, IS_OWN, KEYS, LATEST, OWN
from .report import text_of
from .reservations import ZoneReservations
from .room import Room
from .table import HITS, REFUSALS, RULE, ZoneTable, chunks_of
from .zone import Zone

__all__ = ["ZoneAnswers"]

NARROW = 64
"""With fewer free chunks than this, a new key may cost an old one its place."""


class ZoneAnswers(LocalStore):
    """A store over a zone."""

    shared = True

    def __init__(self, zone: Zone, clock: Clock | None, on_full: str, patience: float) -> None:
        super().__init__(clock if clock is not None else ZoneClock(zone.offset))
        self._timed = clock is None
        self._zone = zone
        self._engine = zone.engine
        self._nodes = zone.nodes
        self._patience = patience
        self._evict = on_full == "evict"
        self._keeps = zone.keeps
        self._rooms = Room(zone.nodes, zone.holders)
        self._reservations = ZoneReservations(zone.engine)
        self._tables: dict[tuple[str, str], ZoneTable] = {}
        self._any = ZoneTable(zone.nodes, zone.name, ("", ""), None)
        self._texts: dict[int, bytes] = {}
        # Without a frame of ours in between, where an interrupt could come.
        self._leave = zone.lock.leave  # type: ignore[method-assign]

    # -- keeping others out

    @property
    def _lock(self) -> Any:  # type: ignore[override] # another one after a fork
        return self._zone.local

    def deciding(self) -> bool:
        """Whether this thread is in the middle of a decision of this zone."""
        return bool(self._zone.local._is_owned())  # type: ignore[attr-defined] # as threading does

    def decide(self, asks: Sequence[Ask]) -> list[Decision]:
        """Answer the asks in order; takes pass together or not at all."""
        self._check(asks)
        return super().decide(asks)

    def _alone(self, call: Callable[..., Result], *arguments: Any) -> Result:
        try:
            return super()._alone(call, *arguments)
        except (ArithmeticError, LookupError, ValueError) as error:
            # Calls are checked before they come here: it is the zone that makes no sense.
            raise self._engine.damaged(str(error)) from error

    def _before(self) -> int:
        if self.deciding():
            raise StoreError("a store cannot be asked in the middle of its own decision")
        # No clock of somebody else's is read while others are kept out.
        return -1 if self._timed else self._micros()

    def _enter(self, now: int) -> None:
        self._open()
        self._zone.lock.enter(self._patience)
        self._zone.registry.forget()
        self._texts.clear()
        super()._enter(now)
        if self._timed:
            self._engine.poke(LATEST, self._now)

    def _commit(self) -> None:
        self._engine.commit()
        self._zone.registry.commit()

    def _check(self, asks: Sequence[Ask]) -> None:
        """Errors for what cannot be asked."""
        for ask in asks:
            check_op(ask)
            canonical(ask.key)
            if not 0 <= ask.token < 1 << 63:
                raise ValueError(f"a token is an int from 0 to 2**63 - 1, not {ask.token!r}")

    def _open(self) -> None:
        if self.closed or self._zone.closed:
            raise StoreError("this store is closed")

    def _word(self, place: int) -> int:
        self._open()
        return self._engine.get(place)

    # -- answers

    def _decide(self, asks: Sequence[Ask]) -> list[Decision]:
        try:
            decisions = super()._decide(asks)
        except Full:
            self._engine.rollback()
            self._zone.registry.forget()
            self._engine.add(DENIED, 1)
            decisions = [self._turned_away(ask) for ask in asks]
        if self._keeps:
            for ask, decision in zip(asks, decisions, strict=True):
                if ask.op in ("take", "shadow"):
                    self._count(ask, decision)
        return decisions

    def _turned_away(self, ask: Ask) -> Decision:
        """The answer where the zone has no room for the state that would follow."""
        cell = self._cell(*self._place(ask))
        if ask.op not in ("take", "shadow") or not ask.cost:
            return cell.decision(0, 0)
        wait = max(1, self._until_room() // cell.rule.tick)
        seen = Seen(cell.rule.limit, cell.rule.per_second)
        return decided(seen, (REFUSED, 0, wait, 0), cell.now, ask.cost)

    def _count(self, ask: Ask, decision: Decision) -> None:
        at = self._engine.find(self._table(ask.space, ask.limit).handle(ask.key), IS_KEY)
        if at and (decision.granted or not decision.allowed):
            place = at + (HITS if decision.allowed else REFUSALS)
            self._engine.poke(place, self._engine.get(place) + 1)

    def _place(self, ask: Ask) -> Place:
        place = super()._place(ask)
        if self._keeps:
            self._texts[place[1]] = text_of(ask.space, ask.limit.id, encode(ask.key))
        return place

    def _cell(self, table: Any, handle: Any, rule: Any) -> Cell:
        cell = super()._cell(table, handle, rule)
        if isinstance(rule, Concurrency):
            cell.state.owner = self._zone.holders.me()
        return cell

    def _reap(self, cell: Cell) -> bool:
        if not cell.permits:
            return False
        holders, gone = cell.state.holders, self._zone.holders.gone
        lost = [token for token, holder in holders.items() if gone(holder)]
        for token in lost:
            cell.release(token)
        if lost:
            self._keep(cell)
        return bool(lost)

    # -- where things live

    def _table(self, space: str, limit: Limit) -> ZoneTable:
        name = (space, limit.id)
        table = self._tables.get(name)
        if table is None:
            table = ZoneTable(self._nodes, self._zone.name, name, rule_of(limit))
            self._tables[name] = table
        return table

    def _known_table(self, space: str, limit_id: str) -> ZoneTable:
        return self._tables.get((space, limit_id), self._any)

    def _handle(self, space: str, limit_id: str, key: Key) -> int:
        return ZoneTable(self._nodes, self._zone.name, (space, limit_id), None).handle(key)

    def _get_own(self, space: str, limit_id: str, handle: int) -> Limit | None:
        table = ZoneTable(self._nodes, self._zone.name, (space, limit_id), None)
        return table.own_limit(handle)

    def _set_own(self, space: str, limit_id: str, handle: int, limit: Limit | None) -> None:
        engine = self._engine
        at = engine.find(handle, IS_OWN)
        if limit is None:
            if at:
                engine.remove(at)
                engine.add(OWN, -1)
            return
        number = self._zone.registry.number(rule_of(limit))
        if not at:
            self._make(1, 0)
            at = engine.insert(handle, IS_OWN)
            engine.add(OWN, 1)
        engine.put(at + RULE, number)

    def _expired(self) -> Iterator[tuple[ZoneTable, int, int, int]]:
        for handle, cost, at in self._reservations.expired(self._now):
            if self._any.known(handle):
                yield self._any, handle, cost, at

    def _keep(self, cell: Cell) -> None:
        engine, rule, handle = self._engine, cell.rule, cell.handle
        data, reset = None, 0
        if not rule.words:
            ticks = rule.read(cell.state, cell.now, 0)[2]
            reset = (cell.now + ticks) * rule.tick if ticks >= 0 else -1
            data = rule.dump(cell.state)
        at = engine.find(handle, IS_KEY)
        needed = self._nodes.needs(at, data)
        if not at:
            text = self._texts.get(handle, b"")
            self._make(needed + chunks_of(len(text)), 0)
            at = engine.insert(handle, IS_KEY)
            engine.put(at + RULE, engine.save(0, text) << 32)
            engine.add(KEYS, 1)
            self._nodes.write(at, rule, cell.state, data, reset)
            self._rooms.sweep(self._now)
        else:
            if needed:
                self._make(needed, at)
            self._nodes.write(at, rule, cell.state, data, reset)

    # -- room

    def _make(self, chunks: int, keep: int) -> None:
        if not self._rooms.make(chunks, self._now, evict=self._evict, keep=keep):
            raise Full(f"the zone {self._zone.path} is full")

    def _crowded(self) -> bool:
        return self._engine.free() < NARROW

    def _room(self, cell: Cell) -> bool:
        needed = 1 + (not cell.rule.words) + chunks_of(len(self._texts.get(cell.handle, b"")))
        if self._rooms.make(needed, self._now, evict=self._evict):
            return True
        self._engine.add(DENIED, 1)
        return False

    def _until_room(self) -> int:
        return self._rooms.until
