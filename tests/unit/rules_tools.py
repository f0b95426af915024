"""What the tests of rules share: rules in one line, and short questions to what matched."""

from __future__ import annotations

from typing import Any

from headgate import Limit
from headgate.rules.match import Bound, Matched, Snapshot
from headgate.rules.model import KeyPart, Match, Rule, RuleSet

FIVE, TEN, HUNDRED = (Limit.parse(f"{n}/minute") for n in (5, 10, 100))
IP, USER = KeyPart("ip"), KeyPart("user")

LOOK = """\
version: 1
defaults: {on_error: local, headers: draft-11}
rules:
  - name: login-ip              # generous: a café shares one address
    match: {method: POST, path: /login}
    key: [ip]
    limit: 60/minute
  - name: login-guess           # tight, and only failures count
    match: {method: POST, path: /login}
    key: [ip, user]
    limit: 5/minute
    count: failures
    on_error: deny
  - name: api
    match: {path: /api/*}
    key: [user]
    limits: [10/second burst 20, 500/hour]
    plans: {by: plan, pro: [100/second burst 200, 20000/hour], own: unlimited}
  - name: export
    match: {path: /api/export}
    key: [user]
    limit: 2 concurrent
    wait: 3s
    status: 503
    log_level: warning
"""


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
