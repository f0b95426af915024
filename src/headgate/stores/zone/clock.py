"""ZoneClock: one time for all processes of a machine, whatever is done to its wall clock."""

from __future__ import annotations

import time

__all__ = ["ZoneClock"]


class ZoneClock:
    """The monotonic clock, plus an offset that the zone keeps."""

    __slots__ = ("offset",)

    def __init__(self, offset: int) -> None:
        self.offset = offset
        """In nanoseconds."""

    def micros(self) -> int:
        """Whole microseconds since the epoch."""
        return (time.monotonic_ns() + self.offset) // 1000

    def now(self) -> float:
        """Seconds since the epoch."""
        return self.micros() / 1_000_000

    def __repr__(self) -> str:
        return "ZoneClock()"
