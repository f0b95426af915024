"""Policies: what breakers, bulkheads and the like did, counted; and how they stand now.

All of it is rare beside calls, so a lock keeps the counts; how things stand is asked of the gates
when somebody looks. With several workers the numbers are sums: of a policy's breakers, one for
each worker and key, so many are open.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from .counts import CELLS
from .events import Event

if TYPE_CHECKING:
    from .counts import Counts
    from .prometheus import Family, Sample

__all__ = ["GAUGES", "ROOM", "PolicyCounts", "families_of", "told"]

PARTS = ("breaker", "bulkhead", "adaptive", "system")
STATES = ("closed", "open", "half_open", "recovering", "forced_open", "disabled", "metrics_only")
# The cells of a policy: refusals by part, changes by the new state, and so on.
REFUSALS = 0
CHANGES = REFUSALS + len(PARTS)
TIMEOUTS = CHANGES + len(STATES)
RETRIES, FALLBACKS = TIMEOUTS + 1, TIMEOUTS + 2
STANDING = FALLBACKS + 1
"""How many breakers are in each state now."""
LIMIT = STANDING + len(STATES)
ROOM = LIMIT + 1
"""Thousandths of the room of elastic limits, and one more; 0 if nobody knows."""
IN_FLIGHT = ROOM + 1
GAUGES = tuple(range(STANDING, IN_FLIGHT + 1))
LAST_GOOD, COLLAPSED = IN_FLIGHT + 1, IN_FLIGHT + 2
assert COLLAPSED < CELLS
COUNTED = {
    "time_limit.exceeded": TIMEOUTS, "retry.again": RETRIES, "fallback": FALLBACKS,
    "last_good": LAST_GOOD, "collapsed": COLLAPSED,
}  # fmt: skip


class PolicyCounts:
    """What the policies of this process did."""

    def __init__(self, counts: Counts, most: int) -> None:
        self._counts = counts
        self._rows: dict[str, Any] = {}
        # A finaliser may count while this thread does.
        self._lock = threading.RLock()
        self.changes: deque[Event] = deque(maxlen=most)
        """The last changes of state."""

    def refused(self, policy: str, part: str) -> None:
        """A policy refused a call."""
        self._add(policy, REFUSALS + PARTS.index(part))

    def noticed(self, notice: Any, at: float) -> None:
        """Something happened inside."""
        kind, name, values = notice.kind, notice.name, notice.values
        place = COUNTED.get(kind)
        if place is not None:
            self._add(name, place)
        elif kind == "breaker.state":
            state = values["state"]
            self._add(name, CHANGES + STATES.index(state))
            self.changes.append(Event(at, name, state, "", values["why"], None))
        elif kind in ("system.strained", "system.relieved"):
            word = kind.partition(".")[2]
            why = f"pressure {values['pressure']:.2f}"
            self.changes.append(Event(at, name, word, "", why, None))

    def look(self, gates: Iterable[Any]) -> None:
        """Note how things stand."""
        found: dict[str, Counter[int]] = {}
        for gate in gates:
            standing = gate.policies() if hasattr(gate, "policies") else {}
            for name, told in standing.items():
                cells = found.setdefault(name, Counter())
                for state, count in told.get("states", {}).items():
                    cells[STANDING + STATES.index(state)] += count
                cells[LIMIT] += told.get("limit", 0)
                cells[IN_FLIGHT] += int(told.get("in_flight", 0))
                if "room" in told:
                    room = round(told["room"] * 1000) + 1
                    cells[ROOM] = min(cells[ROOM], room) if cells[ROOM] else room
        with self._lock:
            for name in {*self._rows, *found}:
                row, cells = self._row(name), found.get(name, Counter())
                for place in GAUGES:
                    row[place] = cells[place]

    def _add(self, policy: str, place: int) -> None:
        with self._lock:
            self._row(policy)[place] += 1

    def _row(self, policy: str) -> Any:
        row = self._rows.get(policy)
        if row is None:
            row = self._rows[policy] = self._counts.cells(f"g:{policy}")
        return row


def told(policies: dict[str, list[int]], room: float | None) -> dict[str, Any]:
    """The numbers of all workers, for people and JSON."""
    return {
        "policies": {
            name: {
                "refusals": _named(PARTS, cells, REFUSALS),
                "changes": _named(STATES, cells, CHANGES),
                "timeouts": cells[TIMEOUTS],
                "retries": cells[RETRIES],
                "fallbacks": cells[FALLBACKS],
                "last_good": cells[LAST_GOOD],
                "collapsed": cells[COLLAPSED],
                "states": _named(STATES, cells, STANDING),
                "limit": cells[LIMIT] or None,
                "in_flight": cells[IN_FLIGHT],
            }
            for name, cells in sorted(policies.items())
        },
        "room": room,
    }


def _named(names: tuple[str, ...], cells: list[int], first: int) -> dict[str, int]:
    found = {name: cells[first + place] for place, name in enumerate(names)}
    return {name: count for name, count in found.items() if count}


def families_of(policies: dict[str, list[int]], room: float | None) -> Iterator[Family]:
    """The same for Prometheus; nothing where there are no policies."""
    if not policies:
        return
    named = sorted(policies.items())
    broken = [(name, cells) for name, cells in named if any(cells[STANDING:LIMIT])]

    def counts(place: int) -> list[Sample]:
        return [("_total", [("policy", name)], cells[place]) for name, cells in named]

    yield "headgate_policy_refusals", "counter", "Calls that policies refused, by part.", [
        ("_total", [("policy", name), ("part", part)], cells[REFUSALS + place])
        for name, cells in named
        for place, part in enumerate(PARTS)
        if cells[REFUSALS + place] or (part == "breaker" and any(cells[STANDING:LIMIT]))
    ]  # fmt: skip
    yield "headgate_breaker_state", "gauge", "Breakers in each state, by worker and key.", [
        ("", [("policy", name), ("state", state)], cells[STANDING + place])
        for name, cells in broken
        for place, state in enumerate(STATES)
        if place < 3 or cells[STANDING + place] or cells[CHANGES + place]
    ]  # fmt: skip
    yield "headgate_breaker_transitions", "counter", "Changes of breakers, by the new state.", [
        ("_total", [("policy", name), ("state", state)], cells[CHANGES + place])
        for name, cells in broken
        for place, state in enumerate(STATES)
        if place < 3 or cells[CHANGES + place]
    ]  # fmt: skip
    yield "headgate_policy_timeouts", "counter", "Calls that took too long.", counts(TIMEOUTS)
    yield "headgate_policy_retries", "counter", "Calls that were made again.", counts(RETRIES)
    yield "headgate_policy_fallbacks", "counter", "Calls stood in for.", counts(FALLBACKS)
    about = "Calls stood in for by an older result."
    yield "headgate_policy_last_good", "counter", about, counts(LAST_GOOD)
    about = "Calls that waited for another like them."
    yield "headgate_policy_collapsed", "counter", about, counts(COLLAPSED)
    yield "headgate_policy_in_flight", "gauge", "Calls inside bulkheads and adaptive limits now.", [
        ("", [("policy", name)], cells[IN_FLIGHT]) for name, cells in named
    ]  # fmt: skip
    yield "headgate_adaptive_limit", "gauge", "Calls at once that adaptive limits let in.", [
        ("", [("policy", name)], cells[LIMIT]) for name, cells in named if cells[LIMIT]
    ]  # fmt: skip
    if room is not None:
        about = "Room of elastic limits, from 0 to 1: of the worker that has least."
        yield "headgate_system_room", "gauge", about, [("", (), room)]
