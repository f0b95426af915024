"""Waiting: one line per key, first come first served, and nobody asks but its head.

A line is moved on by whoever has a reason to: the head's timer, a permit that came back, a
waiter that left. A line holds at most one timer, and wakes one waiter at a time.
"""

from __future__ import annotations

import heapq
import itertools
import os
import threading
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from .clock import ManualClock, Timer
from .decision import Ask, Decision, joined
from .waiters import Waiter

if TYPE_CHECKING:
    from .stores.base import Store

__all__ = ["Lines", "given_back", "lines_of", "too_large"]

FOREVER = 1 << 62
Name: TypeAlias = tuple[str, Any, tuple[str, ...]]
"""A line: namespace, key, and the ids of the limits that are waited for."""
_lines: weakref.WeakKeyDictionary[Any, Lines] = weakref.WeakKeyDictionary()
_making = threading.Lock()


def lines_of(store: Store) -> Lines:
    """The lines in front of a store, shared by everybody who waits for it in this process."""
    with _making:
        lines = _lines.get(store)
        if lines is None:
            lines = _lines[store] = Lines(store)
        return lines


def given_back(asks: Sequence[Ask], decision: Decision) -> list[Ask]:
    """The asks that undo a take."""
    back = []
    for ask, part in zip(asks, decision.parts, strict=True):
        if ask.limit.algorithm == "concurrency":
            back.append(ask._replace(op="release"))
        else:
            at = part.at + round(part.delay * 1_000_000)
            back.append(ask._replace(op="refund", cost=part.granted, at=at, token=0))
    return back


class Line:
    """The waiters of one key, the most important first, then the longest waiting."""

    __slots__ = ("booked", "name", "queue", "queued", "timer")

    def __init__(self, name: Name | None) -> None:
        self.name = name
        self.queue: list[tuple[int, int, Waiter]] = []
        self.queued: dict[int, int] = {}
        self.booked: Waiter | None = None
        self.timer: Timer | None = None

    def ahead(self, priority: int) -> int:
        """How much is asked for by those who go before a newcomer."""
        return sum(cost for other, cost in self.queued.items() if other >= priority)

    def first(self) -> Waiter | None:
        while self.queue and self.queue[0][2].finished():
            heapq.heappop(self.queue)
        return self.queue[0][2] if self.queue else None

    def unqueue(self, waiter: Waiter) -> None:
        self.queued[waiter.priority] -= waiter.cost
        if not self.queued[waiter.priority]:
            del self.queued[waiter.priority]


