"""Rolling: the last seconds, one by one, in rings of a fixed size.

Nothing is done for a call. Once a second somebody calls `tick`, and what was counted since the
last time is entered as that second's; after a pause it is spread evenly over the seconds that
were missed. As the counts are those of all workers, so are the rings.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from .buckets import LATENCIES, WAITS, percentile
from .counts import LATENCY_SUM, RESULTS, WAIT_SUM, WAITED

__all__ = ["Rolling", "summary"]

COLUMNS = len(RESULTS)
LARGEST = 2**32 - 1
MOST = 1000
"""So many rules have a ring; of others only their counts are known."""
Cells = Mapping[str, Sequence[int]]


class Rolling:
    """Numbers per second by rule, for the last `seconds` seconds."""

    def __init__(self, seconds: int = 300) -> None:
        if isinstance(seconds, bool) or not isinstance(seconds, int) or not 2 <= seconds <= 3600:
            raise ValueError(f"seconds is a whole number from 2 to 3600, not {seconds!r}")
        self.seconds = seconds
        self.at = 0
        """The last second that was entered."""
        self._rings: dict[str, array[int]] = {}
        self._last: dict[str, Sequence[int]] = {}
        self._times: deque[tuple[int, tuple[int, ...], tuple[int, ...]]] = deque(maxlen=seconds)
        """By second: the buckets of the store's time and of waiting, as they were then."""

    def tick(self, now: int, rules: Cells, store: Sequence[int]) -> bool:
        """Enter what was counted until `now`, a whole second; False if that is done."""
        if now <= self.at:
            return False
        # The first time there is nothing to compare with; what was counted before is not now.
        new = not self.at
        missed = self.seconds if new else min(now - self.at, self.seconds)
        for ring in self._rings.values():
            for second in range(now - missed + 1, now + 1):
                start = second % self.seconds * COLUMNS
                ring[start : start + COLUMNS] = _EMPTY
        waited = [0] * (WAIT_SUM - WAITED + 1)
        for name, cells in rules.items():
            if name:
                waited = [a + b for a, b in zip(waited, cells[WAITED : WAIT_SUM + 1], strict=True)]
            before = self._last.get(name)
            if not new:
                self._enter(name, now, missed, cells, before or _EMPTY)
        self._last = dict(rules)
        self._times.append((now, tuple(store[: LATENCY_SUM + 1]), tuple(waited)))
        self.at = now
        return True

    def _enter(
        self, name: str, now: int, missed: int, cells: Sequence[int], before: Sequence[int]
    ) -> None:
        change = [max(0, cells[each] - before[each]) for each in range(COLUMNS)]
        if not any(change):
            return
        ring = self._rings.get(name)
        if ring is None:
            if len(self._rings) >= MOST:
                return
            ring = self._rings[name] = array("I", bytes(4 * COLUMNS * self.seconds))
        for column, count in enumerate(change):
            each, rest = divmod(count, missed)
            for place in range(missed):
                second = (now - place) % self.seconds
                share = each + (1 if place < rest else 0)  # what is left over belongs to the end
                ring[second * COLUMNS + column] = min(share, LARGEST)

    def second(self, at: int | None = None) -> dict[str, dict[str, int]]:
        """What was counted in one second, by rule and result; without what is nothing."""
        at = self.at if at is None else at
        if not self.at - self.seconds < at <= self.at:
            return {}
        start, found = at % self.seconds * COLUMNS, {}
        for name, ring in list(self._rings.items()):
            numbers = ring[start : start + COLUMNS]
            if any(numbers):
                found[name] = {r: n for r, n in zip(RESULTS, numbers, strict=True) if n}
        return found

    def history(self, seconds: int = 60) -> dict[str, dict[str, list[int]]]:
        """The last seconds, oldest first, by rule and result; results that never came left out."""
        seconds = max(0, min(seconds, self.seconds))
        order = [each % self.seconds for each in range(self.at - seconds + 1, self.at + 1)]
        found: dict[str, dict[str, list[int]]] = {}
        for name, ring in list(self._rings.items()):
            for column, result in enumerate(RESULTS):
                numbers = [ring[second * COLUMNS + column] for second in order]
                if any(numbers):
                    found.setdefault(name, {})[result] = numbers
        return found

    def times(self, seconds: int = 60) -> dict[str, dict[str, Any]]:
        """How long the store took and calls waited in the last seconds."""
        times = list(self._times)  # a copy, as another thread may tick
        if not times:
            return {"store": summary((), LATENCIES), "wait": summary((), WAITS)}
        last, store, waited = times[-1]
        first = next((each for each in times if each[0] >= last - seconds), None)
        if first is not None and len(times) > 1:
            store = tuple(a - b for a, b in zip(store, first[1], strict=True))
            waited = tuple(a - b for a, b in zip(waited, first[2], strict=True))
        return {"store": summary(store, LATENCIES), "wait": summary(waited, WAITS)}


def summary(cells: Sequence[int], bounds: Sequence[float]) -> dict[str, Any]:
    """Buckets and their sum in nanoseconds, as numbers that people read, in seconds."""
    counts = [max(0, count) for count in cells[: len(bounds) + 1]]
    total = sum(counts)
    found: dict[str, Any] = {"count": total}
    if total:
        found["mean"] = _rounded(max(0, cells[len(bounds) + 1]) / 1e9 / total)
        for name, share in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99)):
            found[name] = _rounded(percentile(counts, bounds, share))
    return found


def _rounded(seconds: float) -> float:
    return float(f"{seconds:.3g}")


_EMPTY = array("I", bytes(4 * COLUMNS))
