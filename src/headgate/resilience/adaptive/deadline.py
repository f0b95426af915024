"""Deadline: can a call still finish in time? Told by how long calls took of late, and by the line.

Work that ends too late is work for nothing, and the more there is of it the later all the rest
gets. Who cannot make it is told at once.
"""

from __future__ import annotations

from ..rolling import Rolling

__all__ = ["Forecast"]

FEW = 10
"""With fewer calls to learn from, nothing is foretold."""


class Forecast:
    """How long a call will take, from the last `seconds`; the caller holds the lock.

    share  of calls take no longer than is foretold: 0.9 is sure of nine of ten
    """

    __slots__ = ("_fresh", "_mean", "_service", "_until", "rolling", "share")

    def __init__(self, share: float = 0.9, seconds: float = 10.0) -> None:
        if isinstance(share, bool) or not isinstance(share, int | float):
            raise TypeError(f"foresee is a number from 0 to 1, not {share!r}")
        if not 0 < share <= 1:
            raise ValueError(f"foresee is above 0 and at most 1, not {share!r}")
        self.share = share
        self.rolling = Rolling(seconds)
        self._until = -1
        self._mean = self._service = 0.0
        self._fresh = 0

    def add(self, took: int, now: int) -> None:
        """A call took so long, in microseconds."""
        self.rolling.add(took, now)
        self._fresh += 1
        if self._fresh < 2 * FEW:  # while little is known, each call changes the picture
            self._until = -1

    def _read(self, now: int) -> None:
        """Look at the numbers, a hundred times in their span at most: it takes a while."""
        if now < self._until:
            return
        rolling = self.rolling
        self._until = now + rolling.width * rolling.slices // 100
        count = rolling.count(now)
        if count < 2 * FEW:
            self._fresh = min(self._fresh, count)
        if count < FEW:
            self._mean = self._service = 0.0
            return
        self._mean = rolling.mean(now) or 0.0
        self._service = float(rolling.percentile(self.share, now) or 0)

    def service(self, now: int) -> float:
        """How long a call takes once it has begun, in microseconds; 0 if nobody knows."""
        self._read(now)
        return self._service

    def turn(self, ahead: int, limit: int, now: int) -> float:
        """How long until `ahead` calls have ended, of `limit` that run at once; 0: unknown."""
        self._read(now)
        return self._mean * ahead / max(1, limit)

    def clear(self) -> None:
        """Forget everything."""
        self.rolling.clear()
        self._until, self._fresh = -1, 0
