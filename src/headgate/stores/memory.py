"""MemoryStore: state in this process, exact under threads, bounded, without a thread of its own."""

from __future__ import annotations

import itertools
import os
import weakref
from collections.abc import Iterator, Sequence
from typing import Any

from ..algorithms import Concurrency
from ..clock import Clock, SystemClock
from ..keys import Key
from ..limit import Limit
from .base import Prepared
from .cell import Cell
from .local import HELD, LocalStore
from .quick import Guard, quick_spread, quick_together, quick_words
from .reclaim import Reclaimer
from .reservations import Reservations
from .table import Table, handle_of

__all__ = ["MemoryStore"]

SWEEP = 3
"""How many idle candidates an insert looks at."""

_stores: weakref.WeakSet[MemoryStore] = weakref.WeakSet()


class MemoryStore(LocalStore):
    """A store for one process.

    At most `max_keys` keys are kept. Keys that are as if never used go first, a few at each
    insert; when every key is live, the one that resets soonest is forgotten and counted in
    `evicted`, or, with `on_full="deny"`, the new key is refused.
    """

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
        super().__init__(clock if clock is not None else SystemClock())
        self._lock = Guard()
        self._tokens = itertools.count(1)
        self._tables: dict[tuple[str, str], Table] = {}
        self._own: dict[tuple[str, str], dict[Any, Limit]] = {}
        self._reclaimer = Reclaimer(self._reset_of, max_keys)
        self._reservations = Reservations()
        self.on_full = on_full
        _stores.add(self)

    @property
    def max_keys(self) -> int:
        """How many keys may be kept."""
        return self._reclaimer.most

    @property
    def keys(self) -> int:
        """How many keys are kept."""
        return self._reclaimer.keys

    @property
    def evicted(self) -> int:
        """How many live keys were forgotten because the store was full."""
        return self._reclaimer.evicted

    def quick(self, space: str, limits: Sequence[Limit]) -> Prepared | None:
        """A prepared take of these limits together, if there is a shorter way for it."""
        with self._lock:
            tables = [self._table(space, limit) for limit in limits]
        ways: list[Any] = []
        for table, limit in zip(tables, limits, strict=True):
            if limit.elastic or limit != table.rule.limit or isinstance(table.rule, Concurrency):
                return None
            make = quick_words if table.rule.words else quick_spread
            ways.append(make(self, table, space, limit))
        return ways[0] if len(ways) == 1 else quick_together(ways)

    def deciding(self) -> bool:
        """Whether this thread is in the middle of a decision of this store."""
        return bool(self._lock._is_owned())  # type: ignore[attr-defined] # as threading does

    def token(self) -> int:
        """A new token, larger than every earlier one of this store."""
        return next(self._tokens)

    def close(self) -> None:
        """Forget everything; later calls raise StoreError."""
        with self._lock:
            self.closed = True
            for table in self._tables.values():  # prepared takes hold on to their table
                table.clear()
            self._tables.clear()
            self._own.clear()
            self._reservations.clear()
            self._reclaimer.closed = True  # prepared takes hold on to it
            self._reclaimer = Reclaimer(self._reset_of, self.max_keys)

    # -- where things live

    def _table(self, space: str, limit: Limit) -> Table:
        name = (space, limit.id)
        table = self._tables.get(name)
        if table is None:
            table = self._tables[name] = Table(name, limit, self._own.setdefault(name, {}))
        return table

    def _known_table(self, space: str, limit_id: str) -> Table | None:
        return self._tables.get((space, limit_id))

    def _handle(self, space: str, limit_id: str, key: Key) -> Any:
        return handle_of(key)

    def _get_own(self, space: str, limit_id: str, handle: Any) -> Limit | None:
        return self._own.get((space, limit_id), {}).get(handle)

    def _set_own(self, space: str, limit_id: str, handle: Any, limit: Limit | None) -> None:
        own = self._own.setdefault((space, limit_id), {})
        own.pop(handle, None)
        if limit is not None:
            own[handle] = limit

    def _expired(self) -> Iterator[tuple[Table, Any, int, int]]:
        for name, handle, cost, at in self._reservations.expired(self._now):
            yield self._tables[name], handle, cost, at

    def _keep(self, cell: Cell) -> None:
        table, handle = cell.table, cell.handle
        new = not table.known(handle)
        other = not new and table.rule_at(handle) is not cell.rule
        table.write(handle, cell.rule, cell.state)
        if new:
            self._file(table, handle, self._reset_of(table, handle))
        elif other:
            self._move(table, handle)

    def _keep_less(self, cell: Cell) -> None:
        table, handle = cell.table, cell.handle
        table.write(handle, cell.rule, cell.state)
        self._move(table, handle)

    # -- room

    def _came_in(self, table: Table, key: Any, now: int, reset: int) -> None:
        """A prepared take has entered a key."""
        self._now = now
        self._file(table, key, reset)

    def _file(self, table: Table, key: Any, reset: int) -> None:
        """A key has come in; look whether another can go."""
        self._reclaimer.keys += 1
        self._reclaimer.file(table, key, reset)
        found = self._reclaimer.idle(self._now, SWEEP)
        if found is not None:
            self._drop(*found)

    def _move(self, table: Table, key: Any) -> None:
        """A key's reset may have come forward."""
        move = getattr(self._reclaimer, "move", None)  # compiled, the tables see it themselves
        if move is not None:
            move(table, key, self._reset_of(table, key), self._now)

    def _crowded(self) -> bool:
        return self.keys >= self.max_keys

    def _room(self, cell: Cell) -> bool:
        """Make room for one more key, if it can be had: idle keys first, then by reset."""
        if self.keys < self.max_keys:
            return True
        found = self._reclaimer.idle(self._now, SWEEP)  # also among those that had to be kept
        if found is not None:
            self._drop(*found)
            return True
        soonest = self._reclaimer.soonest(self._now)
        if soonest is None:
            return False
        table, key, reset = soonest
        if reset > self._now:
            if self.on_full == "deny":
                self._reclaimer.file(table, key, reset)
                return False
            self._reclaimer.evicted += 1
        self._drop(table, key)
        return True

    def _until_room(self) -> int:
        found = self._reclaimer.soonest(self._now)
        if found is None:
            return HELD
        self._reclaimer.file(*found)
        return max(1, found[2] - self._now)

    def _drop(self, table: Table, key: Any) -> None:
        self._reservations.drop(table, key)
        table.forget(key)
        self._reclaimer.keys -= 1

    def _reset_of(self, table: Table, key: Any) -> int:
        found = table.reset(key, self._now)
        if found is None:
            return 0
        rule, reset = found
        if reset < 0:
            return -1
        if rule.sticky and reset <= self._now and self.keys < self.max_keys:
            return -2
        return max(1, reset)


def _after_fork() -> None:
    # A thread of the parent may have held a lock at the moment of the fork.
    for store in _stores:
        store._lock._at_fork_reinit()  # type: ignore[attr-defined] # as threading itself does


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
