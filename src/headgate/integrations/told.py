"""What a server says about its limits, read from a response: pure, and never wrong-footed.

Retry-After, the RateLimit headers of the drafts, and those that were there before them. A value
that makes no sense says nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import mktime_tz, parsedate_tz
from typing import NamedTuple

__all__ = ["Told", "duration_of", "header_map", "told"]

LONGEST = 4096
"""Of a header so many characters are read; of a single value in it so many as `SHORT`."""
SHORT = 64
MEMBERS = 64
PAIRS = (
    ("ratelimit-remaining", "ratelimit-reset"),
    ("x-ratelimit-remaining", "x-ratelimit-reset"),
    ("x-ratelimit-remaining", "x-ratelimit-reset-after"),
    ("x-rate-limit-remaining", "x-rate-limit-reset"),
    ("x-ratelimit-remaining-requests", "x-ratelimit-reset-requests"),
    ("x-ratelimit-remaining-tokens", "x-ratelimit-reset-tokens"),
    ("anthropic-ratelimit-requests-remaining", "anthropic-ratelimit-requests-reset"),
    ("anthropic-ratelimit-tokens-remaining", "anthropic-ratelimit-tokens-reset"),
)
"""Headers that say how much is left, and until when that holds."""
EPOCHS = ((1e17, 1e9), (1e14, 1e6), (1e11, 1e3), (1e8, 1.0))
"""From which size on a number is an instant, and how many of it make a second; three years is
the longest wait that can be told from one."""
UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0,
         "h": 3600.0, "d": 86400.0}  # fmt: skip

_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]*)?")
_STEP = re.compile(r"([0-9]+(?:\.[0-9]*)?)(ns|us|µs|μs|ms|s|m|h|d)")
# A quote that is never closed lasts to the end, so that no text is read twice.
_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"?', re.DOTALL)


class Told(NamedTuple):
    """For how long a server wants no more calls, and the words it said so in."""

    wait: float
    words: str


def header_map(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Headers by lower-case name; several of one name joined by ", "."""
    found: dict[str, str] = {}
    for name, value in pairs:
        name = name.lower()
        found[name] = f"{found[name]}, {value}" if name in found else value
    return found


def told(status: int, headers: Mapping[str, str], now: float) -> Told | None:
    """What a response asks for; None if it asks for nothing.

    status   429 and 503 make a Retry-After count; 429 says that nothing is left, too
    headers  by lower-case name
    now      seconds since the epoch, if the response has no Date of its own
    """
    date = headers.get("date")
    base = now
    if date is not None:  # instants are the server's own: only what lies between them counts
        read = _date(date)
        base = now if read is None else read
    if status in (429, 503):
        asked = _retry_after(headers, base)
        if asked is not None:  # it is the more exact of the two
            return asked if asked.wait > 0 else None
    found = list(_pairs(status, headers, base))
    state = headers.get("ratelimit")
    if state is not None:
        waits = [reset for left, reset in _states(state[:LONGEST]) if left < 1]
        found += [Told(wait, f"RateLimit: {state[:SHORT]}") for wait in waits]
    return max(found, key=lambda one: one.wait, default=None)


def duration_of(text: str) -> float | None:
    """Seconds of a time written as "1s", "6m0s" or "20ms"; None if it is not."""
    place, total = 0, 0.0
    text = text.strip()
    if not text or len(text) > SHORT:
        return None
    while place < len(text):
        step = _STEP.match(text, place)
        if step is None:
            return None
        total += float(step[1]) * UNITS[step[2]]
        place = step.end()
    return total


def _retry_after(headers: Mapping[str, str], base: float) -> Told | None:
    for name, shown, unit in (
        ("retry-after-ms", "Retry-After-Ms", 1e3),
        ("retry-after", "Retry-After", 1.0),
    ):
        value = headers.get(name)
        if value is None:
            continue
        wait = _number(value)
        if wait is None and unit == 1:
            instant = _date(value)
            wait = None if instant is None else max(0.0, instant - base)
        if wait is not None:
            return Told(wait / unit, f"{shown}: {value[:SHORT]}")
    return None


def _pairs(status: int, headers: Mapping[str, str], base: float) -> Iterable[Told]:
    for left_name, reset_name in PAIRS:
        reset = headers.get(reset_name)
        if reset is None:
            continue
        said = headers.get(left_name)
        left = _number(said) if said is not None else 0.0 if status == 429 else None
        wait = _reset(reset, base) if left is not None and left < 1 else None
        if wait is not None and wait > 0:
            yield Told(wait, f"{reset_name}: {reset[:SHORT]}")


def _states(text: str) -> Iterable[tuple[float, float]]:
    """What is left of each policy, and for how many seconds: a list, or the older dictionary."""
    whole: dict[str, str] = {}
    for member in _QUOTED.sub('""', text).split(",")[:MEMBERS]:
        item, *parameters = member.split(";")
        name, equals, value = item.partition("=")
        if equals:
            whole[name.strip()] = value.strip()
            continue
        named = dict(part.strip().partition("=")[::2] for part in parameters)
        left, reset = _number(named.get("r", "")), _number(named.get("t", ""))
        if left is not None and reset:
            yield left, reset
    left, reset = _number(whole.get("remaining", "")), _number(whole.get("reset", ""))
    if left is not None and reset:
        yield left, reset


def _number(text: str) -> float | None:
    """A number that is not negative; of any size, so it may be infinite."""
    text = text[:LONGEST].strip()
    return float(text) if _NUMBER.fullmatch(text) else None


def _reset(text: str, base: float) -> float | None:
    """Seconds until a reset, however it is told: a wait or an instant, as a number or in words."""
    number = _number(text)
    if number is None:
        wait = duration_of(text)
        if wait is not None:
            return wait
        instant = _timestamp(text)
        number = _date(text) if instant is None else instant
        return None if number is None else max(0.0, number - base)
    for least, per_second in EPOCHS:
        if number >= least:
            return max(0.0, number / per_second - base)
    return number


def _timestamp(text: str) -> float | None:
    """An instant as RFC 3339 has it, in seconds since the epoch."""
    with suppress(ValueError, OverflowError):
        instant = datetime.fromisoformat(text[:SHORT].strip())
        return (instant if instant.tzinfo else instant.replace(tzinfo=UTC)).timestamp()
    return None


def _date(text: str) -> float | None:
    """An instant as HTTP has it, in seconds since the epoch."""
    try:
        parsed = parsedate_tz(text[:SHORT])
        return None if parsed is None else float(mktime_tz(parsed))
    except Exception:  # it is the server's text, and that parser trips over some
        return None
