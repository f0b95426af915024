"""Kinds of values: each reads a node, says what was expected there, and describes itself."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Hashable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Protocol, TypeVar

from ..errors import RulesError
from .lines import Node, shown

__all__ = [
    "Flag", "Kind", "Listed", "Many", "Place", "Record", "Table", "Text", "Whole", "Word",
    "did_you_mean",
]  # fmt: skip


Value = TypeVar("Value", bound=Hashable)


class Place:
    """Where reading has come to: the file, the rule, and the names that lead to a value."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.rule = ""
        self.trail: list[str] = []
        self.made: dict[Any, Any] = {}
        """Values that were read before, by their text: rules repeat each other."""
        self.defaults: dict[str, Any] = {}
        """What holds for a rule that does not say it."""

    def error(self, node: Node, problem: str) -> RulesError:
        """What is wrong with a node."""
        trail = ".".join(self.trail)
        return RulesError(
            f"{trail}: {problem}" if trail else problem, self.file, node.line, self.rule
        )

    def once(self, value: Value) -> Value:
        """The same value, kept once however often it is said."""
        kept: Value = self.made.setdefault(("once", type(value), value), value)
        return kept

    def enter_rule(self, name: str) -> None:
        """Begin with a rule; an error may have left the last one in the middle."""
        self.rule = name
        self.trail.clear()


class Kind(Protocol):
    """One kind of value."""

    def read(self, node: Node, place: Place) -> Any:
        """The value, checked; a RulesError if it is none."""

    def schema(self) -> dict[str, Any]:
        """The same in JSON Schema, which may be less strict."""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """The known words, and first the one that was probably meant."""
    known = list(known)
    near = difflib.get_close_matches(word[:60].lower(), known, 1, 0.6)
    listed = ", ".join(known[:40]) + (", ..." if len(known) > 40 else "")
    if not near:
        return f"known are {listed}" if known else "none are known"
    return f"did you mean {near[0]!r}? Known are {listed}"


class Text:
    """A text of one line; `check` changes it or raises a ValueError that says what is wrong."""

    def __init__(
        self,
        expected: str = "a text",
        check: Callable[[str], str] | None = None,
        *,
        pattern: str = "",
        most: int = 1000,
        loose: bool = False,
        lines: bool = False,
    ) -> None:
        self.expected = expected
        self.check = check
        self.pattern = pattern
        self.most = most
        self.loose = loose
        """Whether whole numbers, true and false stand for their texts."""
        self.lines = lines

    def read(self, node: Node, place: Place) -> str:
        value = node.value
        if self.loose and isinstance(value, int):
            value = shown(value)
        if not isinstance(value, str):
            raise place.error(
                node, f"expected {self.expected}, not {shown(value)}{_quoting(value)}"
            )
        if not value or len(value) > self.most:
            size = "an empty one" if not value else f"one of {len(value):,} characters"
            raise place.error(node, f"expected {self.expected} of up to {self.most}, not {size}")
        if not self.lines and not value.isprintable():
            raise place.error(node, f"{shown(value)} holds a line break or a control character")
        if self.check is not None:
            known = place.made.get((self, value))
            if known is not None:
                return str(known)
            try:
                checked = self.check(value)
            except ValueError as error:
                raise place.error(node, str(error)) from None
            value = place.made[self, value] = checked
        return value

    def schema(self) -> dict[str, Any]:
        found: dict[str, Any] = {"type": "string", "minLength": 1, "maxLength": self.most}
        if self.loose:
            found["type"] = ["string", "integer", "boolean"]
        if self.pattern:
            found["pattern"] = self.pattern
        return found


def _quoting(value: object) -> str:
    plain = isinstance(value, int | float) and not isinstance(value, bool)
    return f': write it in quotes, as "{value}"' if plain else ""


class Word:
    """One of a few words."""

    def __init__(self, *words: str) -> None:
        self.words = words

    def read(self, node: Node, place: Place) -> str:
        if not isinstance(node.value, str) or node.value not in self.words:
            known = did_you_mean(str(node.value), self.words)
            raise place.error(node, f"{shown(node.value)} is not a word for this; {known}")
        return node.value

    def schema(self) -> dict[str, Any]:
        return {"enum": list(self.words)}


