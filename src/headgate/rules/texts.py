"""Texts with a meaning of their own: limits, times, parts of a key; and data of any form."""

from __future__ import annotations

from typing import Any

from ..calendar import duration
from ..errors import LimitSyntaxError
from ..limit import Limit
from . import checks
from .kinds import Many, Place, did_you_mean
from .lines import Node, shown
from .model import KeyPart

__all__ = ["FREE", "LIMIT", "Data", "Part", "Span"]

LONGEST_WAIT = 3600
PLAIN = ("ip", "user", "device", "api_key", "host", "route", "path", "method", "origin", "resource")
NAMED = ("header", "param", "arg", "attribute", "entry")


class LimitKind:
    """A text of the limit language."""

    def read(self, node: Node, place: Place) -> Limit:
        text = node.value
        if not isinstance(text, str) or not text.strip() or len(text) > 200:
            long = "a text of more than 200 characters" if isinstance(text, str) else shown(text)
            raise place.error(node, f"expected a limit such as '100/minute', not {long}")
        known = place.made.get(("limit", text))
        if isinstance(known, Limit):
            return known
        line = " ".join(text.split())
        try:
            limit = Limit.parse(line)
        except LimitSyntaxError as error:
            raise place.error(node, str(error)) from None
        except (ValueError, TypeError) as error:
            raise place.error(node, f"{shown(line)} is not a limit: {error}") from None
        place.made["limit", text] = limit
        return limit

    def schema(self) -> dict[str, Any]:
        return {"$ref": "#/$defs/limit"}


class FreeLimits:
    """Limits, or the word `unlimited`, which is none."""

    def read(self, node: Node, place: Place) -> tuple[Limit, ...]:
        if node.value == "unlimited":
            return ()
        limits: tuple[Limit, ...] = SOME.read(node, place)
        return limits

    def schema(self) -> dict[str, Any]:
        return {"anyOf": [{"const": "unlimited"}, SOME.schema()]}


LIMIT = LimitKind()
SOME = Many(LIMIT, 16)
FREE = FreeLimits()


class Span:
    """A length of time in seconds: a number of them, or a text such as 3s."""

    def read(self, node: Node, place: Place) -> float:
        value = node.value
        if value == 0 and type(value) in (int, float):
            return 0.0
        if type(value) in (int, float, str):
            try:
                seconds = duration(value, "wait") / 1_000_000
            except ValueError as error:
                raise place.error(node, str(error)) from None
            if seconds <= LONGEST_WAIT:
                return seconds
        raise place.error(node, f"expected a time up to an hour, such as 3s, not {shown(value)}")

    def schema(self) -> dict[str, Any]:
        number = {"type": "number", "minimum": 0, "maximum": LONGEST_WAIT}
        return {"anyOf": [number, {"type": "string", "minLength": 1}]}


class Part:
    """A part of a key: `ip`, or `header:X-Tenant`."""

    def read(self, node: Node, place: Place) -> KeyPart:
        if not isinstance(node.value, str):
            raise place.error(node, f"expected a part of a key such as ip, not {shown(node.value)}")
        source, colon, name = node.value.partition(":")
        if source not in (NAMED if colon else PLAIN):
            if not colon and source in NAMED:
                raise place.error(node, f"which {source}? Write {source}:name")
            if source in PLAIN:
                raise place.error(
                    node, f"{source} has no name behind it, as in {shown(node.value)}"
                )
            known = did_you_mean(source, (*PLAIN, *(f"{word}:name" for word in NAMED)))
            raise place.error(node, f"{shown(node.value)} is no part of a key; {known}")
        if not colon:
            return _PLAIN[source]
        try:
            check = checks.header_name if source == "header" else checks.attribute_name
            return KeyPart(source, check(name))
        except ValueError as error:
            raise place.error(node, str(error)) from None

    def schema(self) -> dict[str, Any]:
        named = {"type": "string", "pattern": f"^({'|'.join(NAMED)}):."}
        return {"anyOf": [{"enum": list(PLAIN)}, named]}


_PLAIN = {source: KeyPart(source) for source in PLAIN}


class Data:
    """Any data: what JSON can hold."""

    def read(self, node: Node, place: Place) -> Any:
        todo = [node]
        while todo:
            held = todo.pop()
            if isinstance(held.value, dict | list):
                todo += held.value.values() if isinstance(held.value, dict) else held.value
            elif not isinstance(held.value, str | int | float | bool | None):
                raise place.error(held, f"{shown(held.value)} is not data that JSON has")
        return node.plain()

    def schema(self) -> dict[str, Any]:
        return {}
