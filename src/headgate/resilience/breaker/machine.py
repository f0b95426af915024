"""Machine: a breaker's state, and how calls and time change it; no clock, no lock, no I/O.

`admit(now)` gives a token or None, `record(token, outcome, now)` tells how the call went. A token
of an earlier state says nothing about the present one. Instants are whole microseconds.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from .outcomes import FAILURE, IGNORED
from .states import (
    CLOSED,
    DISABLED,
    HALF_OPEN,
    METRICS_ONLY,
    OPEN,
    RAMP,
    RAMPED,
    RECOVERING,
    STATES,
    TRIP,
    WAITED,
    WELL,
    target,
)
from .windows import FAILED, SLOW, window_of

if TYPE_CHECKING:
    from .settings import Settings

__all__ = ["Machine", "Probe"]

WHOLE = 1_000_000
"""A share of all calls: shares are counted in millionths."""
LATE = 2**53
"""Longer than any call, in microseconds."""


class Probe:
    """One call while half open; it has until `due` to end."""

    __slots__ = ("due", "started", "ticket")

    def __init__(self, ticket: int, started: int, due: int) -> None:
        self.ticket = ticket
        self.started = started
        self.due = due


class Machine:
    """One breaker's state."""

    __slots__ = ("_done", "_failed", "_lease", "_live", "_most", "_ramp", "_share", "_slow",
                 "attempt", "changes", "opened", "settings", "since", "slow_after", "state",
                 "ticket", "until", "window")  # fmt: skip

    def __init__(self, settings: Settings, now: int) -> None:
        self.state = CLOSED
        self.since = now
        self.ticket = 1000  # whoever compares tickets by identity meets no number kept by Python
        self.until = 0
        """When it may leave open."""
        self.attempt = 0
        """How often it has opened in a row."""
        self.opened = 0
        self.changes: list[tuple[str, str, str, int]] = []
        """Before, after, why and when; whoever asks takes them out."""
        self._done = self._failed = self._slow = self._share = 0
        self._live: deque[Probe] = deque()
        self.use(settings, now)

    def use(self, settings: Settings, now: int) -> None:
        """Go on under other settings; what was counted is forgotten, the state stays."""
        self.settings = settings
        self.window = window_of(settings)
        self.window.clear(now)
        slow = settings.slow_after
        self.slow_after = LATE if slow is None else min(LATE, round(slow * 1e6))
        self._lease = round(settings.probe_lease * 1e6)
        most = settings.half_open_for
        self._most = LATE if most is None else round(most * 1e6)
        self._ramp = round(settings.ramp * 1e6)

    # -- calls

    def admit(self, now: int) -> Any:
        """A token for one call, or None: it is refused."""
        self.look(now, calling=True)
        state = self.state
        if state == HALF_OPEN:
            if len(self._live) + self._done >= self.settings.probes:
                return None
            probe = Probe(self.ticket, now, now + self._lease)
            self._live.append(probe)
            return probe
        if state == RECOVERING:
            # What is left over is kept, so any number of calls gets its share, up to one call.
            self._share += self._part(now)
            if self._share < WHOLE:
                return None
            self._share -= WHOLE
            return self.ticket, now
        return (self.ticket, now) if STATES[state].passes == "all" else None

    def record(self, token: Any, outcome: int, now: int, took: int | None = None) -> bool:
        """How a call went, and how long it took if somebody knows better than we do.

        The answer is whether it was slow.
        """
        if type(token) is Probe:
            ticket, started = token.ticket, token.started
        elif type(token) is tuple:
            ticket, started = token
        else:
            ticket, started = token, now  # nobody asked when it began
        slow = (now - started if took is None else took) > self.slow_after
        if ticket != self.ticket:
            return slow
        if self.state == HALF_OPEN:
            token.ticket = 0
            self._live.remove(token)
            if outcome != IGNORED:  # else somebody else may probe in its place
                self._probed(int(outcome == FAILURE), int(slow), now)
        elif outcome != IGNORED and STATES[self.state].counts:
            kind = (FAILED if outcome == FAILURE else 0) | (SLOW if slow else 0)
            self.window.add(kind, now)
            self._judge(now)
        return slow

    def absorb(self, count: int, now: int) -> None:
        """Calls that went well and were counted elsewhere, before anything that follows."""
        if STATES[self.state].counts and self.state != HALF_OPEN:
            self.window.add_good(count)
            self._judge(now)

    def calm(self) -> bool:
        """Whether calls that pass and go well change nothing but numbers: see `absorb`."""
        if self.state == CLOSED:
            return bool(self.window.harmless(self.settings.least))
        return self.state in (DISABLED, METRICS_ONLY)

    def look(self, now: int, *, calling: bool = False) -> None:
        """Let time do what it does."""
        if self.state == OPEN:
            if now >= self.until and (calling or self.settings.automatic):
                self._go(WAITED, "the wait is over", now)
        elif self.state == HALF_OPEN:
            while self._live and self._live[0].due <= now:
                self._live.popleft().ticket = 0  # should it end after all, nobody is interested
                self._probed(1, 1, now)
            if self._done >= self.settings.probes and self.state == HALF_OPEN:
                self._probed(0, 0, now)  # somebody was interrupted just before this
            if self.state == HALF_OPEN and now - self.since >= self._most:
                self._go(TRIP, "the probes took too long", now)
        elif self.state == RECOVERING and now - self.since >= self._ramp:
            self._go(RAMPED, "the ramp is over", now)

    def retry_after(self, now: int) -> int | None:
        """Microseconds until another call might pass; None if nobody can tell."""
        if self.state == OPEN:
            return max(0, self.until - now)
        if self.state == RECOVERING:
            return 0
        if self.state != HALF_OPEN:
            return None
        if len(self._live) + self._done < self.settings.probes:
            return 0
        return max(0, self._live[0].due - now) if self._live else None

    def abandon(self) -> None:
        """Nobody is left who could end the probes: others may probe in their place."""
        for probe in self._live:
            probe.ticket = 0  # but for a child that goes on with the call it was forked in
        self._live.clear()

    def probing(self) -> int:
        """How many probes are under way."""
        return len(self._live)

    # -- edges

    def switch(self, word: str, now: int, why: str) -> None:
        """What somebody does by hand; `word` is one of SWITCHES."""
        if target(self.state, word) != self.state:
            self._go(word, why, now)
        elif word == "close":
            self._begin(CLOSED, now)
        elif word == "open":
            self.until = now + self.settings.wait_micros(max(1, self.attempt))

    def reported(self) -> tuple[int, int, int]:
        """Calls, failures and slow calls that the present state goes by."""
        if self._done or self.state == HALF_OPEN:
            return self._done, self._failed, self._slow
        return self.window.total, self.window.failed, self.window.slow

    def _judge(self, now: int) -> None:
        if not STATES[self.state].trips:
            return
        window, least = self.window, self.settings.least
        if self.state == RECOVERING:
            least = min(least, self.settings.probes)
        if self.settings.exceeded(window.total, window.failed, window.slow, least):
            self._go(TRIP, _told(window.total, window.failed, window.slow), now)

    def _probed(self, failed: int, slow: int, now: int) -> None:
        self._done = min(self._done + 1, self.settings.probes)
        self._failed += failed
        self._slow += slow
        sick = self.settings.judged(self._done, self._failed, self._slow)
        if sick is None:
            return
        told = _told(self._done, self._failed, self._slow)
        if sick:
            self._go(TRIP, told, now)
        else:
            self._go(RAMP if self._ramp else WELL, told, now)

    def _part(self, now: int) -> int:
        """The share of calls that passes by now, in millionths."""
        first = round(self.settings.ramp_from * WHOLE)
        return first + (WHOLE - first) * max(0, now - self.since) // self._ramp

    def _go(self, happened: str, why: str, now: int) -> None:
        before = self.state
        after = target(before, happened)
        self._begin(after, now)
        self.changes.append((before, after, why, now))

    def _begin(self, state: str, now: int) -> None:
        """Begin a state. What is interrupted half-way is done again: the state comes last."""
        self.ticket += 1  # whatever is under way belongs to what was before
        self._live.clear()
        self._share = 0
        if state != OPEN or self.state != HALF_OPEN:  # while open, it shows what opened it
            self._done = self._failed = self._slow = 0
        if state == OPEN:
            self.until = now + self.settings.wait_micros(self.attempt + 1)
            self.attempt += 1
            self.opened += 1
        elif STATES[state].counts and state != HALF_OPEN:
            self.window.clear(now)
        if state not in (OPEN, HALF_OPEN, RECOVERING):
            self.attempt = 0
        self.since = now
        self.state = state


def _told(total: int, failed: int, slow: int) -> str:
    return f"{failed} of {total} calls failed" + (f", {slow} were slow" if slow else "")
