"""Counts: who counts what, without a lock.

Every thread counts in cells of its own, so an increment is never lost and nobody waits; whoever
reads adds them up. When a thread ends, the next one goes on with its cells: there are never
more than there were threads at once. Cells are a list, or a row of a file that processes share.
"""

from __future__ import annotations

import threading
import weakref
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, MutableSequence, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from .buckets import LATENCIES, WAITS, nanos
from .sketch import Sketch

if TYPE_CHECKING:
    from .shared import Slot

__all__ = [
    "ALLOWED", "CELLS", "DEGRADED", "DENIED", "EXEMPT", "GIVEN", "LATENCY_SUM", "PERMITS",
    "REFUSED", "RESULTS", "SEEN", "SHADOWED", "UNMATCHED", "WAITED", "WAIT_SUM", "Counts", "Shard",
    "Tally", "keys_of",
]  # fmt: skip

RESULTS = ("allowed", "refused", "shadowed", "exempt", "denied", "degraded", "unmatched")
ALLOWED, REFUSED, SHADOWED, EXEMPT, DENIED, DEGRADED, UNMATCHED = range(len(RESULTS))
PERMITS = len(RESULTS)
"""How many are in use now; the cell behind it says how many were ever given out."""
GIVEN = PERMITS + 1
WAITED = GIVEN + 1
"""Where the buckets of waiting begin, then comes the sum in nanoseconds."""
WAIT_SUM = WAITED + len(WAITS) + 1
LATENCY_SUM = len(LATENCIES) + 1
"""In the cells of a store: behind the buckets, the sum in nanoseconds."""
CELLS = max(WAIT_SUM, LATENCY_SUM, 25) + 1
"""Of policies there are 26: see there. A row of a shared file holds 32."""
MOST = 4096
"""So many rules are counted apart in each thread; any further ones together."""
OTHERS = "(others)"
SEEN = 64
"""So many calls are remembered before their keys are counted."""

_LATENCIES, _WAITS = nanos(LATENCIES), nanos(WAITS)

Cells: TypeAlias = "MutableSequence[int] | memoryview[int]"


class Tally:
    """What one thread has counted of one rule."""

    __slots__ = ("cells", "keys", "refused")

    def __init__(self, cells: Cells, size: int) -> None:
        self.cells: Any = cells
        self.keys = Sketch(size)
        self.refused = Sketch(size)

    def waited(self, took: int) -> None:
        """A call stood in line for so many nanoseconds."""
        self.cells[WAITED + bisect_left(_WAITS, took)] += 1
        self.cells[WAIT_SUM] += took


class Shard(dict[str, Tally]):
    """What one thread has counted, by rule; "" is all calls together."""

    __slots__ = ("_make", "holder", "seen", "store")

    def __init__(self, make: Callable[[str], Tally], store: Cells) -> None:
        super().__init__()
        self._make = make
        self.store = store
        self.holder: Callable[[], object | None] = lambda: None
        self.seen: list[Sequence[Any]] = []
        """The rules and keys of the last calls that passed, to be counted together."""

    def sort_out(self) -> None:
        """Count the keys of the calls that were seen."""
        seen, self.seen = self.seen, []
        for rule, keys in keys_of(seen).items():
            self[rule].keys.add(keys)

    def __missing__(self, rule: str) -> Tally:
        if len(self) >= MOST and rule != OTHERS:
            return self[OTHERS]
        made = self[rule] = self._make(rule)
        return made

    def took(self, nanos: int) -> None:
        """The store took so many nanoseconds."""
        store: Any = self.store
        store[bisect_left(_LATENCIES, nanos)] += 1
        store[LATENCY_SUM] += nanos


def keys_of(seen: Iterable[Sequence[Any]]) -> dict[str, list[Any]]:
    """The keys of calls, by rule."""
    found: dict[str, list[Any]] = {}
    for bounds in seen:
        for rule, key, _, _ in bounds:
            if key:
                found.setdefault(rule.name, []).append(key)
    return found


class _Holder:
    """Lives as long as its thread does, of whatever kind that is."""

    __slots__ = ("__weakref__",)


class Counts:
    """The cells of all threads of this process."""

    def __init__(self, size: int, slot: Slot | None) -> None:
        self._size = size
        self._slot = slot
        self._shards: list[Shard] = []
        self._alone: list[tuple[str, list[int]]] = []
        """Cells for which the shared file had no row, with their names."""
        self.local = threading.local()
        # A finaliser may count while this thread makes a shard.
        self._lock = threading.RLock()

    def shard(self) -> Shard:
        """The shard of this thread."""
        with self._lock:
            for found in self._shards:
                if found.holder() is None:
                    break
            else:
                found = Shard(self._tally, self.cells("s:"))
                self._shards.append(found)
            self.local.holder = holder = _Holder()
            found.holder = weakref.ref(holder)
        self.local.shard = found
        return found

    def _tally(self, rule: str) -> Tally:
        return Tally(self.cells(f"r:{rule}"), self._size)

    def cells(self, name: str) -> Cells:
        """New cells under a name, in the shared file if it has a row left."""
        with self._lock:
            if self._slot is not None:
                row = self._slot.row(name)
                if row is not None:
                    return row
            cells = [0] * CELLS
            self._alone.append((name, cells))
            return cells

    @property
    def unshared(self) -> int:
        """How many rows the shared file had no room for."""
        return len(self._alone) if self._slot is not None else 0

    def own(self) -> Iterator[tuple[str, list[int]]]:
        """Name and cells of everything that was counted in this process and is not shared."""
        with self._lock:
            alone = list(self._alone)
        for name, cells in alone:
            yield name, list(cells)

    def mine(self) -> Iterator[tuple[str, list[int]]]:
        """Name and cells of everything that was counted by this process."""
        if self._slot is not None:
            yield from self._slot.counted()
        yield from self.own()

    def sketches(self, rule: str | None, refused: bool) -> dict[str, list[Sketch]]:
        """The sketches of all threads, by rule."""
        found: dict[str, list[Sketch]] = {}
        with self._lock:
            shards = list(self._shards)
        for shard in shards:
            tallies: list[tuple[str, Any]] = list(shard.copy().items())
            seen = {} if refused else keys_of(list(shard.seen))
            for name, tally in tallies:
                if name and (rule is None or name == rule):
                    sketch = tally.refused if refused else tally.keys
                    if name in seen:
                        sketch = sketch.with_more(seen[name])
                    found.setdefault(name, []).append(sketch)
        return found
