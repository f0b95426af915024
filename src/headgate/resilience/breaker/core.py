"""Core: a machine with a clock and a lock, and the short way past both while all is well.

While a breaker is calm (closed, and nothing in its window that a call which goes well could
turn into a trip), a call costs two counters. They are advanced by `next`, which the interpreter
does in one piece, and their numbers are added to the window before anything else is. A lock is
held for moments, and never while the protected call runs.

Where durations count, the short way reads nanoseconds of the monotonic clock, which is one call
of C; the machine's microseconds since the epoch are made of them when they are needed.
"""

from __future__ import annotations

import threading
import time
from itertools import count
from typing import TYPE_CHECKING, Any

from ...clock import SystemClock
from ..errors import BreakerOpen
from ..notices import tell
from .machine import Machine
from .outcomes import FAILURE, IGNORED, SUCCESS, Outcomes

if TYPE_CHECKING:
    from ...clock import Clock
    from ..notices import Listener
    from .settings import Settings

__all__ = ["Core"]

NOTHING: list[tuple[str, str, str, int]] = []


class Core:
    """Who may call, and how it went."""

    __slots__ = ("_calm", "_easy", "_edge", "_entered", "_entered_reads", "_failures", "_good",
                 "_good_reads", "_ignored", "_judge", "_listeners", "_lock", "_machine", "_mark",
                 "_name", "_nanos", "_offset", "_outcomes", "_refused", "_slow", "_slow_after",
                 "_successes", "_timed")  # fmt: skip

    _calm: int | None
    """The ticket of calls on the short way; None while there is none."""
    _easy: int | None
    """The same where nobody has to know when a call began."""

    def __init__(
        self, name: str, settings: Settings, clock: Clock, listeners: list[Listener]
    ) -> None:
        self._name = name
        if type(clock) is SystemClock:
            self._nanos, self._offset = time.monotonic_ns, clock.offset
        else:
            micros = clock.micros
            self._nanos, self._offset = (lambda: micros() * 1000), 0
        self._listeners = listeners
        self._lock = threading.Lock()
        self._machine = Machine(settings, self._micros())
        self._entered = count()
        self._good = count()
        self._entered_reads = self._good_reads = self._mark = 0
        self._successes = self._failures = self._ignored = self._slow = self._refused = 0
        self._follow(settings)

    def _follow(self, settings: Settings) -> None:
        """Take over what the short way needs to know."""
        self._outcomes = Outcomes(settings.failures, settings.ignored, settings.failed)
        self._slow_after = self._machine.slow_after * 1000
        self._judge = settings.failed
        self._timed = (
            settings.slow_after is not None
            or settings.window_seconds is not None
            or settings.failed is not None
        )
        self._refresh()

    # -- the short way

    def enter(self) -> Any:
        """A token for one call; BreakerOpen if it may not be made."""
        token = self._easy
        if token is not None:
            next(self._entered)
            return token
        token = self._calm
        if token is not None:
            next(self._entered)
            return token, self._nanos()
        return self._enter()

    def passed(self, token: Any, result: Any) -> None:
        """A call has returned."""
        if token is self._easy:
            next(self._good)
            if token is not self._easy:  # somebody has failed meanwhile: see what that makes
                self._settle()
            return
        if self._judge is not None and self._bad(token, result):
            return
        if type(token) is tuple and token[0] is self._calm:
            now = self._nanos()
            if now < self._edge and now - token[1] <= self._slow_after:
                next(self._good)
                if token[0] is not self._calm:
                    self._settle()
                return
        self.told(token, SUCCESS)

    def failed(self, token: Any, error: BaseException) -> None:
        """A call has raised."""
        outcome = FAILURE
        try:
            outcome = self._outcomes.of_error(error)
        finally:  # should the user's own function raise, the call counts as a failure
            self.told(token, outcome)

    # -- the longer way

    def _enter(self) -> Any:
        nanos = self._nanos()
        now = (nanos + self._offset) // 1000
        with self._lock:
            self._drain(now)
            token = self._machine.admit(now)
            if token is None:
                self._refused += 1
                state, wait = self._machine.state, self._machine.retry_after(now)
            else:
                next(self._entered)
            changes = self._refresh()
        if changes or (token is None and self._listeners):
            self._tell(changes, "" if token is not None else "refused", now)
        if token is None:
            said = f"the breaker is {state.replace('_', ' ')}, the call was not made"
            raise BreakerOpen(said, self._name, None if wait is None else wait / 1e6)
        return (token[0], nanos) if type(token) is tuple else token

    def _bad(self, token: Any, result: Any) -> bool:
        """Whether a result is a failure; then that was told."""
        outcome = FAILURE
        try:
            outcome = self._outcomes.of_result(result)
        finally:  # as in `failed`
            if outcome == FAILURE:
                self.told(token, FAILURE)
        return outcome == FAILURE

    def told(self, token: Any, outcome: int, seconds: float | None = None) -> None:
        """How a call went, said in so many words; and how long it took, if not since it began."""
        now = self._micros()
        with self._lock:
            self._drain(now)
            if type(token) is tuple:
                token = token[0], (token[1] + self._offset) // 1000
            took = None if seconds is None else round(seconds * 1e6)
            slow = self._machine.record(token, outcome, now, took)
            if outcome == SUCCESS:
                self._successes += 1
            elif outcome == FAILURE:
                self._failures += 1
            else:
                self._ignored += 1
            self._slow += slow and outcome != IGNORED
            changes = self._refresh()
        if changes or self._listeners:
            kind = "failed" if outcome == FAILURE else "slow" if slow else ""
            self._tell(changes, "ignored" if outcome == IGNORED else kind, now)

    def _micros(self) -> int:
        return (self._nanos() + self._offset) // 1000

    def _settle(self) -> None:
        now = self._micros()
        with self._lock:
            self._drain(now)
            changes = self._refresh()
        self._tell(changes, "", now)

    def _drain(self, now: int) -> None:
        """Add what was counted on the short way, and close it until `_refresh`; the lock is held.

        Should this thread be interrupted in between, the next call finds it so, and goes on.
        """
        self._calm = self._easy = None
        good = self._good_count()
        if good != self._mark:
            pending, self._mark = good - self._mark, good
            self._machine.absorb(pending, now)

    def _good_count(self) -> int:
        # A counter shows its number only by going on, so we count how often we looked.
        found = next(self._good) - self._good_reads
        self._good_reads += 1
        return found

    def _entered_count(self) -> int:
        found = next(self._entered) - self._entered_reads
        self._entered_reads += 1
        return found

    def _refresh(self) -> list[tuple[str, str, str, int]]:
        """Say anew which way calls go, and take what has changed; the lock is held."""
        machine = self._machine
        self._calm = machine.ticket if machine.calm() else None
        self._easy = None if self._timed else self._calm
        self._edge = machine.window.edge * 1000 - self._offset
        if not machine.changes:
            return NOTHING
        changes, machine.changes = machine.changes, []
        return changes

    def _tell(self, changes: list[tuple[str, str, str, int]], kind: str, now: int) -> None:
        """Tell the listeners; no lock is held."""
        if not self._listeners:
            return
        if kind:
            tell(self._listeners, f"breaker.{kind}", self._name, now)
        for before, after, why, at in changes:
            tell(
                self._listeners, "breaker.state", self._name, at,
                before=before, state=after, why=why,
            )  # fmt: skip
