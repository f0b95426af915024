"""Asked: how long whoever failed us asks us to wait, however that is said."""

from __future__ import annotations

import re
from datetime import timedelta
from email.utils import mktime_tz, parsedate_tz
from math import isnan
from typing import Any

__all__ = ["asked_by", "seconds_of"]

_NUMBER = re.compile(r"[0-9]{1,15}(?:\.[0-9]{0,15})?", re.ASCII)
_SHORT = 64
"""No date is longer; what a server sends may be."""


def asked_by(came: Any, now: float) -> float | None:
    """The seconds that an exception or a response asks for; None if it does not.

    That is its `retry_after`, or the Retry-After header of it or of its `response`.
    """
    own = getattr(came, "retry_after", None)
    if own is not None:
        return seconds_of(own, now)
    for holder in (came, getattr(came, "response", None)):
        headers = getattr(holder, "headers", None)
        said = _header(headers, "Retry-After")
        if said is not None:
            date = _instant(_header(headers, "Date") or "")
            # By the server's own clock, if it shows it: ours may be wrong.
            return seconds_of(said, now if date is None else date)
    return None


def seconds_of(said: Any, now: float) -> float | None:
    """A wait in seconds: a number, a timedelta, or what a Retry-After header says; else None."""
    if isinstance(said, timedelta):
        return max(0.0, said.total_seconds())
    if isinstance(said, bytes):
        said = said.decode("latin-1")
    if isinstance(said, str):
        text = said.strip()
        if _NUMBER.fullmatch(text):
            return float(text)
        instant = _instant(text)
        return None if instant is None else max(0.0, instant - now)
    if isinstance(said, bool) or not isinstance(said, int | float) or isnan(said):
        return None
    return max(0.0, said)


def _header(headers: Any, name: str) -> str | None:
    get = getattr(headers, "get", None)
    if get is None:
        return None
    for form in (name, name.lower()):  # a plain dict knows only one of them
        found = get(form)
        if isinstance(found, bytes):
            return found.decode("latin-1")
        if isinstance(found, str):
            return found
    return None


def _instant(text: str) -> float | None:
    """An instant as HTTP has it, in seconds since the epoch."""
    try:
        parsed = parsedate_tz(text[:_SHORT])
        return None if parsed is None else float(mktime_tz(parsed))
    except Exception:  # it is the server's text, and that parser trips over some
        return None
