"""StoreBreaker: when a store that does not answer is left alone, and how it is tried again.

Closed, every call goes through. After failures it opens: nobody asks for a while, a little
longer each time. Then one call, the probe, asks for all. If it is answered, a few may follow at
the same time, and with each answer one more, until everybody may again.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable

__all__ = ["CLOSED", "OPEN", "PROBING", "RAMPING", "StoreBreaker"]

CLOSED, OPEN, PROBING, RAMPING = "closed", "open", "probing", "ramping"
LAST = (1 << 20) - 1
"""The outcomes that count, as bits: the last twenty."""
HALF = 10
FIRST, ALL = 2, 32
"""How many calls may be under way right after the probe, and from when on there is no bound."""


class StoreBreaker:
    """Counts what becomes of a store's calls; nothing is held while a call is under way.

    Failures less than `apart` seconds after one that counted are the same one: a server that was
    late once was late for everybody. Outcomes are told with the ticket that `enter` gave out. A
    ticket of an earlier state says nothing about the present one.
    """

    def __init__(
        self,
        now: Callable[[], float] = time.monotonic,
        *,
        streak: int = 5,
        shortest: float = 0.05,
        longest: float = 2.0,
        ramp: float = 1.0,
        apart: float = 0.0,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._now = now
        self._most = streak
        self._shortest = shortest
        self._longest = longest
        self._ramp = ramp
        self._apart = apart
        self._counted = float("-inf")
        self._jitter = jitter
        self._lock = threading.Lock()
        self.state = CLOSED
        self.opened = 0
        """How often it has opened."""
        self._ticket = 1
        self._streak = 0
        self._recent = 0
        self._pause = shortest
        self._until = 0.0
        self._under_way = 0
        self._room = FIRST

    @property
    def calm(self) -> bool:
        """Whether it is closed, and none of the last calls has failed."""
        return self.state is CLOSED and not self._recent

    @property
    def ticket(self) -> int:
        """The ticket of whoever enters now, while it is calm."""
        return self._ticket

    def enter(self) -> int | None:
        """A ticket for one call, or None: the store is left alone."""
        if self.state is CLOSED:
            return self._ticket
        with self._lock:
            if self.state is OPEN and self._now() >= self._until:
                return self._go(PROBING)
            if self.state is RAMPING:
                if self._now() >= self._until:
                    return self._close()
                if self._under_way < self._room:
                    self._under_way += 1
                    return self._ticket
            return self._ticket if self.state is CLOSED else None

    def passed(self, ticket: int) -> None:
        """The store has answered."""
        if self.state is CLOSED and not self._recent:  # nearly always
            return
        with self._lock:
            if ticket != self._ticket:
                return
            if self.state is CLOSED:
                self._streak = 0
                self._recent = self._recent << 1 & LAST
            elif self.state is PROBING:
                self._go(RAMPING)
                self._under_way, self._room = 0, FIRST
                self._until = self._now() + self._ramp
            elif self.state is RAMPING:
                self._under_way -= 1
                self._room += 1
                if self._room >= ALL or self._now() >= self._until:
                    self._close()

    def failed(self, ticket: int) -> None:
        """The store has not answered."""
        with self._lock:
            if ticket != self._ticket or self.state is OPEN:
                return
            if self.state is CLOSED:
                now = self._now()
                if now - self._counted < self._apart:
                    return  # the same moment, seen by several callers
                self._counted = now
                self._streak += 1
                self._recent = (self._recent << 1 | 1) & LAST
                if self._streak < self._most and self._recent.bit_count() < HALF:
                    return
            self._open()

    def dropped(self, ticket: int) -> None:
        """A call has ended that says nothing about the store: cancelled, or a mistake of ours."""
        with self._lock:
            if ticket != self._ticket:
                return
            if self.state is PROBING:
                self._go(OPEN)  # the next one is the probe
            elif self.state is RAMPING:
                self._under_way -= 1

    def after_fork(self) -> None:
        """In a child: whoever held the lock or probed stayed behind."""
        self._lock = threading.Lock()
        if self.state is PROBING:
            self._go(OPEN)
        self._under_way = 0

    def _go(self, state: str) -> int:
        self.state = state
        self._ticket += 1
        return self._ticket

    def _open(self) -> None:
        # From half of it up to all of it, or the processes of a site would come back in step.
        self._until = self._now() + self._pause * (0.5 + 0.5 * self._jitter())
        self._pause = min(self._longest, self._pause * 2)
        self.opened += 1
        self._go(OPEN)

    def _close(self) -> int:
        self._streak = self._recent = 0
        self._pause = self._shortest
        return self._go(CLOSED)
