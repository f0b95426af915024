"""Telemetry: what gates decide, counted; and everything there is to see of it."""

from __future__ import annotations

import os
import secrets
import threading
import time
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .counts import CELLS, PERMITS, Counts
from .events import Event, Recent
from .hook import Hook
from .naming import namer
from .notes import note_of, recent_of, top_of
from .policies import GAUGES, PolicyCounts
from .report import Totals, gathered, is_gauge, status_of
from .rolling import Rolling
from .shared import Area

if TYPE_CHECKING:
    from .naming import Namer
    from .sketch import Busy
    from .slots import Slot

__all__ = ["Telemetry"]

_watching: weakref.WeakSet[Telemetry] = weakref.WeakSet()


class Telemetry(Hook):
    """Counts what gates decide: `Telemetry().watch(gate)`.

    shared   the path of a file in which all workers of this machine count together
    keys     how keys are shown: "plain", "hashed", "masked", "hidden", or a function
    top      so many of each rule's busiest keys are certain to be found
    seconds  how many of the last seconds are kept one by one
    recent   how many of the last refusals are kept
    latency  whether every answer of the store is timed
    """

    def __init__(
        self,
        shared: str | os.PathLike[str] | None = None,
        *,
        keys: str | Namer = "plain",
        top: int = 50,
        seconds: int = 300,
        recent: int = 200,
        latency: bool = True,
        clock: Callable[[], float] = time.time,
    ) -> None:
        if isinstance(top, bool) or not isinstance(top, int) or top < 1:
            raise ValueError(f"top is a whole number from 1 on, not {top!r}")
        super().__init__(clock, latency)
        self.plain = keys == "plain"
        self.rolling = Rolling(seconds)
        self._path = shared
        self._keys = keys
        self._top = top
        self._keep = recent
        self._gates: dict[Any, Any] = {}
        self._area: Area | None = None
        self._slot: Slot | None = None
        self._open()
        _watching.add(self)

    def _open(self) -> None:
        """Begin to count; again in a forked child, which is a worker of its own."""
        if self._path is not None:
            self._area = Area.open(self._path)
            self._slot = self._area.claim()
            if self._slot is not None:
                self._slot.clear("r:", PERMITS)
                self._slot.clear("g:", *GAUGES)
        self.name = namer(self._keys, self._area.salt if self._area else secrets.token_bytes(16))
        self._ticking = threading.Lock()
        self._recent = Recent(self._keep)
        self._counts = Counts(self._top, self._slot)
        self._local = self._counts.local
        self._policies = PolicyCounts(self._counts, self._keep)
        row = self._slot.row("p:") if self._slot is not None else None
        self._process: Any = [0] * CELLS if row is None else row
        self._base = list(self._process)

    # -- what is watched

    def watch(self, gate: Any) -> Telemetry:
        """Count what a gate decides, from now on."""
        if gate not in self._gates:
            gate.watched_by(self)
            hook = self.hook(gate.store.blocking)
            self._gates[gate] = hook
            gate.on_verdict.append(hook)
            if hasattr(gate, "on_notice"):
                gate.on_notice.append(self.noticed)
        return self

    def unwatch(self, gate: Any) -> None:
        """Count it no more."""
        hook = self._gates.pop(gate, None)
        if hook is not None:
            gate.on_verdict.remove(hook)
            if hasattr(gate, "on_notice"):
                gate.on_notice.remove(self.noticed)
            gate.watched_by(None)

    def close(self) -> None:
        """Count nothing more, and let another worker go on with this one's numbers."""
        for gate in list(self._gates):
            self.unwatch(gate)
        if self._area is not None:
            if self._slot is not None:
                self._area.give_up(self._slot)
            self._area.close()
            self._area = None
        _watching.discard(self)

    # -- what there is to see

    def rules(self) -> set[str]:
        """The names of the rules in force, whether or not they have decided anything."""
        rules = [rule for gate in list(self._gates) for rule in getattr(gate.snapshot, "rules", ())]
        return {rule.name for rule in rules if not getattr(rule, "feeds", False)}

    def tick(self) -> bool:
        """Enter the second that has passed, once in each second; False if that is done."""
        now = int(self.clock())
        if now <= self.rolling.at or not self._ticking.acquire(blocking=False):
            return False  # or another thread is at it
        try:
            totals = self.totals()
            if self._slot is not None:
                self._slot.write_note(note_of(self._counts, self.name, self._own_recent(20)))
            return self.rolling.tick(now, totals.rules, totals.store)
        finally:
            self._ticking.release()

    def totals(self, *, own: bool = False) -> Totals:
        """The sums of all workers, or of this process alone."""
        for place, value in enumerate(status_of(list(self._gates))):
            self._process[place] = value if is_gauge(place) else self._base[place] + value
        self._policies.look(list(self._gates))
        if not own:
            totals = gathered(self._counts, self._area, self._slot)
        else:
            totals = Totals()
            totals.workers = 1
            totals.add(self._counts.mine())
        if self._slot is None:
            totals.add([("p:", list(self._process))])
        return totals

    def snapshot(self) -> dict[str, Any]:
        """The sums of all workers, by rule, for people and JSON."""
        found = {"at": self.clock(), **self.totals().as_dict()}
        if self._counts.unshared:
            found["unshared"] = self._counts.unshared
        return found

    def top(
        self, rule: str | None = None, *, refused: bool = False, most: int = 10
    ) -> dict[str, list[Busy]]:
        """The busiest keys of each rule, of all its calls or of the refused ones.

        Of other workers no more is known than their busiest ten as of the last second.
        """
        return top_of(self._counts, self.name, self._notes(), rule, refused, most)

    def recent(self, most: int = 50) -> list[Event]:
        """The last refusals, the latest first."""
        return recent_of(self._own_recent(most), self._notes(), most)

    def changes(self, most: int = 50) -> list[Event]:
        """The last changes of breakers' states in this process, and when the machine came under
        strain, the latest first; `result` is the new state, `why` what led to it."""
        return list(self._policies.changes.copy())[::-1][:most]

    def _own_recent(self, most: int) -> list[Event]:
        return self._recent.events(self.name, self.plain, most)

    def _notes(self) -> list[Any]:
        """What other workers have left to read."""
        if self._area is None:
            return []
        mine = -1 if self._slot is None else self._slot.number
        others = [each for each in self._area.all() if each.number != mine]
        return [each.read_note() for each in others if self._area.alive(each.number)]


def _after_fork() -> None:
    for telemetry in list(_watching):
        telemetry._open()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
