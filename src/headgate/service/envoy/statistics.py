"""Statistics: what happened under each rule, by the names that envoyproxy/ratelimit has."""

from __future__ import annotations

from array import array
from struct import pack, unpack

__all__ = ["Counters", "Statistics", "near_of"]

MOST = 10_000
"""So many rules are counted by themselves: names that hold values of requests have no end."""
PREFIX = "ratelimit.service"
NAMES = (
    "total_hits", "over_limit", "near_limit", "within_limit", "shadow_mode",
    "over_limit_with_local_cache",
)  # fmt: skip
(RATIO,) = array("f", [0.8])
"""The share of a limit from which on it is near, as a number of 32 bits, which others use."""


def near_of(quota: int) -> int:
    """From how many hits on a limit is near."""
    (single,) = unpack("f", pack("f", quota))
    (product,) = unpack("f", pack("f", single * RATIO))
    return int(product)


class Counters:
    """What happened under one rule, in hits."""

    __slots__ = NAMES

    total_hits: int
    over_limit: int
    near_limit: int
    within_limit: int
    shadow_mode: int
    over_limit_with_local_cache: int

    def __init__(self) -> None:
        self.total_hits = self.over_limit = self.near_limit = self.within_limit = 0
        self.shadow_mode = self.over_limit_with_local_cache = 0

    def passed(self, hits: int, quota: int, near: int, left: int) -> None:
        """So many hits passed, and so much is left."""
        self.total_hits += hits
        self.within_limit += hits
        after = quota - left
        if after > near:  # of several hits only those beyond the mark are near
            self.near_limit += min(hits, after - near)

    def refused(self, hits: int, quota: int, near: int, left: int, shadow: bool) -> None:
        """So many hits were too many for what was left."""
        self.total_hits += hits
        if left <= 0 or hits <= left:
            self.over_limit += hits
        else:
            self.over_limit += hits - left
            self.near_limit += quota - max(near, quota - left)
        if shadow:
            self.shadow_mode += hits

    def __iadd__(self, other: Counters) -> Counters:
        for name in NAMES:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        return self


class Statistics:
    """The counters of all rules, and those of the service."""

    def __init__(self) -> None:
        self.rules: dict[str, Counters] = {}
        """By domain, keys and values: `shop.user_anna.path`."""
        self.unmatched = Counters()
        self.service_error = 0
        """Requests that were wrong in themselves."""
        self.store_error = 0
        """Requests that failed with the store."""
        self.global_shadow_mode = 0
        """Requests that passed only because the whole service is in shadow."""

    def of(self, name: str, otherwise: str = "") -> Counters:
        """The counters of a name; of the other one, if there are too many names already."""
        found = self.rules.get(name)
        if found is None:
            if len(self.rules) >= MOST:
                found = self.rules.get(otherwise)
                return self.unmatched if found is None else found
            found = self.rules[name] = Counters()
        return found

    def told(self) -> dict[str, int]:
        """All of it, by the names that envoyproxy/ratelimit has."""
        call = f"{PREFIX}.call.should_rate_limit"
        found = {
            f"{call}.redis_error": self.store_error,
            f"{call}.service_error": self.service_error,
            f"{PREFIX}.global_shadow_mode": self.global_shadow_mode,
        }
        for rule, counters in list(self.rules.items()):
            for name in NAMES:
                found[f"{PREFIX}.rate_limit.{rule}.{name}"] = getattr(counters, name)
        return found
