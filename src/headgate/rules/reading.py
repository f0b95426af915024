"""Reading: a text in YAML, TOML or JSON becomes a RuleSet, or an error that names the place."""

from __future__ import annotations

import hashlib
import os
import re
import stat
from dataclasses import replace
from typing import Any

from ..errors import RulesError
from .fields import DEFAULTS, LISTS, RULE
from .from_json import parse_json
from .from_toml import parse_toml
from .from_yaml import parse_yaml
from .kinds import Place, Record, Whole, did_you_mean
from .lines import SIZE, Node, shown
from .model import Defaults, RuleSet
from .policy_fields import POLICY, SYSTEM

__all__ = [
    "FILE", "FORMATS", "Foreign", "digest_of", "format_of", "load_rules", "parse", "read_rules",
    "read_text",
]  # fmt: skip

RULES = 20_000
"""Rules, and policies, that a file may hold."""
SHOWN = 20
"""Errors that are gathered before reading gives up."""
FORMATS = {"yaml": parse_yaml, "toml": parse_toml, "json": parse_json}
_TOML = re.compile(r"^(?:version[ \t]*=|\[\[rules\]\])", re.MULTILINE)
ENDINGS = {".yaml": "yaml", ".yml": "yaml", ".toml": "toml", ".json": "json"}


class Foreign(RulesError):
    """A text that is right, but in Envoy's format."""


def read_rules(
    text: str | bytes,
    *,
    name: str = "rules.yaml",
    format: str | None = None,  # noqa: A002 # the plain word for it
) -> RuleSet:
    """The rules of a text; `format` is yaml, toml or json, else the name's ending says it.

    >>> read_rules("{version: 1, rules: [{name: all, limit: 5/minute}]}").rules[0].name
    'all'
    """
    node = parse(text, name=name, format=format)
    if node is None:
        raise RulesError("there is nothing in it; a rules file begins with version: 1", name, 1)
    place = Place(name)
    if isinstance(node.value, dict) and "descriptors" in node.value:
        raise Foreign(
            "this is a configuration of Envoy's ratelimit: it is read by headgate.rules.envoy",
            name,
            node.value["descriptors"].line,
        )
    rules: RuleSet = FILE.read(node, place)
    return replace(rules, source=name, digest=digest_of(text))


def load_rules(
    path: str | os.PathLike[str],
    *,
    format: str | None = None,  # noqa: A002 # the plain word for it
) -> RuleSet:
    """The rules of a file."""
    return read_rules(read_text(path), name=os.fspath(path), format=format)


def read_text(path: str | os.PathLike[str]) -> bytes:
    """What a file holds, as far as it may be long; a RulesError if it cannot be read."""
    name = os.fspath(path)
    try:
        if not stat.S_ISREG(os.stat(name).st_mode):  # a pipe would keep the reader waiting
            raise RulesError("is not a file", name)
        with open(name, "rb") as file:
            return file.read(SIZE + 1)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        if isinstance(error, RulesError):
            raise
        reason = getattr(error, "strerror", None) or str(error)
        raise RulesError(f"cannot be read: {reason}", name) from None


def digest_of(text: str | bytes) -> str:
    """What tells one text from another."""
    return hashlib.sha256(text.encode() if isinstance(text, str) else text).hexdigest()


def parse(
    text: str | bytes,
    *,
    name: str = "rules.yaml",
    format: str | None = None,  # noqa: A002 # the plain word for it
) -> Node | None:
    """The values of a text with their lines; None if there are none."""
    form = format or ENDINGS.get(os.path.splitext(name)[1].lower())
    text = _decoded(text, name)
    form = form or format_of(text)
    if form not in FORMATS:
        raise RulesError(f"no format {form!r}; {did_you_mean(form, FORMATS)}", name)
    return FORMATS[form](text, name)


def format_of(text: str) -> str:
    """The format of a text whose name does not say it."""
    if text.lstrip()[:1] == "{":
        return "json"
    return "toml" if _TOML.search(text) else "yaml"


