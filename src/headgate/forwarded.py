"""Forwarded: what the headers of a request say about the way it came.

Both lists are read from the right, for on the left stands what anybody may have sent. The work is
bounded: nobody reads further than proxies can have written.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["LONGEST", "elements", "entries", "found"]

LONGEST = 64
"""No address is longer, with its zone and port."""
HOPS = 64
"""No chain is longer; what stands further left is not looked at."""
PIECES = 8
"""An element of Forwarded has fewer commas than these within its quotes."""


def found(headers: Any, names: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Of each header that is there its lines, as one list in the order of their coming."""
    several = getattr(headers, "getlist", None) or getattr(headers, "getall", None)
    lines: dict[str, list[str]] = {name: [] for name in names}
    if several is not None:  # a framework's own mapping, whose `get` would give one line alone
        for name in names:
            if name in headers:
                lines[name] += several(name)
    elif isinstance(headers, Mapping):
        for name in names:
            if headers.get(name):
                lines[name].append(headers[name])
    else:
        for name, value in headers:
            name = (name.decode("latin-1") if isinstance(name, bytes) else name).lower()
            if name in lines:
                lines[name].append(value.decode("latin-1") if isinstance(value, bytes) else value)
    for name, values in lines.items():
        text = ",".join(values)
        if text.strip(", \t"):
            yield name, text


def _pieces(text: str) -> Iterator[str]:
    """What stands between commas, from the right."""
    end = len(text)
    for _ in range(HOPS):
        comma = text.rfind(",", 0, end)
        yield text[comma + 1 : end]
        if comma < 0:
            return
        end = comma


def entries(text: str) -> Iterator[str]:
    """The entries of X-Forwarded-For, from the right; empty ones are nothing."""
    for piece in _pieces(text):
        entry = piece.strip(" \t")
        if entry:
            yield entry


_TOKEN = r"[\w!#$%&'*+.^`|~:\[\]-]+"  # with what addresses need, for those who forget to quote
_QUOTED = r'"(?:[^"\\]|\\.)*"'
_PAIR = re.compile(rf"[ \t]*(?:({_TOKEN})=({_TOKEN}|{_QUOTED}))?[ \t]*(;|\Z)", re.ASCII)


def elements(text: str) -> Iterator[str]:
    """The `for` of each element of a Forwarded header (RFC 7239), "" if it says none.

    A comma may be within quotes: pieces are put together until they can be read. Read from the
    left, a quote that a client never closed would swallow what the proxies wrote.
    """
    piece, count = "", 0
    for left in _pieces(text):
        piece = f"{left},{piece}" if count else left
        if not piece.strip(" \t"):
            piece, count = "", 0
            continue
        said = _said(piece) if len(piece) <= 8 * LONGEST else None
        if said is not None:
            yield said
            piece, count = "", 0
            continue
        count += 1
        if count == PIECES:
            break
    if count:
        yield ""


def _said(element: str) -> str | None:
    """What one element says after `for=`; None if it cannot be read."""
    said, place = "", 0
    while place < len(element):
        found = _PAIR.match(element, place)
        if not found:
            return None
        if found[1] is not None and found[1].lower() == "for":
            if said:
                return None
            value = found[2]
            said = re.sub(r"\\(.)", r"\1", value[1:-1]) if value[0] == '"' else value
        place = found.end()
    return said
