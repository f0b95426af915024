"""Policy kinds: values that only policies have: shares, windows, tables of priorities."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

from ..calendar import duration
from .kinds import Kind, Place, Record, Whole
from .lines import Node, shown
from .texts import LONGEST_WAIT

__all__ = [
    "AGE", "CALLS", "COUNT", "LASTING", "MANY", "NUMBER", "SHARE", "Shed", "Short", "Window",
]  # fmt: skip

MANY = 1_000_000
_SHARE = re.compile(r"([0-9]{1,4}(?:\.[0-9]{1,6})?) ?%", re.ASCII)
_CALLS = re.compile(r"([0-9]{1,7}) calls?", re.ASCII)


class Share:
    """A part of the whole: 50%, or 0.5."""

    def __init__(self, most: int = 100) -> None:
        self.most = most

    def read(self, node: Node, place: Place) -> float:
        value, found = node.value, 0.0
        if isinstance(value, str) and (match := _SHARE.fullmatch(value)):
            found = float(match[1]) / 100
        elif type(value) is float or (type(value) is int and value == 1):
            found = float(value)
        if not 0 < found <= self.most / 100:
            raise place.error(
                node, f"expected a share up to {self.most}%, such as 50%, not {shown(value)}"
            )
        return found

    def schema(self) -> dict[str, Any]:
        number = {"type": "number", "exclusiveMinimum": 0, "maximum": self.most / 100}
        return {"anyOf": [number, {"type": "string", "pattern": r"^[0-9]+(\.[0-9]+)? ?%$"}]}


class Lasting:
    """A length of time above 0, in seconds: a number of them, or a text such as 30s."""

    def __init__(self, most: float = LONGEST_WAIT, words: str = "an hour") -> None:
        self.most, self.words = most, words

    def read(self, node: Node, place: Place) -> float:
        value = node.value
        if type(value) in (int, float, str):
            try:
                seconds = duration(value, place.trail[-1]) / 1_000_000
            except ValueError as error:
                raise place.error(node, str(error)) from None
            if 0 < seconds <= self.most:
                return seconds
        raise place.error(
            node, f"expected a time up to {self.words}, such as 30s, not {shown(value)}"
        )

    def schema(self) -> dict[str, Any]:
        number = {"type": "number", "exclusiveMinimum": 0, "maximum": self.most}
        return {"anyOf": [number, {"type": "string", "minLength": 1}]}


class Window:
    """What a breaker looks back on: 100 calls, or 30s."""

    def read(self, node: Node, place: Place) -> dict[str, Any]:
        value = node.value
        if isinstance(value, str):
            calls = _CALLS.fullmatch(value)
            if calls is None:
                return {"window_seconds": LASTING.read(node, place)}
            if 1 <= int(calls[1]) <= MANY:
                return {"window_calls": int(calls[1])}
        raise place.error(node, f"expected a window such as '100 calls' or 30s, not {shown(value)}")

    def schema(self) -> dict[str, Any]:
        return {"type": "string", "minLength": 1}


class Shed:
    """What each priority may have, the lower the less: {-1: 80%, 0: 100%}."""

    def __init__(self, most: int) -> None:
        self.share = Share(most)

    def read(self, node: Node, place: Place) -> tuple[tuple[int, float], ...]:
        if not isinstance(node.value, dict) or not 1 <= len(node.value) <= 100:
            raise place.error(node, "expected a table such as {-1: 80%, 0: 100%}")
        found: dict[int, float] = {}
        for name, value in node.value.items():
            if not re.fullmatch(r"-?[0-9]{1,4}", name, re.ASCII):
                raise place.error(value, f"a priority is a whole number, not {shown(name)}")
            if int(name) in found:
                raise place.error(value, f"priority {int(name)} is there twice")
            found[int(name)] = self.share.read(value, place)
        steps = tuple(sorted(found.items()))
        for (_, less), (priority, more) in pairwise(steps):
            if more < less:
                raise place.error(
                    node, f"priority {priority} may have no less than the one below it"
                )
        return steps

    def schema(self) -> dict[str, Any]:
        return {"type": "object", "propertyNames": {"pattern": "^-?[0-9]{1,4}$"},
                "additionalProperties": self.share.schema(), "minProperties": 1,
                "maxProperties": 100}  # fmt: skip


class Short:
    """A table, or one value that says the most of it."""

    def __init__(self, kind: Kind, name: str, record: Record) -> None:
        self.kind, self.name, self.record = kind, name, record

    def read(self, node: Node, place: Place) -> Any:
        if isinstance(node.value, dict):
            return self.record.read(node, place)
        return self.record.make({self.name: self.kind.read(node, place)}, node, place)

    def schema(self) -> dict[str, Any]:
        return {"anyOf": [self.kind.schema(), self.record.schema()]}


class Calls(Whole):
    """A number of calls, which may stand in quotes."""

    def read(self, node: Node, place: Place) -> int:
        value = node.value
        if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 8:
            node = Node(int(value), node.line)
        return super().read(node, place)

    def schema(self) -> dict[str, Any]:
        return {"anyOf": [super().schema(), {"type": "string", "pattern": "^[0-9]{1,7}$"}]}


class Number:
    """A number above 0."""

    def read(self, node: Node, place: Place) -> float:
        value = node.value
        if type(value) not in (int, float) or not 0 < value <= MANY:
            raise place.error(node, f"expected a number above 0, such as 1.5, not {shown(value)}")
        return float(value)

    def schema(self) -> dict[str, Any]:
        return {"type": "number", "exclusiveMinimum": 0, "maximum": MANY}


SHARE, LASTING, COUNT, CALLS = Share(), Lasting(), Whole(1, MANY), Calls(1, MANY)
NUMBER, AGE = Number(), Lasting(7 * 86400, "a week")
