"""Samples: many calls put together into one sample for the estimator.

One answer of an estimator takes a round trip to show in how long calls take. Who asked it again
for each call in between would double every step, so calls are gathered for a while; and after
the limit fell, calls that began before are left out, as they tell of the time before.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Sample", "Samples"]


MINUTE = 60_000_000


class Sample(NamedTuple):
    """What the estimator hears of a span of time."""

    rtt: int
    """The mean, in microseconds."""
    in_flight: int
    """The most."""
    dropped: bool = False
    """Whether any call was."""


class Samples:
    """Gathers for at least `width` microseconds, twice the time of a call, and `least` calls.

    With a width of 0 every call is a sample by itself.
    """

    __slots__ = ("_count", "_dropped_sum", "_drops", "_in_flight", "_next", "_since",
                 "_sum", "least", "width")  # fmt: skip

    def __init__(self, width: int, least: int) -> None:
        self.width = width
        self.least = least
        self._since = self._next = -1
        self._clear()

    def _clear(self) -> None:
        self._count = self._sum = self._in_flight = self._drops = self._dropped_sum = 0

    def add(self, started: int, now: int, in_flight: int, dropped: bool = False) -> Sample | None:
        """Count a call in; a sample, if it is time for one."""
        rtt = max(0, now - started)
        if not self.width:
            return Sample(rtt, in_flight, dropped)
        if started < self._since:
            return None
        if in_flight > self._in_flight:
            self._in_flight = in_flight
        if dropped:
            self._drops += 1
            self._dropped_sum += rtt
        else:
            self._count += 1
            self._sum += rtt
        if self._next < 0:
            self._next = now + self._span(rtt)
        if now < self._next or self._count + self._drops < self.least:
            return None
        # A call that was given up after its time tells of that time, not of the server's.
        mean = self._sum // self._count if self._count else self._dropped_sum // self._drops
        sample = Sample(mean, self._in_flight, self._drops > 0)
        self._next = now + self._span(mean)
        self._clear()
        return sample

    def _span(self, rtt: int) -> int:
        """How long to gather; however slow calls are, a minute is enough to learn from."""
        return max(self.width, min(2 * rtt, MINUTE))

    def fell(self, now: int) -> None:
        """The limit fell: what began before now is of no use any more."""
        self._since = now
        self._clear()
