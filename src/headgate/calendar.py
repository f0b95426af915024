"""Windows of time: lengths, time zones, and the natural hour, day, week, month and year."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from .errors import BadOption

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

__all__ = [
    "BadOption",
    "bounds",
    "duration",
    "instant",
    "instant_text",
    "unit",
    "window",
    "zone_name",
]

SECOND = 1_000_000
UNITS = {
    "us": 1,
    "ms": 1_000,
    "second": SECOND,
    "minute": 60 * SECOND,
    "hour": 3_600 * SECOND,
    "day": 86_400 * SECOND,
    "week": 7 * 86_400 * SECOND,
    "month": 31 * 86_400 * SECOND,
    "year": 366 * 86_400 * SECOND,
}
ABBREVIATIONS = {
    "us": "us", "ms": "ms", "s": "second", "sec": "second", "m": "minute", "min": "minute",
    "h": "hour", "hr": "hour", "d": "day", "w": "week",
}  # fmt: skip
SHORT = {"second": "s", "minute": "min", "hour": "h", "day": "d", "week": "w"}
FIXED = ("second", "minute", "hour", "day", "week")
_LONGEST = 1_000 * UNITS["year"]
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_DURATION = re.compile(r"(?:(\d+)(?:\.(\d+))?)?\s*([A-Za-z]+)", re.ASCII)


def unit(word: str) -> str | None:
    """The unit of time a word names (`min`, `minute`, `minutes`), or None."""
    word = word.lower()
    word = ABBREVIATIONS.get(word, word)
    for name in (word, word.removesuffix("s")):
        name = ABBREVIATIONS.get(name, name)
        if name in UNITS:
            return name
    return None


def window(per: float | str | timedelta | None, option: str = "per") -> tuple[int, str | None]:
    """A window's length in microseconds, and the calendar's unit if it is exactly one of them."""
    if per is None:
        return 0, None
    if isinstance(per, timedelta):
        micros, name = per // _MICROSECOND, None
    elif isinstance(per, str):
        match = _DURATION.fullmatch(per.strip())
        name = unit(match[3]) if match else None
        if match is None or name is None:
            raise BadOption(option, f"{per!r} is not a time such as 'minute' or '10s'")
        micros = _scaled(match[1] or "1", match[2] or "", UNITS[name], per, option)
    elif isinstance(per, bool) or not isinstance(per, int | float):
        raise TypeError(f"a time is a number of seconds, a text or a timedelta, not {per!r}")
    elif not math.isfinite(per):
        raise BadOption(option, f"a time is finite, not {per!r}")
    else:
        micros, name = round(per * SECOND), None
    if not 1 <= micros <= _LONGEST:
        raise BadOption(
            option, f"a time is at least a microsecond and at most 1,000 years, not {per}"
        )
    if name in ("month", "year"):
        if micros != UNITS[name]:
            raise BadOption(option, f"a calendar window is one {name}, not {per}")
        return micros, name
    return micros, next((name for name in FIXED if UNITS[name] == micros), None)


def duration(value: float | str | timedelta, option: str) -> int:
    """A length of time, given in any form, in whole microseconds."""
    micros, name = window(value, option)
    if name in ("month", "year"):
        raise BadOption(option, f"a {name} has no fixed length; write it in days")
    return micros


def _scaled(whole: str, decimals: str, size: int, text: str, option: str) -> int:
    if len(whole) > 16 or len(decimals) > 12:
        raise BadOption(option, "a time has at most 16 digits, and 12 behind the point")
    scale: int = 10 ** len(decimals)
    micros, rest = divmod(int(whole + decimals) * size, scale)
    if rest:
        raise BadOption(option, f"{text!r} is not a whole number of microseconds")
    return micros


def zone_name(name: str) -> str:
    """A time zone's name, checked."""
    if not isinstance(name, str):
        raise TypeError(f"tz is the name of a time zone, not {type(name).__name__}")
    _zone(name)
    return name


