"""Clocks: whole microseconds since the epoch that never go back."""

from __future__ import annotations

import heapq
import itertools
import math
import threading
import time
from collections.abc import Callable
from typing import Protocol, runtime_checkable

__all__ = ["Clock", "ManualClock", "SystemClock", "Timer", "seconds", "ticks_of", "ttl_of"]

MICROSECONDS = 1_000_000
LATEST = 2**53
"""Instants stay below this, in microseconds: up to the year 2255."""


def ticks_of(value: float, what: str) -> int:
    """Seconds as whole microseconds, or an error that names what was wrong."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{what} is a number of seconds, not {type(value).__name__}")
    if not math.isfinite(value):
        raise ValueError(f"{what} is a finite number of seconds, not {value!r}")
    return round(value * MICROSECONDS)


def ttl_of(ttl: float) -> int:
    """A time to live in whole microseconds, or an error that says what it must be."""
    micros = ticks_of(ttl, "ttl")
    if micros < 1:
        raise ValueError(f"ttl is a number of seconds above 0, not {ttl!r}")
    return micros


def seconds(microseconds: int) -> float:
    """Whole microseconds as seconds."""
    return microseconds / MICROSECONDS


class Timer(Protocol):
    """A call that was planned and can be called off."""

    def cancel(self) -> object: ...


@runtime_checkable
class Clock(Protocol):
    """What tells the time; a store owns one."""

    def now(self) -> float:
        """Seconds since the epoch."""
        ...

    def micros(self) -> int:
        """Whole microseconds since the epoch."""
        ...


class SystemClock:
    """Wall time sampled once, carried on by the monotonic clock: a step of the wall clock
    changes nothing."""

    __slots__ = ("offset",)

    def __init__(self) -> None:
        self.offset = time.time_ns() - time.monotonic_ns()

    def micros(self) -> int:
        """Whole microseconds since the epoch."""
        return (time.monotonic_ns() + self.offset) // 1000

    def now(self) -> float:
        """Seconds since the epoch."""
        return self.micros() / MICROSECONDS

    def __repr__(self) -> str:
        return "SystemClock()"


class ManualClock:
    """A clock that stands still until it is told to move; for tests and simulations."""

    def __init__(self, start: float = 0.0) -> None:
        self._micros = ticks_of(start, "start")
        if not 0 <= self._micros < LATEST:
            raise ValueError(f"a clock shows the epoch to the year 2255, not {start!r}")
        self._lock = threading.RLock()
        self._timers: list[tuple[int, int, _ManualTimer]] = []
        self._sequence = itertools.count()
        self._tidy_at = 64

    def micros(self) -> int:
        """Whole microseconds since the epoch."""
        return self._micros

    def now(self) -> float:
        """Seconds since the epoch."""
        return self._micros / MICROSECONDS

    def advance(self, seconds: float) -> None:
        """Jump ahead, then wake whoever waited for an instant up to the new time, in order."""
        step = ticks_of(seconds, "a step")
        if step < 0:
            raise ValueError(f"a clock moves ahead, not by {seconds!r} s; see turn_back")
        with self._lock:
            if self._micros + step >= LATEST:
                raise ValueError("a clock does not go beyond the year 2255")
            self._micros += step
        self._fire()

    def turn_back(self, seconds: float) -> None:
        """Move the clock backwards, as a broken machine would; wakes nobody."""
        with self._lock:
            self._micros = max(0, self._micros - ticks_of(seconds, "a step"))

    def next_wakeup(self) -> float | None:
        """The earliest instant (seconds since the epoch) somebody waits for, or None."""
        with self._lock:
            self._drop_cancelled()
            return self._timers[0][0] / MICROSECONDS if self._timers else None

    def call_at(self, micros: int, call: Callable[[], object]) -> Timer:
        """Run `call` as soon as the time has come; in the thread that moves the clock."""
        timer = _ManualTimer(call)
        with self._lock:
            if len(self._timers) >= self._tidy_at:
                self._tidy()
            heapq.heappush(self._timers, (micros, next(self._sequence), timer))
            due = micros <= self._micros
        if due:  # only this one: other calls may belong to somebody whose lock is held
            timer.run()
        return timer

    def _fire(self) -> None:
        while True:
            with self._lock:
                self._drop_cancelled()
                if not self._timers or self._timers[0][0] > self._micros:
                    return
                timer = heapq.heappop(self._timers)[2]
            # Outside the lock: what is called may plan its next call or read the clock.
            timer.run()

    def _tidy(self) -> None:
        """Forget timers that were called off, before they outnumber the others."""
        self._timers = [entry for entry in self._timers if entry[2].call is not None]
        heapq.heapify(self._timers)
        self._tidy_at = 64 + 2 * len(self._timers)

    def _drop_cancelled(self) -> None:
        while self._timers and self._timers[0][2].call is None:
            heapq.heappop(self._timers)

    def __repr__(self) -> str:
        return f"ManualClock({self.now()!r})"


class _ManualTimer:
    __slots__ = ("call",)

    def __init__(self, call: Callable[[], object]) -> None:
        self.call: Callable[[], object] | None = call

    def run(self) -> None:
        call, self.call = self.call, None
        if call is not None:
            call()

    def cancel(self) -> None:
        self.call = None
