"""Rolling: percentiles, mean and pace of the last seconds, in memory of a fixed size.

Values are whole microseconds. Each slice of time counts them in steps of a sixteenth of a power
of two, so a percentile is at most 6.25 % above the true one, whatever the values are; a sum over
all slices is kept along, so that reading does not add them up.
"""

from __future__ import annotations

import math
import threading
from array import array

from ..clock import ticks_of

__all__ = ["Rolling"]

FINE = 16
"""Steps in each power of two."""
BITS = 40
"""Larger values, beyond twelve days, count as that."""
LARGEST = 2**BITS - 1
STEPS = FINE * (BITS - 5) + 2 * FINE


class Rolling:
    """Numbers of the last `seconds`, which pass away in `slices` parts."""

    __slots__ = ("_all", "_at", "_counts", "_first", "_least", "_lock", "_most", "_steps", "_sums",
                 "slices", "width")  # fmt: skip

    def __init__(self, seconds: float = 10.0, slices: int = 10) -> None:
        if isinstance(slices, bool) or not isinstance(slices, int) or not 1 <= slices <= 1000:
            raise ValueError(f"slices is a whole number from 1 to 1000, not {slices!r}")
        self.width = ticks_of(seconds, "seconds") // slices
        """The length of a slice, in microseconds."""
        if self.width < 1:
            raise ValueError(f"seconds must be above 0, not {seconds!r}")
        self.slices = slices
        self._lock = threading.Lock()
        self.clear()

    def clear(self) -> None:
        """Forget everything."""
        # A new lock: whoever clears after a fork cannot wait for a thread that is not there.
        self._lock = threading.Lock()
        self._at = self._first = -1
        self._counts = [0] * self.slices
        self._sums = [0] * self.slices
        self._least = [0] * self.slices
        self._most = [0] * self.slices
        self._steps: list[array[int] | None] = [None] * self.slices
        self._all = array("q", bytes(8 * STEPS))

    def add(self, value: int, now: int) -> None:
        """Count a value at an instant; both in microseconds."""
        value = min(max(value, 0), LARGEST)
        step = _step(value)
        with self._lock:
            slot = self._turn(now)
            steps = self._steps[slot]
            if steps is None:
                steps = self._steps[slot] = array("I", bytes(4 * STEPS))
            if self._first < 0:
                self._first = self._at
            steps[step] += 1
            self._all[step] += 1
            if not self._counts[slot]:
                self._least[slot] = self._most[slot] = value
            elif value < self._least[slot]:
                self._least[slot] = value
            elif value > self._most[slot]:
                self._most[slot] = value
            self._counts[slot] += 1
            self._sums[slot] += value

    def count(self, now: int) -> int:
        """How many values there are."""
        with self._lock:
            self._turn(now)
            return sum(self._counts)

    def mean(self, now: int) -> float | None:
        """Their mean, in microseconds; None if there are none."""
        with self._lock:
            self._turn(now)
            count = sum(self._counts)
            return sum(self._sums) / count if count else None

    def percentile(self, share: float, now: int) -> int | None:
        """The value that a share of all (0.99: 99 %) do not exceed; None if there are none."""
        if not 0 <= share <= 1:
            raise ValueError(f"a share is a number from 0 to 1, not {share!r}")
        with self._lock:
            self._turn(now)
            count = sum(self._counts)
            if not count:
                return None
            rank, seen = max(1, math.ceil(share * count)), 0
            most = max(m for m, n in zip(self._most, self._counts, strict=True) if n)
            for step, number in enumerate(self._all):
                seen += number
                if seen >= rank:
                    return min(_upper(step), most)
            raise AssertionError("the sum of all slices has lost a value")

    def least(self, now: int) -> int | None:
        """The smallest value; None if there are none."""
        with self._lock:
            self._turn(now)
            found = [low for low, n in zip(self._least, self._counts, strict=True) if n]
            return min(found) if found else None

    def pace(self, now: int) -> tuple[int, float] | None:
        """The most values of any slice, and the least mean of those with a tenth of it or more.

        None until a whole slice was seen: a part of one would tell of a slower pace.
        """
        with self._lock:
            self._turn(now)
            pairs = [pair for pair in zip(self._counts, self._sums, strict=True) if pair[0]]
            if not pairs or self._at - self._first < 2:
                return None
            most = max(self._counts)
            return most, min(total / count for count, total in pairs if 10 * count >= most)

    def _turn(self, now: int) -> int:
        """The slice of this instant, after what has passed away is forgotten."""
        at = now // self.width
        if at <= self._at:  # a clock that goes back stays where it was
            return self._at % self.slices
        for gone in range(max(self._at + 1, at - self.slices + 1), at + 1):
            slot = gone % self.slices
            if self._counts[slot]:
                steps, every = self._steps[slot], self._all
                assert steps is not None
                for step, number in enumerate(steps):
                    if number:
                        every[step] -= number
                        steps[step] = 0
                self._counts[slot] = self._sums[slot] = 0
        self._at = at
        if self._first >= 0 and not any(self._counts):  # a new beginning after a pause
            self._first = -1
        return at % self.slices


def _step(value: int) -> int:
    shift = value.bit_length() - 5
    return value if shift <= 0 else FINE * shift + (value >> shift)


def _upper(step: int) -> int:
    """The largest value that is counted in a step."""
    shift = max(0, step // FINE - 1)
    return ((step - FINE * shift + 1) << shift) - 1
