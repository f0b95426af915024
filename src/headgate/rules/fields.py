"""Fields: everything a rules file can say, and the values it becomes."""

from __future__ import annotations

import os
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from . import checks
from .kinds import Flag, Kind, Listed, Many, Place, Record, Table, Text, Whole, Word
from .lines import Node, shown
from .model import Cost, Defaults, Lists, Match, Otherwise, Plans, Rule
from .texts import FREE, LIMIT, Data, Part, Span

__all__ = ["DEFAULTS", "LISTS", "RULE"]

MOST = 2**53 - 1
ON_ERROR = Word("allow", "deny", "local")
LOG_LEVEL = Word("off", "debug", "info", "warning", "error", "critical")
STATUS = Whole(200, 599)
HEADERS = Word("draft-11", "draft-10", "draft-07", "draft-06", "x-ratelimit", "off")


class CostKind:
    """A number, or where the number is to be found."""

    def read(self, node: Node, place: Place) -> Cost:
        if isinstance(node.value, dict):
            cost: Cost = FOUND_COST.read(node, place)
            return cost
        if type(node.value) is not int:
            raise place.error(
                node,
                "expected a whole number, {header: X-Cost}, {arg: name} or {size: 1KiB}, "
                f"not {shown(node.value)}",
            )
        return Cost(default=FIXED_COST.read(node, place))

    def schema(self) -> dict[str, Any]:
        return {"anyOf": [FIXED_COST.schema(), FOUND_COST.schema()]}


class SizeKind:
    """So many bytes: a number, or a text such as 1KiB."""

    def read(self, node: Node, place: Place) -> int:
        if type(node.value) is int:
            return FIXED_COST.read(node, place)
        return int(Text("a size such as 1KiB", checks.size).read(node, place))

    def schema(self) -> dict[str, Any]:
        return {"anyOf": [FIXED_COST.schema(), {"type": "string", "pattern": "^[0-9]+[A-Za-z]*$"}]}


def _one_of(found: Mapping[str, Any], names: tuple[str, ...], node: Node, place: Place) -> str:
    """The one of these names that there is."""
    there = [name for name in names if name in found]
    if len(there) != 1:
        problem = f"{' and '.join(there)} exclude each other" if there else "nothing is said"
        raise place.error(node, f"expected one of {', '.join(names)}; {problem}")
    return there[0]


def _cost(found: dict[str, Any], node: Node, place: Place) -> Cost:
    source = _one_of(found, ("header", "arg", "size"), node, place)
    least, most = found.get("least", 0), found.get("most", MOST)
    default = found.get("default", max(1, least))
    if least > most:
        raise place.error(node, f"the least, {least}, is more than the most, {most}")
    if default > most:
        raise place.error(node, f"the default, {default}, is more than the most, {most}")
    if default < least:
        raise place.error(node, f"the default, {default}, is less than the least, {least}")
    if source == "size":
        if "per" in found:
            raise place.error(node, "size says how many bytes are one: 'per' is for the others")
        return Cost("size", default=default, per=found["size"], most=most, least=least)
    return Cost(source, found[source], default, found.get("per", 1), most, least)


FIXED_COST = Whole(1, MOST)
NAME = Text("a name", checks.attribute_name)
_SOURCES: dict[str, Kind] = {
    "header": Text("a header's name", checks.header_name), "arg": NAME, "size": SizeKind(),
}  # fmt: skip
_COST: dict[str, Kind] = {
    **_SOURCES, "default": Whole(0, MOST), "per": FIXED_COST, "least": Whole(0, MOST),
    "most": FIXED_COST,
}  # fmt: skip
FOUND_COST = Record(_COST, _cost, what=" in a cost")


class PlansKind:
    """`by` names what decides; all other names are plans."""

    def read(self, node: Node, place: Place) -> Plans:
        if not isinstance(node.value, dict) or "by" not in node.value:
            raise place.error(
                node, "expected a table such as {by: plan, pro: 100/second}: 'by' is missing"
            )
        place.trail.append("by")
        by = NAME.read(node.value["by"], place)
        place.trail.pop()
        plans = {name: limits for name, limits in node.value.items() if name != "by"}
        return Plans(by, PLANS.read(Node(plans, node.line), place))

    def schema(self) -> dict[str, Any]:
        return {**PLANS.schema(), "properties": {"by": NAME.schema()}, "required": ["by"],
                "minProperties": 2, "maxProperties": PLANS.most + 1}  # fmt: skip


PLANS = Table(FREE, checks.attribute_name)
HOT = Record({"values": Table(FREE, checks.attribute_name)}, lambda found, _, __: found["values"],
             needs=("values",), what=" in 'hot'")  # fmt: skip


