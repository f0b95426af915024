"""Deadlines: until when the work at hand is of use, seen by everything it calls.

A deadline lives in a context variable. Tasks made below it have it too, and so have the threads
of a pool of ours; a thread that somebody starts by hand begins without one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from time import monotonic

from ..clock import MICROSECONDS, Clock, SystemClock, ticks_of
from .errors import TimeLimitExceeded

__all__ = [
    "DEADLINE",
    "SYSTEM",
    "Deadline",
    "Span",
    "check_deadline",
    "clock_of",
    "deadline_in",
    "sooner",
    "span_of",
    "time_left",
    "until_of",
]

SYSTEM = SystemClock()
"""The clock of everybody who was given none, so that their instants can be compared."""


def clock_of(clock: Clock | None) -> Clock:
    """The clock to use: all of the system's are one."""
    return SYSTEM if clock is None or isinstance(clock, SystemClock) else clock


def span_of(seconds: float, what: str) -> int:
    """A span in microseconds, or an error that says what it must be."""
    ticks = ticks_of(seconds, what)
    if ticks < 1:
        raise ValueError(f"{what} is a number of seconds above 0, not {seconds!r}")
    return ticks


class Span:
    """So many microseconds of a clock, from a reading on that is made as quickly as can be."""

    __slots__ = ("clock", "read", "ticks")

    def __init__(self, ticks: int, clock: Clock) -> None:
        self.ticks = ticks
        self.clock = clock
        self.read: Callable[[], float] = monotonic if clock is SYSTEM else clock.micros
        """Seconds as the system has them, which is quickest; else the clock's microseconds."""

    def until(self, begun: float) -> int:
        """The instant, in microseconds, at which a span that was begun at a reading is over."""
        if self.clock is SYSTEM:
            begun = round(begun * MICROSECONDS) + SYSTEM.offset // 1000
        return int(begun) + self.ticks


Deadline = tuple[float, Span]
"""A reading, and the span from there on; nobody computes the instant before it is needed."""
DEADLINE: ContextVar[Deadline | None] = ContextVar("headgate_deadline", default=None)


def until_of(deadline: Deadline | None, clock: Clock) -> tuple[int | None, Clock]:
    """The instant of a deadline and whose it is, for whoever waits."""
    if deadline is None:
        return None, clock
    begun, span = deadline
    return span.until(begun), span.clock


def ticks_left(deadline: Deadline) -> int:
    """Microseconds until a deadline; negative once it has passed."""
    begun, span = deadline
    return span.until(begun) - span.clock.micros()


def sooner(ours: Deadline, other: Deadline | None) -> Deadline:
    """The earlier of two deadlines."""
    if other is None:
        return ours
    if other[1].clock is ours[1].clock:
        return other if other[1].until(other[0]) < ours[1].until(ours[0]) else ours
    return other if ticks_left(other) < ticks_left(ours) else ours


def time_left() -> float | None:
    """Seconds until the work at hand must be done; 0 if it is too late, None if nobody said."""
    deadline = DEADLINE.get()
    return None if deadline is None else max(0, ticks_left(deadline)) / MICROSECONDS


def check_deadline(name: str = "") -> None:
    """Raise TimeLimitExceeded if the work at hand is too late; for long loops of plain code."""
    deadline = DEADLINE.get()
    if deadline is not None and (left := ticks_left(deadline)) <= 0:
        raise TimeLimitExceeded(f"the deadline passed {-left / MICROSECONDS:g} s ago", name)


@contextmanager
def deadline_in(seconds: float, clock: Clock | None = None) -> Iterator[None]:
    """Say how long the work inside is of use, as a caller's header may say it.

    Nothing is stopped by this alone. A deadline never moves later: an earlier one stays.
    """
    span = Span(max(0, ticks_of(seconds, "a deadline")), clock_of(clock))
    token = DEADLINE.set(sooner((span.read(), span), DEADLINE.get()))
    try:
        yield
    finally:
        DEADLINE.reset(token)
