"""Conditions: a rule's match taken apart, each to be looked up in an index or asked by itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any

from ..facts import Facts
from .model import Match
from .patterns import Pattern, host_of, pattern

__all__ = ["Check", "Condition", "conditions_of", "texts_of"]

Check = Callable[[Facts], bool]

PRESENT = "*"
# What is looked up first where several are equally good: the surest and the cheapest.
DIMENSIONS = (
    "path", "resource", "host", "header", "entry", "origin", "attribute", "through", "method",
)  # fmt: skip


class Condition:
    """One condition of a rule: it holds if the call has one of its values."""

    __slots__ = ("dimension", "filed", "name", "values")

    def __init__(self, dimension: str, values: Iterable[str], name: str = "") -> None:
        self.dimension = dimension
        self.values = tuple(dict.fromkeys(values))
        self.name = name
        """Of a header, an attribute or an entry."""
        self.filed = self._filed()
        """Under which tables and values of an index the condition is found."""

    @property
    def meaning(self) -> tuple[str, str, tuple[str, ...]]:
        """The same for conditions that ask the same."""
        return self.dimension, self.name, self.values

    @property
    def present(self) -> bool:
        """Whether any value will do, as long as there is one; paths have patterns instead."""
        return PRESENT in self.values and self.dimension != "path"

    def _filed(self) -> list[tuple[str, Any]]:
        if self.present and not self.name:
            return []  # under nothing: it is always asked
        if self.dimension == "path":
            places: dict[tuple[str, Any], None] = {}
            for each in map(pattern, self.values):
                places["route", each.text] = None
                if each.literal is not None:
                    places["path", each.literal] = None
                elif each.parts is not None:
                    places["tree", (each.parts, each.least)] = None
            return list(places)
        if self.name:
            return [
                (self.dimension, (self.name, None if value == PRESENT else value))
                for value in self.values
            ]
        return [(self.dimension, value) for value in self.values]

    def check(self) -> Check:
        """The condition as a question to a call."""
        if self.dimension == "path":
            return _path_check(tuple(map(pattern, self.values)))
        values = frozenset(self.values)
        if self.present and not self.name:
            there = attrgetter("chain" if self.dimension == "through" else self.dimension)
            return lambda facts: bool(there(facts))
        if self.dimension == "host":
            return _host_check(values)
        if self.dimension == "through":
            return lambda facts: not values.isdisjoint(facts.chain)
        if self.dimension == "entry":
            return _entry_check(self.name, values)
        if self.dimension == "attribute":
            return _attribute_check(self.name, values)
        if self.dimension == "header":
            return _header_check(self.name, values)
        get = attrgetter(self.dimension)
        return lambda facts: get(facts) in values


def conditions_of(match: Match) -> list[Condition]:
    """What a match asks for; nothing if it is for every call."""
    plain = {
        "path": match.paths,
        "resource": match.resources,
        "host": [_host(text) for text in match.hosts],
        "origin": match.origins,
        "through": match.through,
        "method": sorted(method.upper() for method in match.methods),
    }
    named: dict[str, Mapping[str, tuple[str, ...]]] = {
        "header": {name.lower(): values for name, values in match.headers.items()},
        "entry": match.entries,
        "attribute": match.attributes,
    }
    found = [Condition(dimension, values) for dimension, values in plain.items() if values]
    for dimension, names in named.items():
        found += [Condition(dimension, values, name) for name, values in names.items()]
    return found


def texts_of(value: Any) -> Sequence[str]:
    """The texts that an attribute stands for: itself, or each of several; maybe none."""
    if isinstance(value, str):
        return (value,)
    if isinstance(value, bool):
        return ("true" if value else "false",)
    if isinstance(value, list | tuple | set | frozenset):
        return [text for each in value for text in texts_of(each)]
    return (str(value),)


def _host(text: str) -> str:
    return "*." + host_of(text[2:]) if text.startswith("*.") else host_of(text)


def _path_check(patterns: tuple[Pattern, ...]) -> Check:
    routes = frozenset(each.text for each in patterns)

    def check(facts: Facts) -> bool:
        path, route = facts.path, facts.route
        return (bool(route) and route in routes) or any(each.matches(path) for each in patterns)

    return check


def _host_check(values: frozenset[str]) -> Check:
    whole = frozenset(value for value in values if not value.startswith("*."))
    ends = tuple(value[1:] for value in values - whole)

    def check(facts: Facts) -> bool:
        host = host_of(facts.host)
        return host in whole or (host.endswith(ends) and not host.startswith("."))

    return check


def _entry_check(name: str, values: frozenset[str]) -> Check:
    present = PRESENT in values

    def check(facts: Facts) -> bool:
        return any(key == name and (present or value in values) for key, value in facts.entries)

    return check


def _attribute_check(name: str, values: frozenset[str]) -> Check:
    present = PRESENT in values

    def check(facts: Facts) -> bool:
        value = facts.attributes.get(name)
        texts = () if value is None else texts_of(value)
        return bool(texts) if present else not values.isdisjoint(texts)

    return check


def _header_check(name: str, values: frozenset[str]) -> Check:
    present = PRESENT in values

    def check(facts: Facts) -> bool:
        value = facts.headers.get(name)
        return value is not None and (present or value in values)

    return check
