"""What tests of the zone share: its contents compared, its structure checked, death simulated."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from headgate import Clock, Limit
from headgate.stores.zone import ZoneStore
from headgate.stores.zone.form import this_form
from headgate.stores.zone.layout import ROBUST
from headgate.stores.zone.places import (
    BUMP,
    COUNT,
    EARLIEST,
    FIRST,
    FREE,
    IS_DATA,
    IS_FREE,
    IS_KEY,
    IS_OWN,
    IS_RESERVED,
    IS_RULE,
    KEYS,
    LINK,
    NODE,
    OWN,
    RESERVED,
    RULES,
    TOKENS,
    USED,
)  # fmt: skip

__all__ = [
    "COMPILED",
    "RATE",
    "SIZE_OF",
    "START",
    "Death",
    "Dying",
    "content",
    "copied",
    "in_order",
]

COMPILED = this_form().number == ROBUST
START = 1_700_000_000.0
RATE = Limit.parse("5/minute fixed-window")
SIZE_OF = 1 << 16
Content = dict[Any, Any]


def copied(path: Path, name: str) -> Path:
    """A copy of a zone that nobody has open."""
    return Path(shutil.copyfile(path, path.with_name(name)))


def content(store: ZoneStore) -> Content:
    """Everything a zone knows, whichever chunk it is in."""
    engine, nodes = store._engine, store._nodes
    found: Content = {"tokens": engine.get(TOKENS), "keys": engine.get(KEYS)}
    for chunk in range(1, engine.get(BUMP)):
        at = engine.at(chunk)
        kind, name = engine.kind(at), engine.get(at + 1)
        if kind == IS_KEY:
            rule = nodes.rule(at)
            state = nodes.state(at, rule)
            state = state if rule.words else rule.dump(state)
            count = engine.get(at) >> COUNT
            found[kind, name] = (rule.limit.text, rule.permille, state, count)
        elif kind == IS_OWN:
            found[kind, name] = nodes.rule(at).limit.text
        elif kind == IS_RESERVED:
            found[kind, name] = [engine.get(at + place) for place in (2, 3, 4, 5, 7)]
    return found


def in_order(store: ZoneStore) -> None:
    """Every chunk is used once, and every count is right."""
    engine = store._engine
    used: dict[int, int] = {}
    counts = dict.fromkeys((IS_KEY, IS_OWN, IS_RESERVED, IS_RULE), 0)

    def chain(chunk: int, length: int) -> None:
        size = 0
        while chunk:
            assert chunk not in used
            used[chunk] = IS_DATA
            assert engine.kind(engine.at(chunk)) == IS_DATA
            chunk = engine.next(engine.at(chunk))
            size += 56
        assert length <= size < length + 56 or not length

    for bucket in range(engine.mask + 1):
        chunk = engine.get(engine.heads + bucket)
        while chunk:
            assert chunk not in used
            at = engine.at(chunk)
            kind = used[chunk] = engine.kind(at)
            counts[kind] += 1
            assert engine.get(at + 1) & engine.mask == bucket
            if kind == IS_RULE:
                chain(engine.get(at + 3) & LINK, engine.get(at + 3) >> 32)
            elif kind == IS_KEY:
                chain(engine.get(at + 2) >> 32 & LINK, 0)
                if not store._nodes.rule(at).words:
                    chain(engine.get(at + 3) & LINK, engine.get(at + 3) >> 32)
            chunk = engine.next(at)
    words = {IS_KEY: KEYS, IS_OWN: OWN, IS_RESERVED: RESERVED, IS_RULE: RULES}
    assert counts == {kind: engine.get(place) for kind, place in words.items()}
    assert len(used) == engine.get(USED)
    free = engine.get(FREE)
    while free:
        assert free not in used
        used[free] = IS_FREE
        free = engine.next(engine.at(free))
    assert sorted(used) == list(range(1, engine.get(BUMP)))
    _reservations_in_order(store)


def _reservations_in_order(store: ZoneStore) -> None:
    engine, listed = store._engine, []
    chunk = engine.get(FIRST)
    while chunk:
        at = engine.at(chunk)
        listed.append((engine.get(at + 5), engine.get(at + 7)))
        chunk = engine.get(at + 6) >> 32
    assert len(listed) == engine.get(RESERVED)
    assert [end for end, _ in listed] == sorted(end for end, _ in listed)
    assert engine.get(EARLIEST) == (listed[0][0] if listed else 0)
    for _, handle in listed:
        key = engine.find(handle, IS_KEY)
        assert not key or engine.get(key) >> COUNT == sum(other == handle for _, other in listed)
    assert NODE == 8


class Death(BaseException):
    """A process is killed."""


class Dying:
    """Words that can be written so many times, and then no more, as if the writer was killed."""

    def __init__(self, words: Any, left: int) -> None:
        self.words = words
        self.left = left

    def __getitem__(self, place: Any) -> Any:
        return self.words[place]

    def __setitem__(self, place: int, value: int) -> None:
        if not self.left:
            raise Death
        self.left -= 1
        self.words[place] = value

    def release(self) -> None:
        self.words.release()


def reopened(path: Path, clock: Clock, **options: Any) -> ZoneStore:
    """A zone as another process finds it."""
    return ZoneStore(path, clock=clock, **options)