class Whole:
    """A whole number between two others."""

    def __init__(self, least: int, most: int) -> None:
        self.least, self.most = least, most

    def read(self, node: Node, place: Place) -> int:
        value = node.value
        if type(value) is not int or not self.least <= value <= self.most:
            span = f"a whole number from {self.least} to {self.most}"
            span = span if self.least < self.most else str(self.least)
            raise place.error(node, f"expected {span}, not {shown(value)}")
        return value

    def schema(self) -> dict[str, Any]:
        return {"type": "integer", "minimum": self.least, "maximum": self.most}


class Flag:
    """True or false."""

    def read(self, node: Node, place: Place) -> bool:
        if not isinstance(node.value, bool):
            raise place.error(node, f"expected true or false, not {shown(node.value)}")
        return node.value

    def schema(self) -> dict[str, Any]:
        return {"type": "boolean"}


class Listed:
    """A list of one kind, as a tuple."""

    def __init__(self, kind: Kind, most: int = 10_000, least: int = 1) -> None:
        self.kind, self.most, self.least = kind, most, least

    def read(self, node: Node, place: Place) -> tuple[Any, ...]:
        if not isinstance(node.value, list):
            raise place.error(node, f"expected a list, not {shown(node.value)}")
        if not self.least <= len(node.value) <= self.most:
            span = f"{self.least} to {self.most:,}"
            raise place.error(node, f"expected a list of {span}, not of {len(node.value):,}")
        return place.once(tuple(self.kind.read(item, place) for item in node.value))

    def schema(self) -> dict[str, Any]:
        items = self.kind.schema()
        return {"type": "array", "items": items, "minItems": self.least, "maxItems": self.most}


class Many(Listed):
    """One, or a list of them: always a tuple."""

    def read(self, node: Node, place: Place) -> tuple[Any, ...]:
        if isinstance(node.value, list):
            return super().read(node, place)
        return place.once((self.kind.read(node, place),))

    def schema(self) -> dict[str, Any]:
        return {"anyOf": [self.kind.schema(), super().schema()]}


class Table:
    """Any names, each with a value of one kind."""

    def __init__(self, kind: Kind, name: Callable[[str], str] = str, most: int = 10_000) -> None:
        self.kind, self.name, self.most = kind, name, most

    def read(self, node: Node, place: Place) -> Mapping[str, Any]:
        if not isinstance(node.value, dict):
            raise place.error(node, f"expected a table, not {shown(node.value)}")
        if not 1 <= len(node.value) <= self.most:
            raise place.error(node, f"expected 1 to {self.most:,} names, not {len(node.value):,}")
        found = {}
        for name, value in node.value.items():
            try:
                name = self.name(name)
            except ValueError as error:
                raise place.error(value, str(error)) from None
            if name in found:
                raise place.error(value, f"{shown(name)} is there twice")
            place.trail.append(name[:80])
            found[name] = self.kind.read(value, place)
            place.trail.pop()
        return MappingProxyType(found)

    def schema(self) -> dict[str, Any]:
        return {"type": "object", "additionalProperties": self.kind.schema(), "minProperties": 1,
                "maxProperties": self.most}  # fmt: skip


class Record:
    """A table of known names; `make` makes the value of what was read."""

    def __init__(
        self,
        fields: Mapping[str, Kind],
        make: Callable[[dict[str, Any], Node, Place], Any],
        *,
        needs: tuple[str, ...] = (),
        what: str = "",
        **schema: Any,
    ) -> None:
        self.fields, self.make, self.needs, self.what = fields, make, needs, what
        self.more = schema

    def read(self, node: Node, place: Place) -> Any:
        if not isinstance(node.value, dict):
            names = ", ".join(self.fields)
            raise place.error(node, f"expected a table of {names}, not {shown(node.value)}")
        found = {}
        for name, value in node.value.items():
            kind = self.fields.get(name)
            if kind is None:
                known = did_you_mean(name, self.fields)
                raise place.error(value, f"{shown(name)} is unknown{self.what}; {known}")
            place.trail.append(name)
            found[name] = kind.read(value, place)
            place.trail.pop()
        for name in self.needs:
            if name not in found:
                raise place.error(node, f"{name!r} is missing{self.what}")
        return self.make(found, node, place)

    def schema(self) -> dict[str, Any]:
        found: dict[str, Any] = {
            "type": "object",
            "properties": {name: kind.schema() for name, kind in self.fields.items()},
            "additionalProperties": False,
        }
        if self.needs:
            found["required"] = list(self.needs)
        return {**found, **self.more}
