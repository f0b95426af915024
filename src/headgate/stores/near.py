"""Near: what can be answered in this process, in front of a store that is far away.

For each key two things may be known: that so much has been leased, to be taken here until some
instant; and that costs from some size on are refused until some instant. A hit that neither
answers goes the longer way, which a subclass knows. The compiled form has the same names.
"""

from __future__ import annotations

import threading
from time import monotonic_ns
from typing import TYPE_CHECKING, Any

from ..clock import Clock, SystemClock
from ..decision import Decision, Refusal
from ..keys import Canonical, Key, canonical

if TYPE_CHECKING:
    from ..limit import Limit

__all__ = ["Entry", "Leased", "Near"]


class Entry:
    """What is known of a key. Instants are in nanoseconds of this process."""

    __slots__ = (
        "a", "ahead", "at", "b", "began", "busy", "c", "chunk", "debited", "ends", "granted",
        "key", "known", "least", "left", "most", "nanos", "refusal", "refuser", "reset", "shut",
        "since", "source", "touched", "until",
    )  # fmt: skip

    def __init__(self) -> None:
        # A lease: how much is left of it, until when, and what decisions on it say.
        self.left = self.until = self.known = self.reset = self.ahead = 0
        self.source: Any = None
        # A refusal: of which costs, until when, and what refusals say.
        self.least = self.most = self.shut = self.a = self.b = self.c = self.since = 0
        self.nanos = 1
        self.refuser: Any = None
        self.touched = False
        # For whoever leases.
        self.at = self.began = self.chunk = self.granted = self.ends = 0
        self.busy = self.debited = False
        self.refusal: Any = None
        self.key: Any = ""


class Leased:
    """The source of decisions on a lease: what is left of it, and of the limit when last seen."""

    __slots__ = ("degraded", "limit", "per_second")

    def __init__(self, limit: Limit, degraded: bool = False) -> None:
        self.limit = limit
        self.per_second = 1_000_000
        self.degraded = degraded

    def look(self, a: int, b: int, c: int, now: int, cost: int) -> tuple[int, int, int]:
        return a + b, 0, max(0, c - now)


class Near:
    """Takes that are answered here if they can be."""

    def __init__(self, clock: Clock) -> None:
        self.entries: dict[Canonical, Entry] = {}
        self._micros = clock.micros
        self._system = type(clock) is SystemClock
        self._guard = threading.RLock()

    def nanos(self) -> int:
        """The time here: by the monotonic clock, or by a clock that was given."""
        return monotonic_ns() if self._system else self._micros() * 1000

    def hit(self, key: Key = "", cost: int = 1, *, partial: bool = False) -> Decision:
        """Take `cost` or be refused; with `partial`, take what is there. Never sleeps."""
        found = self.near(key, cost, partial)
        return found if found is not None else self.longer(key, cost, partial)

    def near(self, key: Key, cost: int, partial: bool) -> Decision | None:
        """The answer that can be given here, if there is one."""
        entry = self.entries.get(key if key.__class__ is str else canonical(key))
        if entry is None or cost.__class__ is not int or cost <= 0 or partial:
            return None
        now = monotonic_ns() if self._system else self._micros() * 1000
        if now < entry.until:
            guard = self._guard
            try:
                guard.acquire()
                left = entry.left - cost
                if left >= 0 and now < entry.until:
                    entry.left = left
                    decision = Decision()
                    decision._source = entry.source
                    decision._outcome = (0, left, entry.known, entry.reset)
                    decision._now = (now + entry.ahead) // 1000
                    decision._cost = cost
                    entry.touched = True
                    guard.release()
                    return decision
                guard.release()
            except BaseException:  # an interrupt may come before the lock is held, or right after
                if guard._is_owned():  # type: ignore[attr-defined] # as threading does
                    guard.release()
                raise
        if entry.least <= cost <= entry.most and now < entry.shut:
            refusal = Refusal()
            refusal._source = entry.refuser
            refusal._outcome = (-1, entry.a, entry.b, entry.c)
            refusal._now = (now + entry.since) // entry.nanos
            refusal._cost = cost
            entry.touched = True
            return refusal
        return None

    def longer(self, key: Key, cost: int, partial: bool) -> Decision:
        """The answer of whoever is asked instead."""
        raise NotImplementedError

    # -- changes that hits of other threads must not get in between of

    def drain(self, entry: Entry) -> int:
        """End a lease; what was left of it."""
        with self._guard:
            left, entry.left, entry.until = entry.left, 0, 0
            return left

    def give(self, entry: Entry, cost: int) -> bool:
        """Give back to a lease; False if it has ended."""
        now = self.nanos()
        with self._guard:
            if now >= entry.until or entry.left + cost > entry.granted:
                return False
            entry.left += cost
            return True

    def lease(
        self, entry: Entry, source: Any, left: int, known: int, reset: int, ahead: int, until: int
    ) -> None:
        """Begin a lease: so much, until then; the rest is what decisions say."""
        with self._guard:
            entry.source, entry.left, entry.until = source, left, until
            entry.known, entry.reset, entry.ahead = known, reset, ahead

    def refuse(
        self,
        entry: Entry,
        refuser: Any,
        outcome: tuple[int, int, int, int],
        costs: tuple[int, int],
        nanos: int,
        since: int,
        until: int,
    ) -> None:
        """Refuse costs of these sizes until then, as the outcome has it."""
        with self._guard:
            entry.refuser, entry.nanos, entry.since = refuser, nanos, since
            _, entry.a, entry.b, entry.c = outcome
            entry.least, entry.most = costs
            entry.shut = until

    def after_fork(self) -> None:
        """In a child: what is leased is the parent's."""
        self._guard = threading.RLock()
        self.entries.clear()
