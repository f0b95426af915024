"""What the tests of leases share: a leased limit, and a key that is asked for often."""

from __future__ import annotations

from far import FarStore
from headgate import Limiter

LEASED = "1600/hour fixed-window lease"


def grown(limiter: Limiter, far: FarStore, key: str = "k", times: int = 60) -> int:
    """Hit a key until it is leased in large chunks; how many hits that took."""
    for _ in range(times):
        assert limiter.hit(key).allowed
    return times
