"""Keys and costs: what a rule reads from a call, prepared as one function each.

A part of a key that is missing or empty means that the rule does not apply.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any

from ..facts import Facts
from ..keys import Key
from .model import Cost, KeyPart
from .patterns import Pattern, host_of

__all__ = ["Part", "Reader", "cost_reader", "key_reader", "text_of"]

Part = str | bytes
Reader = Callable[[Facts], Any]
"""Reads a key, or a part of one; what is false is missing."""

_FIELDS = ("user", "device", "api_key", "path", "method", "origin", "resource")
_DIGITS = 16  # 2**53 - 1 has so many


def text_of(value: Any) -> Part:
    """A value as a part of a key; nothing is the empty text."""
    kind = type(value)
    if kind is str or kind is bytes:
        return value  # type: ignore[no-any-return]
    if value is None:
        return ""
    if kind is bool:
        return "true" if value else "false"
    return str(value)


def key_reader(parts: tuple[KeyPart, ...], patterns: tuple[Pattern, ...] = ()) -> Reader | None:
    """What reads a rule's key from a call; None if all calls share one key.

    The patterns are the rule's own: a parameter that the framework did not give is found in the
    path by them.
    """
    readers = [_part_reader(part, patterns) for part in parts]
    if not readers:
        return None
    if len(readers) == 1:
        return readers[0]
    if len(readers) == 2:
        return _two(*readers)

    def several(facts: Facts) -> Key | None:
        found = []
        for read in readers:
            part = read(facts)
            if not part:
                return None
            found.append(part)
        return tuple(found)

    return several


def _two(first: Reader, second: Reader) -> Reader:
    def two(facts: Facts) -> Key | None:
        one = first(facts)
        if not one:
            return None
        other = second(facts)
        return (one, other) if other else None

    return two


def _part_reader(part: KeyPart, patterns: tuple[Pattern, ...]) -> Reader:
    source, name = part.source, part.name
    if source in _FIELDS:
        return attrgetter(source)
    if source == "ip":
        return _ip_reader()
    if source == "host":
        return lambda facts: host_of(facts.host)
    if source == "header":
        header = name.lower()
        return lambda facts: facts.headers.get(header)
    if source == "route":
        return _route_reader(patterns)
    if source == "param":
        return _param_reader(name, tuple(each for each in patterns if name in dict(each.names)))
    if source == "arg":
        return lambda facts: text_of(facts.args.get(name))
    if source == "attribute":
        return lambda facts: text_of(facts.attributes.get(name))
    if source == "entry":
        return lambda facts: next((value for key, value in facts.entries if key == name), "")
    raise ValueError(f"a key has no part {source!r}")


def _ip_reader() -> Reader:
    from ..addresses import ip_key  # here, so that rules without addresses do not load it

    def ip(facts: Facts) -> str:
        text = facts.ip
        return ip_key(text) if ":" in text else text  # version 4 has one form

    return ip


def _route_reader(patterns: tuple[Pattern, ...]) -> Reader:
    def route(facts: Facts) -> str:
        if facts.route:
            return facts.route
        return next((each.text for each in patterns if each.matches(facts.path)), "")

    return route


def _param_reader(name: str, patterns: tuple[Pattern, ...]) -> Reader:
    def param(facts: Facts) -> Part:
        value = facts.params.get(name)
        if value is not None:
            return text_of(value)
        for each in patterns:
            found = each.parameter(facts.path, name)
            if found:
                return found
        return ""

    return param


def cost_reader(cost: Cost) -> int | Callable[[Facts], int]:
    """What a call costs: a number, or what reads it from the call."""
    source, default = cost.source, min(cost.default, cost.most)
    per, most, least = max(1, cost.per), cost.most, cost.least
    read: Reader
    if source == "constant":
        return default
    if source == "header":
        header = cost.name.lower()

        def read(facts: Facts) -> Any:
            return facts.headers.get(header)

    elif source == "arg":
        name = cost.name

        def read(facts: Facts) -> Any:
            return facts.args.get(name)

    elif source == "size":

        def read(facts: Facts) -> Any:
            return facts.size or None  # a body of unknown size is not free

    else:
        raise ValueError(f"a cost has no source {source!r}")

    def costs(facts: Facts) -> int:
        number = _whole(read(facts))
        return default if number is None else max(least, min(-(-number // per), most))

    return costs


def _whole(value: Any) -> int | None:
    """A whole number that is not negative, or None; texts are read only as plain digits."""
    if isinstance(value, int):
        return int(value) if value >= 0 and not isinstance(value, bool) else None
    if not isinstance(value, str):
        return None
    digits = value.strip(" \t")
    if not digits.isascii() or not digits.isdigit():
        return None
    digits = digits.lstrip("0") or "0"
    return int(digits) if len(digits) <= _DIGITS else 10**_DIGITS
