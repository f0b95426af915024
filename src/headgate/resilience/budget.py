"""RetryBudget: how many of all calls may be retries, or retries make a bad day worse."""

from __future__ import annotations

import threading
from itertools import count

from ..clock import MICROSECONDS, Clock, ticks_of
from .deadlines import clock_of
from .forking import begin_anew

__all__ = ["RetryBudget"]


class RetryBudget:
    """A bucket of retries: every call puts a share of one in, every retry takes one out.

    share    how many retries a call earns: 0.2 is one retry for five calls
    reserve  how many retries a second there are in any case, so that a quiet client can retry
    most     how many retries the bucket holds; it begins full

    Over any time, retries are at most `most + share x calls + reserve x seconds`. One budget may
    serve many Retry objects: those that call the same dependency should share one.
    """

    def __init__(
        self,
        share: float = 0.2,
        *,
        reserve: float = 1.0,
        most: float = 10.0,
        clock: Clock | None = None,
    ) -> None:
        # Millionths of a retry: whole numbers, which a microsecond's reserve is as well.
        self._share = ticks_of(share, "share")
        self._reserve = ticks_of(reserve, "reserve")
        self._most = ticks_of(most, "most")
        if not 0 <= share <= 1:
            raise ValueError(f"share is a share between 0 and 1 (0.2 is a fifth), not {share!r}")
        if self._reserve < 0 or self._most < MICROSECONDS:
            raise ValueError(f"reserve is from 0 on and most from 1 on, not {reserve!r}, {most!r}")
        self._clock = clock_of(clock)
        self._lock = threading.Lock()
        self._held = self._most
        self._at = self._clock.micros()
        self._rest = 0
        # `next` is one piece for the interpreter, so counting a call takes no lock.
        self.call = count().__next__
        """Count a call."""
        self._reads = 0
        self._seen = 0
        begin_anew(self)

    def take(self) -> bool:
        """Take one retry; False if there is none."""
        with self._lock:
            self._fill()
            if self._held < MICROSECONDS:
                return False
            self._held -= MICROSECONDS
            return True

    @property
    def left(self) -> float:
        """How many retries there are now."""
        with self._lock:
            self._fill()
            return self._held / MICROSECONDS

    def _fill(self) -> None:
        # A counter shows its number only by going on, so we count how often we looked.
        calls = self.call() - self._reads
        self._reads += 1
        now = max(self._at, self._clock.micros())
        earned, self._rest = divmod((now - self._at) * self._reserve + self._rest, MICROSECONDS)
        earned += (calls - self._seen) * self._share
        self._seen, self._at = calls, now
        self._held = min(self._most, self._held + earned)

    def after_fork(self) -> None:
        """In a child: whoever held the lock stayed behind."""
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"<RetryBudget {self.left:g} left>"
