"""Paths: one spelling for all spellings of the same path."""

from __future__ import annotations

import re

__all__ = ["normal_path"]

_ESCAPE = re.compile(rb"%([0-9A-Fa-f]{2})?")
_KEPT = {0x2F: b"%2F", 0x25: b"%25"}
# What has no safe place in a text: control characters, and bytes that are no UTF-8.
_UNSAFE = re.compile("[\x00-\x1f\x7f\udc80-\udcff]")


def normal_path(raw: str | bytes, *, decoded: bool = False) -> str:
    """A path as rules compare it: `//login/` and `/%6Cogin` are `/login`.

    Percent-encoding is undone once, except where that would change the meaning: `%2F` makes no
    segments, `%25` makes no new escapes, and control characters and what is not UTF-8 stay
    encoded. So doing it twice changes nothing. Empty segments and a slash at the end are dropped,
    `.` and `..` are followed, never above the root. Case and `;` parameters are kept.

    `decoded` says that a server has undone the percent-encoding already: a `%` is then a `%`.

    >>> normal_path("/a/./b//../%63;v=1/")
    '/a/c;v=1'
    """
    if isinstance(raw, str):
        if _is_normal(raw):
            return raw
        raw = raw.encode("utf-8", "surrogatepass")
    if raw == b"*":  # OPTIONS * is about no path
        return "*"
    data = bytes(raw)
    if b"%" in data:
        data = data.replace(b"%", b"%25") if decoded else _ESCAPE.sub(_unescaped, data)
    segments: list[bytes] = []
    for segment in data.split(b"/"):
        if segment == b"..":
            if segments:
                segments.pop()
        elif segment not in (b"", b"."):
            segments.append(segment)
    text = "/" + b"/".join(segments).decode("utf-8", "surrogateescape")
    return _UNSAFE.sub(_escaped, text)


def _is_normal(path: str) -> bool:
    """Whether a path is plainly what it should be: nearly all are."""
    return (
        path[:1] == "/"
        and "%" not in path
        and "//" not in path
        and "/." not in path
        and path.isascii()
        and path.isprintable()
        and (path[-1] != "/" or path == "/")
    )


def _unescaped(match: re.Match[bytes]) -> bytes:
    digits = match[1]
    if digits is None:  # a percent sign that escapes nothing stands for itself
        return b"%25"
    byte = int(digits, 16)
    return _KEPT.get(byte) or bytes((byte,))


def _escaped(match: re.Match[str]) -> str:
    return f"%{ord(match[0]) & 0xFF:02X}"
