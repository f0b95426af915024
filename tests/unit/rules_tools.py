"""What the tests of rules share: rules in one line, and short questions to what matched."""

from __future__ import annotations

from typing import Any

from headgate import Limit
from headgate.rules.match import Bound, Matched, Snapshot
from headgate.rules.model import KeyPart, Match, Rule, RuleSet

FIVE, TEN, HUNDRED = (Limit.parse(f"{n}/minute") for n in (5, 10, 100))
IP, USER = KeyPart("ip"), KeyPart("user")


def snapshot(*rules: Rule, **more: Any) -> Snapshot:
    return Snapshot(RuleSet(rules, **more))


def rule(name: str = "r", /, *, limits: tuple[Limit, ...] = (FIVE,), **more: Any) -> Rule:
    match = {field: more.pop(field) for field in Match.__slots__ if field in more}
    return Rule(name, Match(**match), limits=limits, **more)


def names(matched: Matched) -> list[str]:
    return [bound.rule.name for bound in matched.bounds]


def only(matched: Matched) -> Bound:
    [bound] = matched.bounds
    return bound
