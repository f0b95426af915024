"""Rules files of any content: rules or an error that names the place, never a crash or a hang.

HEADGATE_EXAMPLES=5000 makes 100,000 files.
"""

from __future__ import annotations

import json
import os
import random
import time
from typing import Any

import pytest

from headgate.rules import RulesError, read_rules
from headgate.rules.match import Snapshot
from headgate.rules.reading import parse
from headgate.rules.schema import rules_schema

pytest.importorskip("yaml")

SHARES = 10
FILES = int(os.environ.get("HEADGATE_EXAMPLES", "100")) * 20 // SHARES
YAML = """\
version: 1
defaults: {on_error: local, headers: draft-11, status: 429}
allow: {networks: [10.0.0.0/8], users: [root]}
rules:
  - name: login   # a comment
    match: {method: [POST, PUT], path: "/users/{id}", header: {X-Foo: bar}}
    key: [ip, "header:X-Tenant", 'arg:sku']
    limits: [10/second burst 20, 1/day fixed-window tz Asia/Shanghai]
    plans: {by: plan, pro: 100/second warm-up 10s cold 3}
    hot:
      values:
        "sku-1": 5/second
    cost: {header: X-Cost, default: 1}
    wait: 3s
    otherwise:
      page: |
        <p>busy</p>
  - {name: api, limit: 20 concurrent, while: {resource: B, limit: 9/s}, replaces: login}
  - {name: off, exempt: true, shadow: true, priority: -3}
"""
TOML = """\
version = 1
deny.users = ["mallory"]
[defaults]
status = 503
[[rules]]
name = "login"
key = ["ip"]
limit = '5/minute sliding-log'
match.path = "/login"
wait = 1.5
[rules.otherwise.data]
items = [1, 2.5, {a = "b"}]
[[rules]]
name = "b"
limits = [
  "3/hour fixed-window anchor 2026-01-01T00:30Z",
]
"""
SEEDS = [
    ("rules.yaml", YAML),
    ("rules.toml", TOML),
    ("rules.json", json.dumps(parse(YAML).plain(), indent=1)),  # type: ignore[union-attr] # it is there
]
PIECES = [
    "{", "}", "[", "]", ":", ",", "\n", " ", "\t", "#", "- ", "? ", "&a ", "*a", "!!int ",
    "!x", "|", ">", "'", '"', "%YAML 1.1\n", "---\n", "...\n", "<<: ", "\\", "\\u0000",
    "\x00", "\x85", "\u2028", "\ufeff", "\udc80", "null", "true", "~", "1e999", ".inf", "-1",
    "9" * 30, "0x1F", "2026-01-01", "unlimited", "limit", "limits", "name", "match", "key",
    "version: 1", "rules:", "[[rules]]\n", "[rules.match]\n", " = ", "\"\"\"", "5/minute",
    " burst ", " tz ../../x", " anchor 9999", "100%", "*", "**", "/", "{id}", "::/0", "1KiB",
    "module:name", "[" * 40, "{a: " * 40, "a." * 40, "é", "规则",
]  # fmt: skip


def spoilt(text: str, chance: random.Random) -> str:
    """A text with a few things changed in it."""
    for _ in range(chance.choice((1, 1, 1, 2, 3, 8))):
        start = chance.randrange(len(text) + 1)
        end = min(len(text), start + chance.choice((0, 1, 1, 3, 10, 60)))
        piece = chance.choice(PIECES)
        how = chance.randrange(6)
        if how == 0:
            piece = ""
        elif how == 1:
            piece = chr(chance.choice((chance.randrange(128), chance.randrange(0x3000))))
        elif how == 2:
            other = chance.randrange(len(text) + 1)
            piece = text[other : other + chance.randrange(80)]
        elif how == 3:
            lines = text.split("\n")
            chance.shuffle(lines[: chance.randrange(1, 5)])
            lines.insert(chance.randrange(len(lines)), chance.choice(lines))
            text = "\n".join(lines)
            continue
        elif how == 4:
            end = start
        text = text[:start] + piece + text[end:]
    return text


def grown(chance: random.Random, names: list[str], depth: int = 0) -> Any:
    """Data that looks a little like rules."""
    kind = chance.randrange(9 if depth < 5 else 6)
    if kind < 3:
        return chance.choice(PIECES).strip("\udc80") or None
    if kind < 6:
        return chance.choice([None, True, 1, 0, -5, 2**70, 1.5, "1/s", "ip", "", "a" * 300])
    count = chance.randrange(4)
    if kind == 6:
        return [grown(chance, names, depth + 1) for _ in range(count)]
    return {chance.choice(names): grown(chance, names, depth + 1) for _ in range(count)}


def all_names(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [*value, *(name for held in value.values() for name in all_names(held))]
    if isinstance(value, list):
        return [name for held in value for name in all_names(held)]
    return []


def replaced(value: Any, chance: random.Random, names: list[str]) -> Any:
    """Data with something else in some of its places."""
    if chance.randrange(12) == 0:
        return grown(chance, names)
    if isinstance(value, dict):
        return {
            (chance.choice(names) if chance.randrange(40) == 0 else name): replaced(
                held, chance, names
            )
            for name, held in value.items()
        }
    if isinstance(value, list):
        return [replaced(held, chance, names) for held in value]
    return value


def tried(text: str | bytes, name: str) -> bool:
    """Whether it is a rules file; if not, the error is one for people."""
    begun = time.monotonic()
    problem = None
    try:
        rules = read_rules(text, name=name)
    except RulesError as error:
        problem = error
    assert time.monotonic() - begun < 30, "it took too long"
    if problem is None:  # what is read can be matched
        assert len(Snapshot(rules).rules) == len({rule.name for rule in rules.rules})
        return True
    assert problem.file == name
    assert problem.problem
    assert len(str(problem)) < 3000
    # Of all that a file can be, only its size and TOML's recursion have no line.
    wordless = "MiB" in problem.problem or "deep" in problem.problem
    assert wordless or 0 < problem.line <= len(text) + 1, problem
    return False


@pytest.mark.parametrize("share", range(SHARES))
def test_fuzzed_files(share: int) -> None:
    seed = f"{share} {os.environ.get('HEADGATE_SEED', '')}"
    chance = random.Random(seed)
    data = parse(YAML)
    assert data is not None
    names = sorted(set(all_names(data.plain())))
    jsonschema = pytest.importorskip("jsonschema")
    schema = jsonschema.Draft202012Validator(rules_schema())
    good = 0
    for number in range(FILES):
        if number % 3 == 2:
            name = "rules.json"
            text = json.dumps(replaced(data.plain(), chance, names))
        else:
            name, text = chance.choice(SEEDS)
            text = spoilt(text, chance)
        try:
            found = tried(text, name)
            if found and number % 5 == 0:
                node = parse(text, name=name)
                assert node is not None
                schema.validate(node.plain())  # what the reader takes, the schema takes
            if number % 7 == 0:
                tried(text.encode(errors="surrogateescape")[: chance.randrange(3000)], name)
        except BaseException:
            print(f"seed {seed!r}, file {number} {name}:\n{text!r}")  # noqa: T201 # to try it again
            raise
        good += found
    assert 0.01 * FILES < good < 0.8 * FILES


def test_the_seeds_are_right() -> None:
    for name, text in SEEDS:
        assert tried(text, name), name
