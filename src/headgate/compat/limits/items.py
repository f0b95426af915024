"""Items: how many in how many of a unit of time, as values."""

from __future__ import annotations

from functools import lru_cache, total_ordering
from typing import ClassVar, NamedTuple

from ...limit import Limit

__all__ = [
    "GRANULARITIES",
    "Granularity",
    "RateLimitItem",
    "RateLimitItemPerDay",
    "RateLimitItemPerHour",
    "RateLimitItemPerMinute",
    "RateLimitItemPerMonth",
    "RateLimitItemPerSecond",
    "RateLimitItemPerYear",
]

HOUR = 3600
DAY = 24 * HOUR


class Granularity(NamedTuple):
    """A unit of time: its length in seconds, and its name."""

    seconds: int
    name: str


@total_ordering
class RateLimitItem:
    """`amount` in `multiples` units; the classes below say which unit.

    >>> RateLimitItemPerHour(10, 2)
    10 per 2 hour
    """

    __slots__ = ("amount", "multiples", "namespace")

    GRANULARITY: ClassVar[Granularity]

    def __init__(self, amount: int, multiples: int | None = 1, namespace: str = "LIMITER") -> None:
        self.amount = int(amount)
        self.multiples = 1 if multiples is None else int(multiples)
        self.namespace = namespace
        if self.amount < 0 or self.multiples < 1:
            raise ValueError(f"no limit admits {amount} in {multiples} of a time")

    @classmethod
    def check_granularity_string(cls, granularity_string: str) -> bool:
        """Whether a word names this unit, in any case, one of it or several."""
        return granularity_string.lower().removesuffix("s") == cls.GRANULARITY.name

    def get_expiry(self) -> int:
        """The window in seconds."""
        return self.multiples * self.GRANULARITY.seconds

    def key_for(self, *identifiers: str | bytes | float) -> str:
        """A text that names this item and whom it is for; headgate does not count by it."""
        words = [_text(part) for part in identifiers]
        unit = self.GRANULARITY.name
        return "/".join([self.namespace, *words, f"{self.amount}/{self.multiples}/{unit}"])

    def limit(self, algorithm: str) -> Limit:
        """The same as a limit of headgate's, filed under what its user wrote."""
        return _limit(self.amount, self.multiples, self.GRANULARITY, algorithm)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RateLimitItem):
            return NotImplemented
        return self._value() == other._value()

    def __lt__(self, other: RateLimitItem) -> bool:
        return self.GRANULARITY.seconds < other.GRANULARITY.seconds

    def __hash__(self) -> int:
        return hash(self._value())

    def _value(self) -> tuple[int, int, Granularity]:
        return self.amount, self.multiples, self.GRANULARITY

    def __repr__(self) -> str:
        return f"{self.amount} per {self.multiples} {self.GRANULARITY.name}"


@lru_cache(maxsize=1024)
def _limit(amount: int, multiples: int, unit: Granularity, algorithm: str) -> Limit:
    fixed = algorithm == "fixed-window"
    made = Limit(amount, per=multiples * unit.seconds, algorithm=algorithm, first_hit=fixed)
    return made.named(f"{amount}/{multiples} {unit.name} {algorithm}")


def _text(part: str | bytes | float) -> str:
    return part.decode() if isinstance(part, bytes) else str(part)


class RateLimitItemPerSecond(RateLimitItem):
    """So many in seconds."""

    __slots__ = ()
    GRANULARITY = Granularity(1, "second")


class RateLimitItemPerMinute(RateLimitItem):
    """So many in minutes."""

    __slots__ = ()
    GRANULARITY = Granularity(60, "minute")


class RateLimitItemPerHour(RateLimitItem):
    """So many in hours."""

    __slots__ = ()
    GRANULARITY = Granularity(HOUR, "hour")


class RateLimitItemPerDay(RateLimitItem):
    """So many in days of 24 hours."""

    __slots__ = ()
    GRANULARITY = Granularity(DAY, "day")


class RateLimitItemPerMonth(RateLimitItem):
    """So many in months of 30 days."""

    __slots__ = ()
    GRANULARITY = Granularity(30 * DAY, "month")


class RateLimitItemPerYear(RateLimitItem):
    """So many in years of 360 days."""

    __slots__ = ()
    GRANULARITY = Granularity(360 * DAY, "year")


GRANULARITIES: dict[str, type[RateLimitItem]] = {
    kind.GRANULARITY.name: kind
    for kind in (
        RateLimitItemPerSecond, RateLimitItemPerMinute, RateLimitItemPerHour,
        RateLimitItemPerDay, RateLimitItemPerMonth, RateLimitItemPerYear,
    )
}  # fmt: skip
