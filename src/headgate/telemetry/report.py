"""Report: what all threads and workers have counted, added up."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from .buckets import LATENCIES, WAITS
from .counts import CELLS, LATENCY_SUM, PERMITS, RESULTS, WAIT_SUM, WAITED
from .policies import GAUGES as STANDING
from .policies import ROOM, told
from .rolling import summary

if TYPE_CHECKING:
    from .counts import Counts
    from .shared import Area
    from .slots import Slot

__all__ = ["ERRORS", "Totals", "gathered", "is_gauge"]

# The cells of a process.
ERRORS, UPDATES, FAILURES, OPENED, LOADED_AT, AWAY = range(6)
GAUGES = {"r": (PERMITS,), "s": (), "p": (LOADED_AT, AWAY), "g": STANDING}
"""Cells that say how things are, not how often: those of a worker that is gone mean nothing."""


class Totals:
    """Sums, as cells."""

    def __init__(self) -> None:
        self.rules: dict[str, list[int]] = {"": [0] * CELLS}
        """By rule; "" is all calls, each counted once."""
        self.store = [0] * CELLS
        self.process = [0] * CELLS
        self.loaded_at = 0.0
        """When the rules were loaded: of several workers, the one that has the oldest."""
        self.workers = 0
        self.policies: dict[str, list[int]] = {}
        """By policy."""
        self.room: float | None = None
        """How much room elastic limits have: of several workers, the one that has least."""

    def add(self, rows: Iterable[tuple[str, list[int]]], alive: bool = True) -> None:
        """Add the rows of a worker."""
        for name, cells in rows:
            kind, _, rule = name.partition(":")
            if kind == "p" and alive and cells[LOADED_AT]:
                loaded = cells[LOADED_AT] / 1e6
                self.loaded_at = min(self.loaded_at, loaded) if self.loaded_at else loaded
            if not alive:
                for gauge in GAUGES.get(kind, ()):
                    cells[gauge] = 0
            if kind == "r":
                into = self.rules.setdefault(rule, [0] * CELLS)
            elif kind == "g":
                into = self.policies.setdefault(rule, [0] * CELLS)
                if cells[ROOM]:
                    room = (cells[ROOM] - 1) / 1000
                    self.room = room if self.room is None else min(room, self.room)
            else:
                into = self.store if kind == "s" else self.process
            for place, count in enumerate(cells[:CELLS]):
                if count:
                    into[place] += count

    def as_dict(self) -> dict[str, Any]:
        """The same for people and JSON."""
        return {
            "workers": self.workers,
            "calls": _results(self.rules[""]),
            "rules": {
                name: {
                    **_results(cells),
                    "permits": max(0, cells[PERMITS]),
                    "wait": summary(cells[WAITED : WAIT_SUM + 1], WAITS),
                }
                for name, cells in sorted(self.rules.items())
                if name
            },
            "store": {
                **summary(self.store[: LATENCY_SUM + 1], LATENCIES),
                "failures": self.process[FAILURES],
                "breaker_opened": self.process[OPENED],
                "away": self.process[AWAY],
            },
            "reload": {
                "errors": self.process[ERRORS],
                "updates": self.process[UPDATES],
                "loaded_at": self.loaded_at or None,
            },
            **told(self.policies, self.room),
        }


def gathered(counts: Counts, area: Area | None, slot: Slot | None) -> Totals:
    """The sums of all workers, or of this one if nothing is shared."""
    totals = Totals()
    if area is not None:
        for each in area.all():
            alive = area.alive(each.number)
            totals.workers += alive
            totals.add(each.rows(), alive)
    if slot is None:
        totals.workers += 1
    totals.add(counts.own())
    return totals


def status_of(gates: Iterable[Any]) -> list[int]:
    """What gates and their stores say of themselves, as the cells of a process."""
    cells = [0] * (AWAY + 1)
    for gate in gates:
        status = gate.status()
        cells[ERRORS] += int(status.get("errors") or 0)
        cells[UPDATES] += int(status.get("updates") or 0)
        loaded = round((status.get("loaded_at") or 0.0) * 1e6)
        if loaded:
            cells[LOADED_AT] = min(cells[LOADED_AT], loaded) if cells[LOADED_AT] else loaded
        store = gate.store
        while store is not None and not hasattr(store, "degraded_decisions"):
            store = getattr(store, "store", None)  # a tier in front of another
        if store is not None:
            cells[FAILURES] += store.failures
            cells[OPENED] += store.opened
            cells[AWAY] += bool(store.degraded)
    return cells


def is_gauge(place: int) -> bool:
    """Whether a cell of a process says how things are."""
    return place in GAUGES["p"]


def _results(cells: list[int]) -> dict[str, int]:
    return {result: cells[place] for place, result in enumerate(RESULTS)}
