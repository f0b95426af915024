"""Waiting: one line per key, first come first served, and nobody asks but its head.

A line is moved on by whoever has a reason to: the head's timer, a permit that came back, a
waiter that left. A line holds at most one timer, and wakes one waiter at a time.
"""

from __future__ import annotations

import itertools
import os
import threading
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .answers import FOREVER, given_back, next_try
from .clock import Clock, ManualClock, Timer
from .decision import Ask, Decision, joined
from .ranks import Line, Name, Ranks, short_of
from .waiters import Waiter

if TYPE_CHECKING:
    from .stores.base import Store

__all__ = ["LONGEST", "SHORTEST", "Line", "Lines", "Name", "lines_of", "paused"]

SHORTEST, LONGEST = 2_000, 50_000
"""Microseconds between two looks for a permit that another process may have given back."""
_lines: weakref.WeakKeyDictionary[Any, Lines] = weakref.WeakKeyDictionary()
_making = threading.Lock()


def lines_of(store: Store) -> Lines:
    """The lines in front of a store, shared by everybody who waits for it in this process."""
    with _making:
        lines = _lines.get(store)
        if lines is None:
            lines = _lines[store] = Lines(store)
        return lines


class Lines:
    """Every line in front of one store."""

    def __init__(self, store: Store) -> None:
        self._store = weakref.ref(store)
        self._clock = store.clock
        self._lock = threading.RLock()
        # By namespace and key, then by the limits that are waited for.
        self._lines: dict[tuple[str, Any], dict[tuple[str, ...], Line]] = {}
        self._ranks = Ranks()
        self._serial = itertools.count()
        self.put_off: list[tuple[str, Any]] = []
        """Keys for which something came back in the middle of a decision."""

    def waiting(self, name: Name) -> bool:
        """Whether somebody waits in a line."""
        return name[2] in self._lines.get(name[:2], ())

    def outranked(self, asks: Sequence[Ask], priority: int) -> bool:
        """Whether somebody more important waits, in another line, for some of it."""
        if not self._ranks:
            return False
        with self._lock:
            return self._ranks.outranked(asks, priority)

    def join(self, name: Name, waiter: Waiter) -> None:
        """Go to the end of a line; done at once if it is known not to be served in time."""
        with self._lock:
            line = self._lines.setdefault(name[:2], {}).setdefault(name[2], Line(name, SHORTEST))
            try:
                late = self._late(waiter, line.ahead(waiter.priority))
            except BaseException:
                self._drop_if_empty(line)
                raise
            if late:
                self._finish(waiter, self._refusal(waiter))
                self._drop_if_empty(line)
                return
            line.enqueue(waiter, next(self._serial))
            if waiter.deadline is not None:
                waiter.expiry = self._plan(waiter, waiter.deadline, lambda: self.expire(waiter))
            if line.first() is waiter:
                self._move(line)

    def sleep(self, waiter: Waiter, decision: Decision) -> None:
        """Let a waiter whose turn is settled already wait for it, in no line."""
        with self._lock:
            line = waiter.line = Line(None, SHORTEST)
            self._book(line, waiter, decision)
            self._move(line)

    def leave(self, waiter: Waiter) -> None:
        """Give up: what was taken for this waiter goes back, and the line moves on."""
        with self._lock:
            line, taken = waiter.line, waiter.decision
            if line is not None:
                line.unqueue(waiter)
                if line.booked is waiter:
                    line.booked, taken = None, waiter.planned
            waiter.left = True
            self._calm(waiter)
            try:
                if taken is not None and taken.allowed:
                    self._ask_store().decide(given_back(waiter.asks, taken))
            finally:
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
            for line in sorted(self._lines.get((space, key), {}).values(), key=Line.rank):
                self._move(line)

    def kick_all(self) -> None:
        """The store has changed as a whole, or was closed."""
        for space, key in list(self._lines):
            self.kick(space, key)

    def catch_up(self) -> None:
        """Do what was put off."""
        while self.put_off:
            self.kick(*self.put_off.pop())

    def abandon(self) -> None:
        """Forget every line, in a new process that has none of the waiters."""
        self._lock = threading.RLock()
        self._lines = {}
        self._ranks = Ranks()

    # -- what holds while the lock is held

    def _ask_store(self) -> Store:
        store = self._store()
        assert store is not None  # whoever waits holds the limiter, and that the store
        return store

    def _late(self, waiter: Waiter, ahead: int) -> bool:
        if waiter.deadline is None:
            return False
        store, priority = self._ask_store(), waiter.priority
        wait = store.forecast(waiter.asks, ahead)
        for ask in waiter.asks:
            more = self._ranks.ahead(ask, priority)
            if more:
                wait = max(wait, store.forecast([ask], ahead + more))
        return self._clock.micros() + wait > waiter.deadline

    def _move(self, line: Line) -> None:
        """Serve the line as far as it goes now, and plan when to go on."""
        if line.moving:  # a finaliser gave something back while the line was being served
            line.again = True
            return
        line.moving = True
        try:
            while True:
                line.again = False
                if line.timer is not None:
                    line.timer.cancel()
                    line.timer = None
                waiter, when = self._next(line)
                if line.again:
                    continue
                if waiter is None:
                    self._drop_if_empty(line)
                elif when < FOREVER:
                    line.timer = self._plan(waiter, when, lambda: self._resume(line))
                return
        finally:
            line.moving = False
            self._ranks.mark(line)
            self._ranks.relieve(self._move)

    def _next(self, line: Line) -> tuple[Waiter | None, int]:
        """Serve whom can be served; who is to be served next, and when."""
        while True:
            waiter = line.booked
            if waiter is not None and waiter.gone():
                line.booked = None
                assert waiter.planned is not None
                self._ask_store().decide(given_back(waiter.asks, waiter.planned))
            elif waiter is not None:
                if waiter.ready > self._clock.micros():
                    return waiter, waiter.ready
                line.booked = None
                assert waiter.planned is not None
                self._start_lease(waiter)
                self._finish(waiter, waiter.planned.after_delay())
            else:
                waiter = line.first()
                if waiter is None:
                    return None, FOREVER
                if self._ranks.gives_way(line):
                    return waiter, FOREVER
                try:
                    again = self._serve(line, waiter)
                except Exception as error:  # a closed store, say: whoever asked is told
                    line.unqueue(waiter)
                    waiter.error = error
                    self._calm(waiter)
                    waiter.wake()
                    continue
                if again is not None:
                    return waiter, again

    def _serve(self, line: Line, head: Waiter) -> int | None:
        """Ask for the head of the line; if it must wait on, until when."""
        now = self._clock.micros()
        left = FOREVER if head.deadline is None else max(0, head.deadline - now)
        # A lease begins when its holder may act; until then it must not run out.
        asks = [ask._replace(max_wait=left, ttl=FOREVER if ask.ttl else 0) for ask in head.asks]
        decision = joined(tuple(self._ask_store().decide(asks)))
        line.short = short_of(asks, decision)
        if decision.allowed:
            line.unqueue(head)
            line.pause = SHORTEST
            self._book(line, head, decision)
            return None
        shared = self._ask_store().shared  # what another process gives back kicks nobody here
        pause = (lambda: self._pause(line)) if shared else None
        again = next_try(decision, now, now + left, pause)
        if again is None:
            line.unqueue(head)
            self._finish(head, decision)
        return again

    def _pause(self, line: Line) -> int:
        """How long to wait for what another process gives back, which kicks nobody here."""
        pause = line.pause
        line.pause = min(LONGEST, pause * 5 // 4)
        return paused(pause, self._clock)

    def _book(self, line: Line, waiter: Waiter, decision: Decision) -> None:
        waiter.planned = decision
        waiter.ready = max(part.at for part in decision.parts) + round(decision.delay * 1_000_000)
        line.booked = waiter

    def _start_lease(self, waiter: Waiter) -> None:
        renewals = [ask._replace(op="renew") for ask in waiter.asks if ask.ttl]
        if renewals:
            self._ask_store().decide(renewals)

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


def paused(pause: int, clock: Clock) -> int:
    """From half of a pause up to all of it, or those who poll in several processes would do so
    in step."""
    if isinstance(clock, ManualClock):
        return pause
    return pause // 2 + hash((os.getpid(), clock.micros())) % max(1, pause // 2)


def _after_fork() -> None:
    # Whoever waited stayed behind in the parent, and may have held a lock.
    global _making
    _making = threading.Lock()
    for lines in list(_lines.values()):
        lines.abandon()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