def _otherwise(found: dict[str, Any], node: Node, place: Place) -> Otherwise:
    kind = _one_of(found, tuple(_OTHERWISE), node, place)
    value = found[kind]
    if kind == "page" and "<" not in value and "\n" not in value:
        value = os.path.join(os.path.dirname(place.file), value)  # beside the file that says so
    return Otherwise(kind, value)


_OTHERWISE: dict[str, Kind] = {
    "redirect": Text("a path or an address", checks.redirect, pattern="^(/|https?://)"),
    "page": Text("a file's path, or the page itself", most=100_000, lines=True),
    "data": Data(),
    "function": Text("module:name", checks.function, pattern=f"^{checks.FUNCTION}$"),
}
OTHERWISE = Record(_OTHERWISE, _otherwise, minProperties=1, maxProperties=1)


def _lists(found: dict[str, Any], node: Node, place: Place) -> Lists:
    if not found:
        raise place.error(node, "expected networks, origins or users; nothing is said")
    return Lists(**found)


LOOSE = Text("a text", loose=True)
LISTS = Record(
    {
        "networks": Many(Text("a network", checks.network)),
        "origins": Many(LOOSE),
        "users": Many(LOOSE),
    },
    _lists,
    minProperties=1,
)


def _busy(found: dict[str, Any], _: Node, __: Place) -> Mapping[str, Any]:
    return MappingProxyType(found)


def _match(found: dict[str, Any], _: Node, place: Place) -> Match:
    found = {_MATCH_NAMES.get(name, name): value for name, value in found.items()}
    if "methods" in found:
        found["methods"] = place.once(frozenset(found["methods"]))
    return Match(**found)


_MATCH_NAMES = {
    "method": "methods", "path": "paths", "host": "hosts", "resource": "resources",
    "header": "headers", "origin": "origins",
}  # fmt: skip
VALUES = Many(Text("a value", loose=True))
MATCH = Record(
    {
        "method": Many(Text("a method", checks.method)),
        "path": Many(Text("a path such as /api/*", checks.path)),
        "host": Many(Text("a host", checks.host)),
        "resource": Many(Text("a resource's name")),
        "header": Table(VALUES, checks.header_name),
        "attributes": Table(VALUES, checks.attribute_name),
        "entries": Table(VALUES, checks.attribute_name),
        "origin": Many(LOOSE),
        "through": Many(Text("a resource's name")),
    },
    _match,
    what=" in 'match'",
)


def _defaults(found: dict[str, Any], _: Node, __: Place) -> Defaults:
    return Defaults(**found)


DEFAULTS = Record(
    {"on_error": ON_ERROR, "headers": HEADERS, "status": STATUS, "log_level": LOG_LEVEL},
    _defaults,
    what=" in 'defaults'",
)


def _rule(found: dict[str, Any], node: Node, place: Place) -> Rule:
    if "limit" in found and "limits" in found:
        raise place.error(node, "'limit' is one and 'limits' is several: write one of the two")
    if "limit" in found:
        found["limits"] = place.once((found.pop("limit"),))
    limiting = [name for name in ("limits", "plans", "hot", "while") if name in found]
    if found.get("exempt"):
        if limiting:
            raise place.error(node, f"an exempt rule limits nobody, so it has no {limiting[0]!r}")
    elif "limits" not in found and (limiting or "deny" not in found):
        other = limiting[0] if limiting else ""
        hint = f"; {other!r} holds only for some" if other else ""
        raise place.error(node, f"'limit' or 'limits' is missing{hint} (or write exempt: true)")
    if "hot" in found and not found.get("key"):
        raise place.error(node, "'hot' is about values of the key, and there is no 'key'")
    if found["name"] in found.get("replaces", ()):
        raise place.error(node, "a rule does not replace itself")
    if "while" in found:
        found["busy"] = found.pop("while")
    return Rule(**{**place.defaults, **found}, line=node.line)


RULE = Record(
    {
        "name": Text("a rule's name", checks.rule_name, pattern=f"^{checks.RULE}$"),
        "match": MATCH,
        "key": Many(Part(), 16, 0),
        "limit": LIMIT,
        "limits": Listed(LIMIT, 16),
        "plans": PlansKind(),
        "hot": HOT,
        "cost": CostKind(),
        "count": Word("all", "failures"),
        "wait": Span(),
        "otherwise": OTHERWISE,
        "status": STATUS,
        "log_level": LOG_LEVEL,
        "shadow": Flag(),
        "priority": Whole(-1000, 1000),
        "on_error": ON_ERROR,
        "exempt": Flag(),
        "allow": LISTS,
        "deny": LISTS,
        "while": Record({"resource": NAME, "limit": LIMIT}, _busy, needs=("resource", "limit")),
        "replaces": Many(Text("a rule's name", checks.rule_name)),
    },
    _rule,
    needs=("name",),
    what=" in a rule",
    **{"not": {"required": ["limit", "limits"]}},
)
