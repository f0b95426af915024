"""Limits as nginx has them: a rate with a burst, or a number of connections.

nginx counts a request as one thousand of its units, and a rate in whole thousandths of a request
a second; its leaky bucket holds the request in service and `burst` more. A token bucket, GCRA and
a leaky bucket are the same to it; windows it has not.
"""

from __future__ import annotations

from typing import NamedTuple

from ..limit import Limit

__all__ = ["Cannot", "Directive", "directive_of"]

CONNECTIONS = 65_535
"""So many nginx counts in a limit_conn."""
BUCKETS = ("token-bucket", "gcra", "leaky-bucket", "even")


class Cannot(Exception):
    """nginx alone cannot do it; the text says why."""


class Directive(NamedTuple):
    """What stands in nginx's configuration for a limit."""

    module: str
    """limit_req or limit_conn."""
    rate: str
    """Of a zone: `10r/s`; nothing for connections."""
    words: str
    """What stands behind the zone: ` burst=5 nodelay`, or the number of connections."""
    note: str = ""
    """What is not quite the same."""


def directive_of(limit: Limit, wait: float = 0.0) -> Directive:
    """A limit for nginx; `wait` is how many seconds a call may wait for its turn."""
    if limit.elastic:
        raise Cannot("how much room an elastic limit has, nginx does not know")
    if limit.unit:
        raise Cannot("nginx counts requests, not bytes")
    if limit.algorithm == "concurrency":
        return _connections(limit, wait)
    if limit.algorithm not in BUCKETS:
        _rate(limit)  # where that is what it lacks, a steady rate would not help
        steady = f"{limit.text.split()[0]} gcra"
        raise Cannot(f"nginx has no {limit.algorithm}, only steady rates such as {steady!r}")
    if limit.debt or limit.refill or limit.initial is not None:
        word = "debt" if limit.debt else "refill" if limit.refill else "initial"
        raise Cannot(f"a bucket with {word!r} is not in nginx")
    rate, thousandths, exact = _rate(limit)
    at_once, most = _room(limit, int(wait * thousandths / 1000))
    if most == 0:
        words = ""
    elif at_once == most:
        words = f" burst={most} nodelay"
    else:
        words = f" burst={most}" + (f" delay={at_once}" if at_once else "")
    note = "" if exact else f"nginx counts whole thousandths: {thousandths / 1000:g} a second"
    return Directive("limit_req", rate, words, note)


def _connections(limit: Limit, wait: float) -> Directive:
    if wait:
        raise Cannot("limit_conn refuses at once: it cannot wait for a place")
    most = limit.raised(limit.amount)
    if most > CONNECTIONS:
        raise Cannot(f"limit_conn counts to {CONNECTIONS:,}")
    return Directive("limit_conn", "", f" {most}")


def _rate(limit: Limit) -> tuple[str, int, bool]:
    """The fastest rate of nginx that is not above the limit's own, in thousandths a second."""
    quota = limit.raised(limit.amount) * 1_000_000_000
    whole, rest = divmod(quota, limit.window)
    seconds = whole // 1000
    minutes = -(-(whole + 1) * 60 // 1000) - 1  # nginx divides by 60 and drops the rest
    by_minute = minutes * 1000 // 60
    if max(seconds * 1000, by_minute) == 0:
        raise Cannot("nginx has no rate below one a minute")
    if seconds * 1000 >= by_minute:
        return f"{seconds}r/s", seconds * 1000, not rest and seconds * 1000 == whole
    return f"{minutes}r/m", by_minute, not rest and by_minute == whole


def _room(limit: Limit, patience: int) -> tuple[int, int]:
    """How many pass at once above the rate, and how many at all if they are delayed."""
    if limit.algorithm == "even":
        return 0, patience
    burst = limit.raised(limit.capacity) - 1
    if limit.queues:
        free = min(limit.raised(limit.delay), burst)
        return free, min(burst, free + patience)
    return burst, burst + patience
