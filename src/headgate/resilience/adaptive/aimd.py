"""AIMD: one more while all goes well, a share less when a call is dropped or too slow."""

from __future__ import annotations

from ...clock import ticks_of
from .estimator import bounds, share

__all__ = ["AIMD"]


class AIMD:
    """Additive increase, multiplicative decrease, as TCP did it first.

    initial, least, most  where the limit begins, and its bounds
    backoff               what is left of the limit after a drop
    timeout               a call that takes longer (seconds) counts as dropped
    """

    def __init__(
        self,
        initial: int = 20,
        least: int = 20,
        most: int = 200,
        backoff: float = 0.9,
        timeout: float = 5.0,
    ) -> None:
        bounds(initial, min(least, initial), most)
        self.limit = initial
        self.least = min(least, initial)
        self.most = most
        if not 0.5 <= backoff < 1:
            raise ValueError(f"backoff is at least 0.5 and below 1, not {backoff!r}")
        self.backoff = share("backoff", backoff)
        self.timeout = ticks_of(timeout, "timeout")
        if self.timeout < 1:
            raise ValueError(f"timeout is above 0 seconds, not {timeout!r}")

    def sample(self, rtt: int, in_flight: int, dropped: bool = False) -> int:
        """Hear of a call; returns the limit from now on."""
        limit = self.limit
        if dropped or rtt > self.timeout:
            limit = int(limit * self.backoff)
        elif in_flight * 2 >= limit:  # a limit that nobody comes near has not been tried
            limit += 1
        self.limit = max(self.least, min(self.most, limit))
        return self.limit

    def __repr__(self) -> str:
        return f"<AIMD {self.limit}>"
