"""Gradient2: calls now, beside calls over a long time; the limit follows their ratio."""

from __future__ import annotations

from .estimator import Step, bounds, checked, share

__all__ = ["Average", "Gradient2"]

WARM = 10
"""So many first samples are averaged as they are."""
PATIENCE = 10
"""So many samples a queue has to run dry; else the long time stays what it was."""


class Average:
    """An exponential average over about `window` samples."""

    __slots__ = ("_total", "count", "factor", "value")

    def __init__(self, window: int) -> None:
        self.factor = 2 / (window + 1)
        self.count = 0
        self.value = self._total = 0.0

    def add(self, sample: float) -> float:
        """Count a sample in; returns the average."""
        if self.count < WARM:
            self.count += 1
            self._total += sample
            self.value = self._total / self.count
        else:
            self.value += (sample - self.value) * self.factor
        return self.value


class Gradient2:
    """limit = limit * gradient + queue, with gradient = tolerance * long time / time now, between
    0.5 and 1.

    initial, least, most  where the limit begins, and its bounds
    smoothing             how much of the new limit counts
    queue                 how many calls may stand in a queue: a number, or a function of the limit
    window                the long time is an average over so many samples
    tolerance             how much slower than that is still well: 1.5 lets half as many again
                          wait as the server can work on; 1.1 keeps close to what it can
    drain                 after so many samples the limit is halved for a moment, and the long
                          time begins anew with what is measured then; else, under load that
                          never ebbs, it takes in the queue and the limit creeps up. 0: never, as
                          in the original
    """

    def __init__(
        self,
        initial: int = 20,
        least: int = 20,
        most: int = 200,
        *,
        smoothing: float = 0.2,
        queue: Step | int = 4,
        window: int = 600,
        tolerance: float = 1.5,
        drain: int = 200,
    ) -> None:
        self.least = min(least, initial)
        self.most = most
        bounds(initial, self.least, most)
        self.smoothing = share("smoothing", smoothing)
        if not tolerance >= 1:
            raise ValueError(f"tolerance is at least 1, not {tolerance!r}")
        self.tolerance = float(tolerance)
        self.drain = checked("drain", drain, 0)
        self.long = Average(checked("window", window))
        self._queue = queue if callable(queue) else checked("queue", queue, 0)
        self._estimate = float(initial)
        self._samples = 0
        self._draining = 0

    @property
    def limit(self) -> int:
        """How many calls may be under way now."""
        if self._draining:
            return max(self.least, int(self._estimate) // 2)
        return int(self._estimate)

    def sample(self, rtt: int, in_flight: int, dropped: bool = False) -> int:
        """Hear of a call; returns the limit from now on."""
        now = float(max(1, rtt))
        if self._draining:
            self._draining -= 1
            if in_flight <= self.limit and not dropped:
                self._draining = 0
                self.long.count, self.long.value = WARM, now
            return self.limit
        self._samples += 1
        if self.drain and self._samples >= self.drain:
            self._draining, self._samples = PATIENCE, 0
            return self.limit
        long = self.long.add(now)
        if long / now > 2:  # after a bad time, be quick to believe in a good one
            self.long.value *= 0.95
        if in_flight < self._estimate / 2 and not dropped:
            return self.limit
        gradient = 0.5 if dropped else max(0.5, min(1.0, self.tolerance * long / now))
        queue = self._queue(self._estimate) if callable(self._queue) else self._queue
        limit = self._estimate * gradient + queue
        limit = self._estimate * (1 - self.smoothing) + limit * self.smoothing
        self._estimate = max(self.least, min(self.most, limit))
        return self.limit

    def __repr__(self) -> str:
        return f"<Gradient2 {self.limit}, long {self.long.value / 1000:g} ms>"
