"""Reports: a zone in figures, and its busiest keys."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any, TypeAlias

from ...errors import StoreError
from .engine import Damaged
from .layout import FILE_LOCKS, KEPT, header_words
from .places import (
    BUMP,
    CHUNKS,
    DENIED,
    ENTRIES,
    EVICTED,
    FORM,
    HOLDER,
    IS_KEY,
    KEYS,
    OPTIONS,
    OWN,
    PENDING,
    RECOVERIES,
    RESERVED,
    RULES,
    SIZE,
    TOKENS,
    USED,
    VERSION,
)  # fmt: skip
from .table import HITS, REFUSALS, Nodes

__all__ = ["busiest", "figures", "text_of"]

Row: TypeAlias = tuple[int, int, dict[str, Any]]
LONGEST = 400
"""How many bytes of a key's text are kept."""
AT_ONCE = 1024
"""How many chunks are read while others are kept out."""
WORDS = {
    "size": SIZE, "version": VERSION, "keys": KEYS, "evicted": EVICTED, "denied": DENIED,
    "recoveries": RECOVERIES, "limits": RULES, "own_limits": OWN, "reservations": RESERVED,
    "tokens": TOKENS, "journal": ENTRIES, "undecided": PENDING, "holder": HOLDER,
}  # fmt: skip


def figures(path: str, header: bytes) -> dict[str, Any]:
    """What a header says."""
    words = header_words(header)
    chunks = words[CHUNKS] - 1
    return {
        "path": path,
        "form": "file locks" if words[FORM] == FILE_LOCKS else "robust mutex",
        "keeps_keys": bool(words[OPTIONS] & KEPT),
        **{name: words[place] for name, place in WORDS.items()},
        "chunks": chunks,
        "free_chunks": chunks - words[USED],
        "untouched_chunks": max(0, words[CHUNKS] - words[BUMP]),
        "fill_percent": round(100 * words[USED] / chunks, 1),
    }


def text_of(space: str, limit_id: str, key: bytes) -> bytes:
    """What is kept of a key: namespace, limit and key, the last cut short if it is long."""
    first = space.encode("utf-8", "surrogatepass")[:LONGEST]
    second = limit_id.encode("utf-8", "surrogatepass")[:LONGEST]
    sizes = len(first).to_bytes(2, "little") + len(second).to_bytes(2, "little")
    key = key if len(key) <= LONGEST else key[: LONGEST - 3] + b"..."
    return sizes + len(key).to_bytes(2, "little") + first + second + key


def busiest(nodes: Nodes, count: int, alone: Callable[..., Any] | None) -> list[dict[str, Any]]:
    """The keys with the most hits and refusals, read a part at a time.

    Without `alone`, nobody is kept out, and what changes under the reader's eyes is left out.
    """
    engine = nodes.engine
    if not engine.get(OPTIONS) & KEPT:
        raise StoreError(
            f"the zone {engine.path} does not keep keys; make a new one with keys=True, or with "
            "?keys=yes in its URL"
        )
    found: list[Row] = []
    for first in range(1, engine.chunks, AT_ONCE):
        last = min(first + AT_ONCE, engine.chunks)
        read = alone if alone is not None else _at_once
        found += read(_part, nodes, first, last, alone is not None)
        found = heapq.nlargest(count, found, key=lambda row: row[:2])
        if last >= engine.get(BUMP):
            break
    return [row[2] for row in found]


def _at_once(call: Callable[..., Any], *arguments: Any) -> Any:
    return call(*arguments)


def _part(nodes: Nodes, first: int, last: int, calm: bool) -> list[Row]:
    engine, rows = nodes.engine, []
    for chunk in range(first, last):
        at = engine.at(chunk)
        if engine.kind(at) != IS_KEY:
            continue
        try:
            space, limit_id, key = _texts(nodes, at)
        except Damaged:
            if calm:
                raise
            continue
        hits, refusals = engine.get(at + HITS), engine.get(at + REFUSALS)
        row = {"space": space, "limit": limit_id, "key": key, "hits": hits, "refusals": refusals}
        rows.append((hits + refusals, chunk, row))
    return rows


def _texts(nodes: Nodes, at: int) -> list[str]:
    chunk = nodes.text(at)
    if not chunk:
        return ["", "", "?"]
    sizes = nodes.engine.load(chunk, 6)
    first, second, third = (int.from_bytes(sizes[i : i + 2], "little") for i in (0, 2, 4))
    if max(first, second, third) > LONGEST:
        raise nodes.engine.damaged("a key's text")
    text = nodes.engine.load(chunk, 6 + first + second + third)[6:]
    return [
        _shown(text[:first]),
        _shown(text[first : first + second]),
        _shown(text[first + second :]),
    ]


def _shown(text: bytes) -> str:
    """A text as it can be printed; the parts of a tuple one by one."""
    if text[:2] == b"\xff\x01":
        parts, rest = [], text[2:]
        while rest:
            size, _, rest = rest.partition(b":")
            length = int(size) if size.isdigit() else len(rest)
            parts.append(_shown(rest[:length]))
            rest = rest[length:]
        return "(" + ", ".join(parts) + ")"
    shown = text.removeprefix(b"\xff\x00").decode("utf-8", "backslashreplace")
    return "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in shown)
