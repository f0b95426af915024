"""Index: finds the rules for a call by what is rarest about each of them.

Every rule is filed once, under the values of one of its conditions, so that a look-up meets few
rules however many there are. Where many rules share the rarest value, they are filed once more
among themselves by another condition. What the index does not settle is left for the rule to ask.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import Any

from ..facts import Facts
from .compiled import Compiled
from .conditions import DIMENSIONS, Check, Condition, texts_of
from .patterns import host_of
from .trie import Trie

__all__ = ["Index", "Look"]

ROOM = 8  # so many rules are as quickly asked one by one as looked up
DEPTH = 4
KEPT, LONG = 1024, 128  # so many paths are remembered, if they have no more characters than this

Entry = tuple[Compiled, list[Condition]]
"""A rule and its conditions that are not settled yet."""
Found = list[Compiled]
Leaf = Any
"""What is filed under a value: a tuple of rules, or an index of many."""
Tables = dict[str, dict[Any, Leaf]]
Look = Callable[[Facts, Found], None]


class Index:
    """Rules filed by their conditions."""

    __slots__ = ("always", "looks")

    always: tuple[Compiled, ...]
    """Rules without a condition that could be looked up."""
    looks: tuple[Look, ...]

    def __init__(self, entries: list[Entry]) -> None:
        placed: dict[Compiled, dict[Condition, None]] = {}
        self._fill(entries, 0, placed)
        asked: dict[Any, Check] = {}  # rules that ask the same share the question
        for rule, rest in placed.items():
            for condition in rest:
                if condition.meaning not in asked:
                    asked[condition.meaning] = condition.check()
            rule.checks = tuple([asked[condition.meaning] for condition in rest])

    def _fill(
        self, entries: list[Entry], depth: int, placed: dict[Compiled, dict[Condition, None]]
    ) -> None:
        counts: Counter[tuple[str, Any]] = Counter()
        for _, conditions in entries:
            for condition in conditions:
                counts.update(condition.filed)
        always = []
        tables: dict[str, dict[Any, list[Entry]]] = {}
        for entry in entries:
            rule, conditions = entry
            settled = [condition for condition in conditions if condition.filed]
            best = min(settled, key=lambda each: _crowd(each, counts), default=None)
            if best is None or (depth and _crowd(best, counts)[0] >= len(entries)):
                always.append(rule)
                placed.setdefault(rule, {}).update(dict.fromkeys(conditions))
                continue
            rest = [condition for condition in conditions if condition is not best]
            for table, value in best.filed:
                tables.setdefault(table, {}).setdefault(value, []).append((rule, rest))
        self.always = tuple(always)
        self.looks = tuple(
            _looks(
                {
                    table: {value: _leaf(some, depth, placed) for value, some in values.items()}
                    for table, values in tables.items()
                }
            )
        )

    def gather(self, facts: Facts, found: Found) -> None:
        """Add the rules whose settled conditions hold; some may come twice."""
        found += self.always
        for look in self.looks:
            look(facts, found)


def _leaf(entries: list[Entry], depth: int, placed: dict[Compiled, dict[Condition, None]]) -> Leaf:
    if len(entries) > ROOM and depth < DEPTH and any(rest for _, rest in entries):
        index = object.__new__(Index)
        index._fill(entries, depth + 1, placed)
        return index
    for rule, rest in entries:
        placed.setdefault(rule, {}).update(dict.fromkeys(rest))
    return tuple(rule for rule, _ in entries)


def _crowd(condition: Condition, counts: Counter[tuple[str, Any]]) -> tuple[int, int]:
    """How many rules share a value with this condition; few are as good as none."""
    most = max((counts[place] for place in condition.filed), default=0)
    return max(most, ROOM), DIMENSIONS.index(condition.dimension)


def _looks(tables: Tables) -> Iterable[Look]:
    """One look-up for every kind of table that is in use."""
    if "route" in tables:
        yield _paths(tables.get("path", {}), tables.get("tree", {}), tables["route"])
    for dimension in ("resource", "origin", "method"):
        if dimension in tables:
            yield _field(dimension, tables[dimension])
    if "host" in tables:
        yield _hosts(tables["host"])
    if "header" in tables:
        yield _named("headers", tables["header"], lambda value: (value,))
    if "attribute" in tables:
        yield _named("attributes", tables["attribute"], texts_of)
    if "entry" in tables:
        yield _entries(tables["entry"])
    if "through" in tables:
        yield _chain(tables["through"])


def _add(leaf: Leaf, facts: Facts, found: Found) -> None:
    if type(leaf) is tuple:
        found += leaf
    elif leaf is not None:
        leaf.gather(facts, found)


def _paths(exact: dict[str, Leaf], tree: dict[Any, Leaf], routes: dict[str, Leaf]) -> Look:
    trie: Trie[Leaf] = Trie()
    for (parts, least), leaf in tree.items():
        trie.add(parts, least, leaf)
    trees = bool(tree)
    seen: dict[str, list[Leaf]] = {}
    """What was found for the last paths: most come again and again."""

    def look(facts: Facts, found: Found) -> None:
        path, route = facts.path, facts.route
        if path:
            leaf = exact.get(path)
            if type(leaf) is tuple:  # as in _add, whose call would cost as much as all this
                found += leaf
            elif leaf is not None:
                leaf.gather(facts, found)
            if trees:
                leaves = seen.get(path)
                if leaves is None:
                    leaves = trie.find(path)
                    if len(path) <= LONG:
                        if len(seen) >= KEPT:
                            seen.clear()
                        seen[path] = leaves
                for leaf in leaves:
                    _add(leaf, facts, found)
        if route and (route != path or path not in exact):
            _add(routes.get(route), facts, found)

    return look


def _field(field: str, table: dict[str, Leaf]) -> Look:
    get, find = attrgetter(field), table.get

    def look(facts: Facts, found: Found) -> None:
        leaf = find(get(facts))
        if leaf is not None:
            _add(leaf, facts, found)

    return look


def _hosts(table: dict[str, Leaf]) -> Look:
    ends = {value[1:]: leaf for value, leaf in table.items() if value.startswith("*.")}
    longest = max(map(len, ends), default=0)

    def look(facts: Facts, found: Found) -> None:
        host = host_of(facts.host)
        _add(table.get(host), facts, found)
        if ends and not host.startswith("."):
            # Only what could be the end of a known name: a client may send any length.
            at = host.find(".", max(1, len(host) - longest))
            while at > 0:
                _add(ends.get(host[at:]), facts, found)
                at = host.find(".", at + 1)

    return look


def _named(field: str, table: dict[Any, Leaf], texts: Callable[[Any], Sequence[str]]) -> Look:
    """Headers or attributes: by the names of the rules, or by those of the call if less."""
    get = attrgetter(field)
    names: dict[str, dict[str | None, Leaf]] = {}
    for (name, value), leaf in table.items():
        names.setdefault(name, {})[value] = leaf
    few = len(names) <= ROOM

    def look(facts: Facts, found: Found) -> None:
        given = get(facts)
        if not given:
            return
        for name in names if few else given:
            values = names.get(name)
            value = None if values is None else given.get(name)
            if value is None or values is None:
                continue
            several = texts(value)
            if several:
                _add(values.get(None), facts, found)
            for text in several:
                _add(values.get(text), facts, found)

    return look


def _entries(table: dict[Any, Leaf]) -> Look:
    def look(facts: Facts, found: Found) -> None:
        for key, value in facts.entries:
            _add(table.get((key, value)), facts, found)
            _add(table.get((key, None)), facts, found)

    return look


def _chain(table: dict[str, Leaf]) -> Look:
    def look(facts: Facts, found: Found) -> None:
        for resource in facts.chain:
            _add(table.get(resource), facts, found)

    return look
