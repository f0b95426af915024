"""Reading JSON to the letter: what is not as it must be is a ValueError that says so."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from typing import Any

from ...keys import Key, canonical

__all__ = [
    "WORD", "fields_of", "groups_of", "key_in", "key_out", "list_of", "read", "shown", "text_of",
    "whole",
]  # fmt: skip

WORD = 1 << 63
"""What every number lies below."""


def read(body: bytes) -> Any:
    """What a body says."""
    try:
        return json.loads(body)
    except RecursionError:
        raise ValueError("too many brackets") from None
    except UnicodeDecodeError:
        raise ValueError("the body is no UTF-8") from None


def groups_of(body: bytes) -> list[Any]:
    """The groups of a body of `/v1/decide`."""
    return list_of(fields_of(read(body), "a body", {"groups"}).get("groups"), "groups")


def fields_of(value: Any, what: str, known: set[str]) -> dict[str, Any]:
    """An object that has no other fields than these."""
    if not isinstance(value, dict):
        raise ValueError(f"{what} is an object, not {shown(value)}")
    if not known.issuperset(value):
        odd = sorted(set(value) - known)
        raise ValueError(f"{what} has no {shown(odd[0])}; known are {', '.join(sorted(known))}")
    return value


def list_of(value: Any, what: str) -> list[Any]:
    """A list."""
    if not isinstance(value, list):
        raise ValueError(f"{what} is a list, not {shown(value)}")
    return value


def text_of(found: dict[str, Any], name: str) -> str:
    """A field that is text, and can be written as UTF-8."""
    value = found.get(name)
    if not isinstance(value, str):
        raise ValueError(f"{name} is a text, not {shown(value)}")
    value.encode()
    return value


def whole(value: Any, name: str, least: int) -> int:
    """A whole number that fits into a word."""
    if type(value) is not int or not least <= value < WORD:
        raise ValueError(f"{name} is a whole number from {least} on, not {shown(value)}")
    return value


def shown(value: Any) -> str:
    """A value for a message, cut short."""
    try:
        text = repr(value)
    except RecursionError:
        return "a nest of brackets"
    return text if len(text) <= 80 else f"{text[:77]}..."


def key_out(key: Key) -> Any:
    """A key as JSON; errors for what is none."""
    canonical(key)
    if isinstance(key, tuple):
        return [_part_out(part) for part in key]
    return _part_out(key)


def key_in(value: Any) -> Key:
    """The key again."""
    if isinstance(value, list):
        return tuple(_part_in(part) for part in value)
    return _part_in(value)


def _part_out(part: str | bytes) -> Any:
    if isinstance(part, str):
        try:
            part.encode()
        except UnicodeEncodeError:  # lone surrogates: not every reader of JSON takes them
            return {"b": b64encode(part.encode("utf-8", "surrogatepass")).decode()}
        return str(part)
    return {"b": b64encode(part).decode()}


def _part_in(value: Any) -> str | bytes:
    if isinstance(value, str):
        return value
    if isinstance(value, dict) and list(value) == ["b"] and isinstance(value["b"], str):
        try:
            return b64decode(value["b"], validate=True)
        except ValueError:
            raise ValueError(f"a key's bytes are base64, not {shown(value['b'])}") from None
    raise ValueError(f'a key is a text, {{"b": base64}} or a list of them, not {shown(value)}')