class Lines:
    """Every line in front of one store."""

    def __init__(self, store: Store) -> None:
        self._store = weakref.ref(store)
        self._clock = store.clock
        self._lock = threading.RLock()
        # By namespace and key, then by the limits that are waited for.
        self._lines: dict[tuple[str, Any], dict[tuple[str, ...], Line]] = {}
        self._serial = itertools.count()

    def waiting(self, name: Name) -> bool:
        """Whether somebody waits in a line."""
        return name[2] in self._lines.get(name[:2], ())

    def join(self, name: Name, waiter: Waiter) -> None:
        """Go to the end of a line; done at once if it is known not to be served in time."""
        with self._lock:
            lines = self._lines.setdefault(name[:2], {})
            line = lines.get(name[2])
            if line is None:
                line = lines[name[2]] = Line(name)
            if waiter.deadline is not None:
                forecast = self._ask_store().forecast(waiter.asks, line.ahead(waiter.priority))
                if self._clock.micros() + forecast > waiter.deadline:
                    self._finish(waiter, self._refusal(waiter))
                    self._drop_if_empty(line)
                    return
                waiter.expiry = self._plan(waiter, waiter.deadline, lambda: self.expire(waiter))
            waiter.line = line
            heapq.heappush(line.queue, (-waiter.priority, next(self._serial), waiter))
            line.queued[waiter.priority] = line.queued.get(waiter.priority, 0) + waiter.cost
            if line.queue[0][2] is waiter:
                self._move(line)

    def sleep(self, waiter: Waiter, decision: Decision) -> None:
        """Let a waiter whose turn is settled already wait for it, in no line."""
        with self._lock:
            line = waiter.line = Line(None)
            self._book(line, waiter, decision)
            self._move(line)

    def leave(self, waiter: Waiter) -> None:
        """Give up: what was taken for this waiter goes back, and the line moves on."""
        with self._lock:
            line = waiter.line
            taken = waiter.decision
            if line is not None and line.booked is waiter:
                line.booked = None
                taken = waiter.planned
            elif taken is None and line is not None:
                line.unqueue(waiter)
            waiter.decision = taken or self._refusal(waiter)
            self._calm(waiter)
            if taken is not None and taken.allowed:
                self._ask_store().decide(given_back(waiter.asks, taken))
            if line is not None:
                self._move(line)

    def expire(self, waiter: Waiter) -> None:
        """A waiter's time is up; one that is served at this very instant still is."""
        with self._lock:
            line = waiter.line
            if waiter.finished() or line is None:
                return
            self._move(line)
            if not waiter.finished() and line.booked is not waiter:
                line.unqueue(waiter)
                self._finish(waiter, self._refusal(waiter))
                self._move(line)

    def kick(self, space: str, key: Any) -> None:
        """Something came back for a key: whoever waits for it may ask again."""
        if not self._lines:
            return
        with self._lock:
            for line in list(self._lines.get((space, key), {}).values()):
                self._move(line)

    def abandon(self) -> None:
        """Forget every line, in a new process that has none of the waiters."""
        self._lock = threading.RLock()
        self._lines = {}

    # -- what holds while the lock is held

    def _ask_store(self) -> Store:
        store = self._store()
        assert store is not None  # whoever waits holds the limiter, and that the store
        return store

    def _move(self, line: Line) -> None:
        """Serve the line as far as it goes now, and plan when to go on."""
        if line.timer is not None:
            line.timer.cancel()
            line.timer = None
        while True:
            now = self._clock.micros()
            if line.booked is not None:
                waiter = line.booked
                if waiter.ready > now:
                    line.timer = self._plan(waiter, waiter.ready, lambda: self._resume(line))
                    return
                line.booked = None
                assert waiter.planned is not None
                self._finish(waiter, waiter.planned.after_delay())
                continue
            head = line.first()
            if head is None:
                self._drop_if_empty(line)
                return
            again = self._serve(line, head, now)
            if again is not None:
                if again < FOREVER:
                    line.timer = self._plan(head, again, lambda: self._resume(line))
                return

    def _serve(self, line: Line, head: Waiter, now: int) -> int | None:
        """Ask for the head of the line; if it must wait on, until when."""
        left = FOREVER if head.deadline is None else max(0, head.deadline - now)
        asks = [ask._replace(max_wait=left) for ask in head.asks]
        decision = joined(tuple(self._ask_store().decide(asks)))
        if decision.allowed:
            line.unqueue(head)
            heapq.heappop(line.queue)
            self._book(line, head, decision)
            return None
        retry = decision.retry_after
        if retry == float("inf"):
            held = any(p.limit.algorithm == "concurrency" for p in decision.parts if not p.allowed)
            if held and not too_large(decision):
                return FOREVER  # until somebody gives a permit back
        elif head.deadline is None or now + retry * 1_000_000 <= head.deadline:
            return now + max(1, round(retry * 1_000_000))
        elif any(part.limit.algorithm == "concurrency" for part in decision.parts):
            return FOREVER  # a lease may end before it runs out
        line.unqueue(head)
        heapq.heappop(line.queue)
        self._finish(head, decision)
        return None

    def _book(self, line: Line, waiter: Waiter, decision: Decision) -> None:
        waiter.planned = decision
        waiter.ready = max(part.at for part in decision.parts) + round(decision.delay * 1_000_000)
        line.booked = waiter

    def _resume(self, line: Line) -> None:
        with self._lock:
            line.timer = None
            self._move(line)

    def _drop_if_empty(self, line: Line) -> None:
        if line.name is None or line.booked is not None or line.first() is not None:
            return
        place = line.name[:2]
        self._lines[place].pop(line.name[2], None)
        if not self._lines[place]:
            del self._lines[place]
        line.name = None

    def _refusal(self, waiter: Waiter) -> Decision:
        checks = [ask._replace(op="check", max_wait=0) for ask in waiter.asks]
        return joined(tuple(self._ask_store().decide(checks))).refused()

    def _finish(self, waiter: Waiter, decision: Decision) -> None:
        waiter.decision = decision
        self._calm(waiter)
        if not waiter.wake() and decision.allowed:
            self._ask_store().decide(given_back(waiter.asks, decision))

    def _calm(self, waiter: Waiter) -> None:
        if waiter.expiry is not None:
            waiter.expiry.cancel()
            waiter.expiry = None

    def _plan(self, waiter: Waiter, micros: int, call: Any) -> Timer:
        if isinstance(self._clock, ManualClock):
            return self._clock.call_at(max(micros, self._clock.micros() + 1), call)
        return waiter.plan(micros, call)


def too_large(decision: Decision) -> bool:
    """Whether a refusing limit could not hold the cost even when it is unused."""
    return any(
        part.limit.raised(part.limit.capacity, 1000) < part.cost
        for part in decision.parts
        if not part.allowed and part.retry_after == float("inf")
    )


def _after_fork() -> None:
    # Whoever waited stayed behind in the parent, and may have held a lock.
    global _making
    _making = threading.Lock()
    for lines in list(_lines.values()):
        lines.abandon()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
