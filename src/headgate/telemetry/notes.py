"""Notes: what workers leave for each other to read beside their counts: busy keys, refusals."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from .events import Event
from .sketch import Busy, merged
from .slots import NOTE

if TYPE_CHECKING:
    from .counts import Counts
    from .naming import Namer

__all__ = ["note_of", "recent_of", "top_of"]


def note_of(counts: Counts, name: Namer, recent: Sequence[Event]) -> dict[str, Any]:
    """As much as a note has room for."""
    note: dict[str, Any] = {}
    for most, events in ((10, 20), (5, 10), (3, 5), (1, 1), (0, 0)):
        note = {
            "top": {
                kind: {
                    rule: [[name(key), *rest] for key, *rest in merged(sketches, most)]
                    for rule, sketches in counts.sketches(None, kind == "refused").items()
                    if most and any(sketches)
                }
                for kind in ("all", "refused")
            },
            "recent": [event.as_dict() for event in recent[:events]],
        }
        if len(json.dumps(note, separators=(",", ":"))) <= NOTE:
            break
    return note


def top_of(
    counts: Counts, name: Namer, notes: Sequence[Any], rule: str | None, refused: bool, most: int
) -> dict[str, list[Busy]]:
    """The busiest keys by rule, as they are shown: this worker's and those that others note."""
    found: dict[str, dict[Any, Busy]] = {}

    def add(rule: str, keys: Iterable[Sequence[Any]]) -> None:
        of_rule, seen = found.setdefault(rule, {}), Counter[str]()
        for shown, count, error in keys:
            seen[shown] += 1  # keys that are shown alike are still several
            place = shown, seen[shown]
            before = of_rule.get(place, Busy(shown, 0, 0))
            of_rule[place] = Busy(shown, before.count + count, before.error + error)

    for each, sketches in counts.sketches(rule, refused).items():
        add(each, [(name(key), *rest) for key, *rest in merged(sketches, most)])
    for note in notes:
        listed = {} if note is None else note["top"]["refused" if refused else "all"]
        for each, keys in listed.items():
            if rule is None or rule == each:
                add(each, keys)
    return {
        each: sorted(keys.values(), key=lambda busy: busy.count, reverse=True)[:most]
        for each, keys in sorted(found.items())
    }


def recent_of(own: Sequence[Event], notes: Sequence[Any], most: int) -> list[Event]:
    """The last refusals of all workers, the latest first."""
    events = list(own)
    for note in notes:
        if note is not None:
            events += [Event(**{"key": "", "retry_after": None, **each}) for each in note["recent"]]
    return sorted(events, key=lambda event: event.at, reverse=True)[:most]