def _decoded(text: str | bytes, name: str) -> str:
    """A text in Unicode, not too long, with lines that end in one way."""
    try:
        size = len(text.encode() if isinstance(text, str) else text)
        if size > SIZE:
            raise RulesError(f"is larger than {SIZE // 2**20} MiB", name)
        if isinstance(text, bytes):
            text = text.decode()
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise RulesError("is not a text in UTF-8", name, line) from None
    except UnicodeEncodeError as error:
        line = error.object.count("\n", 0, error.start) + 1
        raise RulesError("holds half a character (a lone surrogate)", name, line) from None
    return text.removeprefix("\ufeff").replace("\r\n", "\n")


class RulesKind:
    """A list of rules or policies, which is read last: the defaults may stand below it."""

    def __init__(self, what: str, one: str) -> None:
        self.what, self.one = what, one

    def read(self, node: Node, place: Place) -> Node:
        if not isinstance(node.value, list):
            raise place.error(node, f"expected a list of {self.what}, not {shown(node.value)}")
        if len(node.value) > RULES:
            raise place.error(node, f"more than {RULES:,} {self.what}: {len(node.value):,}")
        return node

    def schema(self) -> dict[str, Any]:
        return {"type": "array", "items": {"$ref": f"#/$defs/{self.one}"}, "maxItems": RULES}


def _rules(found: dict[str, Any], _: Node, place: Place) -> RuleSet:
    defaults: Defaults = found.get("defaults", Defaults())
    place.defaults = {name: getattr(defaults, name) for name in ("on_error", "status", "log_level")}
    wrong: list[RulesError] = []
    # One name means one thing, in verdicts and in metrics.
    names: dict[str, int] = {} if "system" not in found else {"system": found["system"].line}
    rules = _all(found.get("rules"), RULE, place, names, wrong)
    policies = _all(found.get("policies"), POLICY, place, names, wrong)
    for rule in rules.values() if not wrong else ():
        for name in rule.replaces:
            if name not in rules:
                place.enter_rule(rule.name)
                known = did_you_mean(name, rules)
                problem = f"replaces: there is no rule {shown(name)}; {known}"
                wrong.append(place.error(Node(None, rule.line), problem))
                break
    if wrong:
        first = wrong[0]
        raise RulesError(first.problem, first.file, first.line, first.rule, tuple(wrong[1:SHOWN]))
    return RuleSet(
        tuple(rules.values()), defaults, found.get("allow"), found.get("deny"),
        tuple(policies.values()), found.get("system"),
    )  # fmt: skip


def _all(
    listed: Node | None,
    kind: Record,
    place: Place,
    names: dict[str, int],
    wrong: list[RulesError],
) -> dict[str, Any]:
    """What a list holds, by name; what is wrong with it is gathered."""
    made: dict[str, Any] = {}
    for node in listed.value if listed is not None else ():
        if len(wrong) >= SHOWN:
            break
        place.enter_rule(_name(node))
        try:
            one = kind.read(node, place)
            if one.name in names:
                before = names[one.name]
                raise place.error(node, f"there is a rule of this name already, on line {before}")
            names[one.name] = one.line
            made[one.name] = one
        except RulesError as error:
            wrong.append(error)
    return made


def _name(node: Node) -> str:
    """The name of a rule as far as it can be told, for its errors."""
    name = node.value.get("name") if isinstance(node.value, dict) else None
    return name.value[:100] if name is not None and isinstance(name.value, str) else ""


FILE = Record(
    {
        "version": Whole(1, 1),
        "defaults": DEFAULTS,
        "rules": RulesKind("rules", "rule"),
        "policies": RulesKind("policies", "policy"),
        "system": SYSTEM,
        "allow": LISTS,
        "deny": LISTS,
    },
    _rules,
    needs=("version",),
    what=" at the top of a rules file",
)
