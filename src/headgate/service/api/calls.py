"""Calls: what a request says of a call, by its facts or by a rule's name and a key."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

from ...addresses import canonical
from ...facts import Facts
from ...paths import normal_path
from ..faults import Fault, missing, wrong
from ..tokens import key_from

if TYPE_CHECKING:
    from ...rules.compiled import Matched
    from ..asking import Asking

__all__ = ["FIELDS", "call_of", "cost_of", "fields_only", "query_of", "seconds_of"]

MOST = 2**53 - 1
LONGEST = 8192
MANY = 100
"""So many entries, headers or arguments a call has at most."""


def _text(field: str, value: Any) -> str:
    if type(value) is not str:
        raise wrong(field, "a text", value)
    if len(value) > LONGEST:
        raise wrong(field, f"a text of at most {LONGEST} characters")
    return value


def _method(field: str, value: Any) -> str:
    return _text(field, value).upper()


def _path(field: str, value: Any) -> str:
    return normal_path(_text(field, value).partition("?")[0]) if value != "" else ""


def _host(field: str, value: Any) -> str:
    return _text(field, value).lower()


def _ip(field: str, value: Any) -> str:
    try:
        return canonical(_text(field, value)) if value else ""
    except ValueError:
        raise wrong(field, "an address such as 192.0.2.7 or 2001:db8::1", value) from None


def _texts(field: str, value: Any) -> dict[str, str]:
    for name, each in _object(field, value).items():
        _text(f"{field}.{name}"[:80], each)
    return value  # type: ignore[no-any-return] # just seen


def _headers(field: str, value: Any) -> dict[str, str]:
    return {name.lower(): each for name, each in _texts(field, value).items()}


def _values(field: str, value: Any) -> dict[str, Any]:
    for name, each in _object(field, value).items():
        if not isinstance(each, str | int | float | None):
            raise wrong(f"{field}.{name}"[:80], "a text, a number, true, false or null", each)
        if isinstance(each, str):
            _text(f"{field}.{name}"[:80], each)
    return value  # type: ignore[no-any-return] # just seen


def _object(field: str, value: Any) -> dict[str, Any]:
    if type(value) is not dict:
        raise wrong(field, "an object", value)
    if len(value) > MANY:
        raise wrong(field, f"an object of at most {MANY} members")
    return value


def _entries(field: str, value: Any) -> Sequence[tuple[str, str]]:
    if type(value) is dict:
        return tuple(_texts(field, value).items())
    if type(value) is not list or len(value) > MANY:
        raise wrong(field, f"a list of at most {MANY} pairs of texts, or an object", value)
    pairs = []
    for place, pair in enumerate(value):
        if type(pair) is not list or [type(part) for part in pair] != [str, str]:
            raise wrong(f"{field}[{place}]", "a pair of texts", pair)
        pairs.append((pair[0], pair[1]))
    return tuple(pairs)


def _chain(field: str, value: Any) -> Sequence[str]:
    if type(value) is not list or len(value) > MANY:
        raise wrong(field, f"a list of at most {MANY} texts", value)
    return tuple(_text(f"{field}[{place}]", each) for place, each in enumerate(value))


def _whole(field: str, value: Any, most: int = MOST, least: int = 0) -> int:
    if type(value) is not int or not least <= value <= most:
        raise wrong(field, f"a whole number from {least} to {most}", value)
    return value


def _priority(field: str, value: Any) -> int:
    return _whole(field, value, 1_000_000, -1_000_000)


FIELDS: dict[str, Callable[[str, Any], Any]] = {
    "method": _method, "path": _path, "host": _host, "resource": _text, "route": _text,
    "headers": _headers, "ip": _ip, "user": _text, "device": _text, "api_key": _text,
    "origin": _text, "params": _texts, "args": _values, "attributes": _values,
    "entries": _entries, "domain": _text, "chain": _chain, "size": _whole, "priority": _priority,
}  # fmt: skip
"""What is known of a call, and what reads it."""
SHORT = 256


@lru_cache(maxsize=4096)
def _short_path(path: str) -> str:
    return _path("path", path)


QUICK: dict[str, Callable[[str], str]] = {
    field: str for field, read in FIELDS.items() if read is _text
} | {"method": str.upper, "host": str.lower, "path": _short_path, "ip": canonical}
"""The same for short texts, which most are; a ValueError leaves it to the others."""
OTHERS = frozenset(("rule", "key", "cost"))


def call_of(
    told: Any, asking: Asking, *, more: frozenset[str] = frozenset(), where: str = ""
) -> tuple[Facts, Matched]:
    """The facts of a call, and what the rules say of it; `more` are fields of somebody else."""
    if type(told) is not dict:
        raise wrong(where.rstrip(".") or "the body", "an object", told)
    facts: dict[str, Any] = {}
    for field, value in told.items():
        if type(value) is str and len(value) <= SHORT:
            quick = QUICK.get(field)
            if quick is not None:
                try:
                    facts[field] = quick(value)
                    continue
                except ValueError:
                    pass
        read = FIELDS.get(field)
        if read is not None:
            facts[field] = read(where + field if where else field, value)
        elif field not in OTHERS and field not in more:
            raise _no_field(where + field)
    known = Facts(**facts)
    cost = cost_of(told, where) if "cost" in told else -1
    if "rule" not in told:
        if "key" in told:
            raise missing(f"{where}rule", "a key is told together with the rule that it is for")
        return known, asking.matched(known, cost)
    rule = _text(f"{where}rule", told["rule"])
    try:
        key = key_from(told.get("key", ""))
    except ValueError as error:
        raise wrong(f"{where}key", str(error), told["key"]) from None
    return known, asking.by_rule(rule, key, cost, known)


def cost_of(told: dict[str, Any], where: str = "") -> int:
    """The cost that a request says."""
    if "cost" not in told:
        raise missing(f"{where}cost")
    return _whole(f"{where}cost", told["cost"])


def seconds_of(told: dict[str, Any], field: str, most: float) -> float | None:
    """Seconds that a request says; None if it says nothing."""
    value = told.get(field)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0.001 <= value <= most:
        raise wrong(field, f"a number of seconds from 0.001 to {most:g}", value)
    return float(value)


def fields_only(told: Any, *fields: str) -> dict[str, Any]:
    """An object that has none but these fields."""
    if type(told) is not dict:
        raise wrong("the body", "an object", told)
    for field in told:
        if field not in fields:
            raise _no_field(field)
    return told


def query_of(scope: Any) -> dict[str, Any]:
    """A call as the query of a URL tells it: several `key`s are a key of several parts."""
    told: dict[str, Any] = {}
    try:
        pairs = parse_qsl(
            scope["query_string"].decode("ascii"), keep_blank_values=True, max_num_fields=MANY,
            errors="strict",
        )  # fmt: skip
    except ValueError:
        raise Fault(400, "the query cannot be read") from None
    keys = [value for name, value in pairs if name == "key"]
    for name, value in pairs:
        if name == "key":
            told["key"] = keys[0] if len(keys) == 1 else keys
        elif name in told:
            raise wrong(name, "told once")
        elif name in ("cost", "size", "priority"):
            told[name] = int(value) if value.isascii() and value.isdigit() else value
        else:
            told[name] = value
    return told


def _no_field(field: str) -> Fault:
    field = field[:80]
    return Fault(422, f"there is no field {field!r} here", field=field)
