"""Limits as text, and what is told of a window."""

from __future__ import annotations

import re
from typing import NamedTuple

from .items import GRANULARITIES, RateLimitItem

__all__ = ["WindowStats", "parse", "parse_many"]

_APART = re.compile("[,;|]")
_RATE = re.compile(r"\s*(\d+)\s*(?:/|per)\s*(\d+)?\s*([a-z]+)\s*", re.ASCII | re.IGNORECASE)


class WindowStats(NamedTuple):
    """What is left, and when there is more."""

    reset_time: float
    """Seconds since the epoch."""
    remaining: int


def parse_many(limit_string: str) -> list[RateLimitItem]:
    """The limits of a text such as `1/second; 5 per 2 minutes`."""
    if not isinstance(limit_string, str):
        raise ValueError(f"a limit is a text such as '5/minute', not {limit_string!r}")
    return [_item(text, limit_string) for text in _APART.split(limit_string)]


def parse(limit_string: str) -> RateLimitItem:
    """The limit of a text such as `10 per hour`."""
    items = parse_many(limit_string)
    if len(items) > 1:
        raise ValueError(f"{limit_string!r} holds {len(items)} limits: read them by parse_many")
    return items[0]


def _item(text: str, whole: str) -> RateLimitItem:
    found = _RATE.fullmatch(text)
    if found is None:
        raise ValueError(
            f"couldn't parse rate limit string {whole!r}: {text!r} is not of the form "
            "'10/minute' or '10 per 2 hours'"
        )
    amount, multiples, unit = found.groups()
    for kind in GRANULARITIES.values():
        if kind.check_granularity_string(unit):
            return kind(int(amount), None if multiples is None else int(multiples))
    raise ValueError(
        f"no granularity matched for {unit!r} in {whole!r}; known are {', '.join(GRANULARITIES)}"
    )