def instant(value: datetime | str) -> int:
    """An instant, with its offset from UTC, in microseconds since the epoch."""
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value.upper())
        except ValueError:
            raise BadOption(
                "anchor", f"{value!r} is not an instant such as 2026-01-01T00:30Z"
            ) from None
    if not isinstance(value, datetime):
        raise TypeError(f"anchor is a datetime or its ISO text, not {type(value).__name__}")
    if value.tzinfo is None:
        raise BadOption("anchor", "an anchor needs Z or an offset, as in 2026-01-01T00:30Z")
    if not 1970 <= value.year < 2255:
        raise BadOption("anchor", "an anchor lies between 1970 and 2255")
    return max(0, _micros(value))


def instant_text(micros: int) -> str:
    """An instant as ISO text in UTC, no longer than it must be."""
    when = _EPOCH + timedelta(microseconds=micros)
    spec = "microseconds" if when.microsecond else "seconds" if when.second else "minutes"
    return when.replace(tzinfo=None).isoformat(timespec=spec) + "Z"


def bounds(name: str, tz: str, now: int) -> tuple[int, int]:
    """The natural window that holds `now`, as microseconds: from its start up to its end."""
    zone = _zone(tz)
    local = (_EPOCH + timedelta(microseconds=now)).astimezone(zone)
    if name in ("second", "minute", "hour"):
        return _short_bounds(name, local, now)
    start = local.replace(hour=0, minute=0, second=0, microsecond=0, tzinfo=None, fold=0)
    if name == "week":
        start -= timedelta(days=start.weekday())
    elif name == "month":
        start = start.replace(day=1)
    elif name == "year":
        start = start.replace(month=1, day=1)
    begin, end = _instant_of(start, zone), _instant_of(_next(name, start), zone)
    # Where clocks are turned back over midnight it comes twice; the later one is the boundary.
    again = _micros(start.replace(tzinfo=zone, fold=1))
    begin = again if begin < again <= now else begin
    if end <= now:
        end = _micros(_next(name, start).replace(tzinfo=zone, fold=1))
    return begin, end


def _short_bounds(name: str, local: datetime, now: int) -> tuple[int, int]:
    # Aligned by the offset in force, so a zone off by half an hour has hours of its own, and
    # the hour that autumn repeats is two windows.
    size = UNITS[name]
    offset = (local.utcoffset() or timedelta()) // _MICROSECOND
    start = now - (now + offset) % size
    return start, start + size


def _next(name: str, start: datetime) -> datetime:
    if name == "day":
        return start + timedelta(days=1)
    if name == "week":
        return start + timedelta(days=7)
    if name == "month":
        return (start + timedelta(days=32)).replace(day=1)
    return start.replace(year=start.year + 1)


def _instant_of(naive: datetime, zone: ZoneInfo) -> int:
    """The first instant at or after a local time, which a DST gap may have skipped."""
    micros = _micros(naive.replace(tzinfo=zone))
    back = (_EPOCH + timedelta(microseconds=micros)).astimezone(zone).replace(tzinfo=None)
    if back == naive:
        return micros
    # In the gap, fold=0 reads the clock as before the jump: so far past the jump as the local
    # time is past the gap's start. Walk back to the jump itself.
    ahead = naive.replace(tzinfo=zone, fold=1)
    low, high = _micros(ahead), micros
    offset = (_EPOCH + timedelta(microseconds=high)).astimezone(zone).utcoffset()
    while high - low > 1:
        middle = (low + high) // 2
        if (_EPOCH + timedelta(microseconds=middle)).astimezone(zone).utcoffset() == offset:
            high = middle
        else:
            low = middle
    return high


def _micros(when: datetime) -> int:
    return (when - _EPOCH) // _MICROSECOND


def _zone(name: str) -> ZoneInfo:
    from zoneinfo import ZoneInfo  # only calendar windows pay for it

    try:
        return ZoneInfo(name)
    except (ValueError, OSError, KeyError):  # ZoneInfoNotFoundError is a KeyError
        raise BadOption(
            "tz",
            f"unknown time zone {name!r}; write one like Asia/Shanghai"
            " (on a machine without zone data: pip install 'headgate[tz]')",
        ) from None
