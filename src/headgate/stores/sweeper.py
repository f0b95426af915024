"""Sweeper: who settles leases that nobody uses any more.

By the system's clock it is a thread, which is there only while something is leased; by a clock
that was given, a call planned on it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import monotonic_ns
from typing import Any

from ..clock import Clock, ManualClock

__all__ = ["Sweeper"]

SHORTEST, LONGEST = 0.02, 1.0
"""Seconds between two looks."""


class Sweeper:
    """Calls `sweep` some time after each end of a lease.

    `ends` says when the next one is, in nanoseconds of this process, or None if there is none.
    """

    def __init__(
        self, clock: Clock, sweep: Callable[[], None], ends: Callable[[], int | None]
    ) -> None:
        self._clock = clock
        self._sweep = sweep
        self._ends = ends
        self._lock = threading.RLock()  # a clock that is moved meanwhile calls at once
        self._over = threading.Event()
        self._timer: Any = None
        self._due = 0
        self.thread: threading.Thread | None = None

    def plan(self, until: int) -> None:
        """A lease ends at this instant, or something is to be settled at once."""
        clock = self._clock
        with self._lock:
            if self._over.is_set():
                return
            if isinstance(clock, ManualClock):
                due = max(until // 1000, clock.micros()) + 1
                if self._timer is None or due < self._due or self._due <= clock.micros():
                    if self._timer is not None:
                        self._timer.cancel()
                    self._due = due
                    self._timer = clock.call_at(due, self._by_hand)
            elif self.thread is None:
                self.thread = threading.Thread(
                    target=self._go_on, name="headgate-leases", daemon=True
                )
                self.thread.start()

    def stop(self) -> None:
        """Nothing is planned any more."""
        self._over.set()
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()

    def after_fork(self) -> None:
        """In a child: thread and plans are the parent's."""
        self._lock = threading.RLock()
        self._over = threading.Event()
        self.thread = self._timer = None

    def _by_hand(self) -> None:
        self._timer = None
        self._sweep()
        ends = self._ends()
        if ends is not None:
            self.plan(ends)

    def _go_on(self) -> None:
        while True:
            ends = self._ends()
            wait = LONGEST if ends is None else (ends - monotonic_ns()) / 1e9
            if self._over.wait(min(LONGEST, max(SHORTEST, wait))):
                return
            self._sweep()
            with self._lock:  # whoever plans comes before this look, or finds no thread
                if self._ends() is None:
                    self.thread = None
                    return
