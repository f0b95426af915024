"""The published JSON Schema: what is stored is what the reader's fields say."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from headgate.rules import RulesError, read_rules
from headgate.rules.fields import RULE
from headgate.rules.schema import rules_schema, stored_schema, written_schema

FULL: dict[str, Any] = {
    "version": 1,
    "defaults": {"on_error": "local", "headers": "draft-07", "status": 429, "log_level": "off"},
    "allow": {"networks": ["10.0.0.0/8"], "origins": "cart", "users": [1]},
    "deny": {"users": ["mallory"]},
    "rules": [
        {
            "name": "all",
            "match": {
                "method": "POST", "path": ["/a", "/b/{id}"], "host": "example.com",
                "resource": "orders", "header": {"X-Foo": "bar"}, "attributes": {"beta": True},
                "entries": {"k": ["v", "w"]}, "origin": "cart", "through": ["gateway"],
            },
            "key": ["ip", "header:X-Tenant"],
            "limits": ["10/second burst 20", "500/hour"],
            "plans": {"by": "plan", "pro": "9/second", "own": "unlimited"},
            "hot": {"values": {"sku-1": ["5/second"]}},
            "cost": {"header": "X-Cost", "default": 1, "per": 1, "least": 1, "most": 9},
            "count": "failures",
            "wait": "3s",
            "otherwise": {"redirect": "/busy"},
            "status": 503,
            "log_level": "warning",
            "shadow": True,
            "priority": 3,
            "on_error": "deny",
            "allow": {"origins": ["x"]},
            "deny": {"networks": "192.0.2.1"},
            "while": {"resource": "B", "limit": "100/second"},
            "replaces": "other",
        },
        {"name": "other", "key": "ip", "limit": "1/s", "cost": 5, "wait": 1.5,
         "otherwise": {"data": {"a": [1]}}},
        {"name": "third", "key": [], "limit": "1/s", "cost": {"size": "1KiB"},
         "otherwise": {"function": "shop.busy:page"}},
        {"name": "fourth", "exempt": True, "otherwise": {"page": "<p>\n</p>"}},
    ],
}  # fmt: skip


def validator() -> Any:
    jsonschema = pytest.importorskip("jsonschema")
    jsonschema.Draft202012Validator.check_schema(rules_schema())
    return jsonschema.Draft202012Validator(rules_schema())


def both(data: Any) -> tuple[bool, bool]:
    """Whether the schema and the reader take it."""
    try:
        read_rules(json.dumps(data), name="rules.json")
    except RulesError:
        return validator().is_valid(data), False
    return validator().is_valid(data), True


def test_what_is_stored_is_what_the_fields_say() -> None:
    assert stored_schema() == written_schema(), (
        "python -m headgate.rules.schema > src/headgate/rules/rules.schema.json"
    )


def test_every_field_is_tried_here() -> None:
    said = {name for rule in FULL["rules"] for name in rule}
    assert said == set(RULE.fields)
    assert set(FULL["rules"][0]["match"]) == set(
        rules_schema()["$defs"]["rule"]["properties"]["match"]["properties"]
    )
    assert both(FULL) == (True, True)


def test_unknown_names_are_refused_by_both_everywhere() -> None:
    seen = 0
    for path in tables(FULL):
        data = copy.deepcopy(FULL)
        at = data
        for step in path:
            at = at[step]
        at["unheard-of"] = None
        assert both(data) == (False, False), path
        seen += 1
    assert seen > 15


def tables(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = []
    if isinstance(value, dict):
        if path[-1:] != ("data",):
            found.append(path)
        for name, held in value.items():
            found += tables(held, (*path, name)) if name != "data" else []
    elif isinstance(value, list):
        for index, held in enumerate(value):
            found += tables(held, (*path, index))
    return found


@pytest.mark.parametrize(
    "change",
    [
        {"limit": "1/s"}, {"limits": []}, {"limits": "1/s"}, {"name": "a b"}, {"name": ""},
        {"key": ["nobody"]}, {"key": ["header"]}, {"cost": 0}, {"cost": "5"}, {"count": "some"},
        {"wait": -1}, {"wait": 7200}, {"otherwise": {}}, {"status": 1000}, {"shadow": 1},
        {"otherwise": {"page": "a", "data": 1}}, {"priority": 1.5}, {"plans": {"pro": "1/s"}},
        {"plans": {"by": "plan"}}, {"hot": {}}, {"while": {"resource": "B"}}, {"allow": {}},
        {"match": {"path": []}}, {"match": {"header": "X"}}, {"otherwise": {"function": "os"}},
    ],
)  # fmt: skip
def test_what_the_schema_can_tell(change: dict[str, Any]) -> None:
    data = copy.deepcopy(FULL)
    data["rules"][0].update(change)
    assert both(data) == (False, False)
