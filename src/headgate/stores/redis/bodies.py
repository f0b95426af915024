"""Bodies: the bytes of a key's state as the scripts write them, and the states of the algorithms.

Decisions never need this: scripts read and write bodies by themselves. It is for limits that
change, where the algorithms say what becomes of a state. The heads of the Lua files say what a
body of each kind holds. Every number is below 2**53: a state that counts more is capped here as
the scripts would have capped it.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ...algorithms.concurrency import Concurrency, Permits
from ...algorithms.sliding_cells import SlidingCells
from ...algorithms.sliding_log import Log, SlidingLog
from ...algorithms.sliding_window import SlidingWindow
from ...errors import StoreError
from .codec import kind_of, shape_tag

__all__ = ["FencedPermits", "dump_body", "load_body"]

MOST = 2**53 - 1
NEWEST, TOTAL, FIRST = 0, 1, 2
"""Where a row of cells keeps what (the compiled form does not show its own names)."""
WIDE = 7
"""The bytes of a whole number; with its sign it holds all that Lua counts exactly."""
TAG = 4
WORDS = TAG + 3 * WIDE
CELLS = TAG + 2 * WIDE + 1
LOG = TAG + 3 * WIDE + 1
PERMITS = TAG + WIDE + 4 + 3 * WIDE + 1
TOKEN = 16
PERMIT = TOKEN + 3 * WIDE


class FencedPermits(Permits):
    """The permits of one key, with the fences they were granted under."""

    __slots__ = ("fence", "fences")

    def __init__(self) -> None:
        super().__init__()
        self.fence = 0
        """The last fence that was given to anybody."""
        self.fences: dict[int, int] = {}


def load_body(rule: Any, body: bytes) -> Any:
    """The state in a body that a rule of this shape wrote; StoreError if it cannot be one."""
    if not rule.words:
        return _LOADERS[kind_of(rule)](rule, body)
    if len(body) != WORDS:
        raise StoreError("not three words")
    return tuple(_numbers(body, TAG, 3))


def dump_body(rule: Any, state: Any) -> bytes:
    """A state as a body; nothing for one that is as if never used."""
    if not rule.words:
        return _DUMPERS[kind_of(rule)](rule, state)
    a, b, c = state
    if isinstance(rule, SlidingWindow):  # counts are multiplied by the window
        most = 2**53 // (2 * rule.window)
        b, c = min(b, most), min(c, most)
    return _tag(rule) + _packed((a, b, c))


# -- cells


def _load_cells(rule: SlidingCells, body: bytes) -> array[int]:
    count, rest = _rows(body, CELLS, body[CELLS - 1] if len(body) >= CELLS else 0)
    if rest or not 0 < count <= rule.cells:
        raise StoreError("not a row of cells")
    newest, total = _numbers(body, TAG, 2)
    state: array[int] = rule.empty()
    state[NEWEST], state[TOTAL] = newest, total
    for place, number in enumerate(_row(body, CELLS, body[CELLS - 1], 0, body[CELLS - 1])):
        state[FIRST + (newest - count + 1 + place) % rule.cells] = number
    if sum(state[FIRST:]) != total:
        raise StoreError("not a row of cells: they do not add up")
    return state


def _dump_cells(rule: SlidingCells, state: array[int]) -> bytes:
    if not state[TOTAL]:
        return b""
    newest, n = state[NEWEST], rule.cells
    counts = _capped(state[FIRST + cell % n] for cell in range(newest - n + 1, newest + 1))
    first = next(place for place, count in enumerate(counts) if count)
    width = _narrowest(max(counts))
    head = _tag(rule) + _packed((newest, sum(counts))) + bytes((width,))
    return head + b"".join(count.to_bytes(width, "little") for count in counts[first:])


# -- log


def _load_log(rule: SlidingLog, body: bytes) -> Log:
    width, priced = divmod(body[LOG - 1] if len(body) >= LOG else 0, 16)
    stride = width + priced
    count, rest = _rows(body, LOG, stride)
    if rest or not count or not width:
        raise StoreError("not a log")
    seen, total, base = _numbers(body, TAG, 3)
    state: Log = rule.empty()
    state.seen, state.total = seen, total
    state.events = array("q", (base + late for late in _row(body, LOG, stride, 0, width)))
    if priced:
        state.costs = array("q", _row(body, LOG, stride, width, priced))
    if total != (sum(state.costs) if state.costs is not None else count):
        raise StoreError("not a log: its events do not add up")
    state.mark()
    return state


def _dump_log(rule: SlidingLog, state: Log) -> bytes:
    if not state.total:
        return b""
    events = state.events[state.head :]
    costs = [1] * len(events) if state.costs is None else _capped(state.costs[state.head :])
    pairs = [(event, cost) for event, cost in zip(events, costs, strict=True) if cost]
    base, total = events[0], sum(costs)
    width = 2  # and room for a base that stays while events leave
    while 256**width < max(rule.window * 1.125, events[-1] - base + 1):
        width += 1
    priced = 0 if total == len(pairs) else _narrowest(max(costs))
    head = _tag(rule) + _packed((state.seen, total, base)) + bytes((16 * width + priced,))
    return head + b"".join(
        (event - base).to_bytes(width, "little")
        + (cost.to_bytes(priced, "little") if priced else b"")
        for event, cost in pairs
    )


# -- permits


def _load_permits(rule: Concurrency, body: bytes) -> FencedPermits:
    count, rest = _rows(body, PERMITS, PERMIT)
    if rest or count < 0:
        raise StoreError("not a set of permits")
    state = FencedPermits()
    (state.total,) = _numbers(body, TAG, 1)
    (state.fence,) = _numbers(body, PERMITS - WIDE - 1, 1)
    for at in range(PERMITS, len(body), PERMIT):
        token = int.from_bytes(body[at : at + TOKEN], "big")
        cost, expires, fence = _numbers(body, at + TOKEN, 3)
        state.held[token], state.fences[token] = (cost, expires), fence
        if expires:
            state.expiries.append((expires, token))
    state.expiries.sort()
    if state.total != sum(cost for cost, _ in state.held.values()):
        raise StoreError("not a set of permits: they do not add up")
    return state


def _dump_permits(rule: Concurrency, state: Permits) -> bytes:
    """The permits; those that Python has granted have no fence, and any later one is larger."""
    if not state.held:
        return b""
    fence, fences = getattr(state, "fence", 0), getattr(state, "fences", {})
    costs = _capped(cost for cost, _ in state.held.values())
    ends = [expires for _, expires in state.held.values()]
    body = _tag(rule) + _packed((sum(costs),)) + ends.count(0).to_bytes(4, "little")
    body += _packed((min(filter(None, ends), default=0), max(ends), fence)) + b"\0"
    for token, cost, expires in zip(state.held, costs, ends, strict=True):
        body += token.to_bytes(TOKEN, "big") + _packed((cost, expires, fences.get(token, 0)))
    return body


# -- bytes

_LOADERS: dict[str, Callable[[Any, bytes], Any]] = {
    "cells": _load_cells, "log": _load_log, "permits": _load_permits,
}  # fmt: skip
_DUMPERS: dict[str, Callable[[Any, Any], bytes]] = {
    "cells": _dump_cells, "log": _dump_log, "permits": _dump_permits,
}  # fmt: skip


def _tag(rule: Any) -> bytes:
    return shape_tag(rule).to_bytes(TAG, "little")


def _packed(numbers: Sequence[int]) -> bytes:
    """Whole numbers of seven bytes each, capped."""
    return b"".join(
        max(-MOST, min(number, MOST)).to_bytes(WIDE, "little", signed=True) for number in numbers
    )


def _numbers(body: bytes, at: int, count: int) -> list[int]:
    """So many whole numbers of seven bytes each from a place on."""
    places = range(at, at + count * WIDE, WIDE)
    return [int.from_bytes(body[at : at + WIDE], "little", signed=True) for at in places]


def _rows(body: bytes, head: int, stride: int) -> tuple[int, int]:
    """How many records follow the head, and what is left over."""
    return divmod(len(body) - head, stride) if stride else (0, 1)


def _row(body: bytes, head: int, stride: int, at: int, width: int) -> list[int]:
    """The numbers at the same place of every record."""
    places = range(head + at, len(body), stride)
    return [int.from_bytes(body[place : place + width], "little") for place in places]


def _narrowest(largest: int) -> int:
    """The bytes that hold every number up to `largest`: 1, 2, 4 or 7."""
    return next(width for width in (1, 2, 4, WIDE) if largest < 256**width)


def _capped(costs: Iterable[int]) -> list[int]:
    """Costs whose sum the scripts can count; the latest give way."""
    room, kept = MOST, []
    for cost in costs:
        kept.append(min(cost, room))
        room -= kept[-1]
    return kept
