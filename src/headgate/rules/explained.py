"""Explained: which rules match given facts, and why or why not, condition by condition."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..facts import Facts
from ..keys import Key
from .compiled import Compiled, Matched
from .conditions import Condition, conditions_of
from .envoy import EnvoySnapshot
from .keys import key_reader
from .lists import named_by
from .match import Snapshot
from .model import KeyPart, Lists
from .patterns import pattern

__all__ = ["Explained", "Explanation", "Reason", "explained", "part_reason", "reason_of"]

STATES = {
    "applies": "it limits the call",
    "shadow": "it decides, but never refuses",
    "exempts": "the call is limited by no rule",
    "denies": "the call is refused, whatever was used",
    "allows": "its list lets the call pass by this rule",
    "replaced": "another rule stands in for it",
    "no key": "a part of its key is missing, so it does not limit the call",
    "no match": "a condition does not hold",
    "not asked": "the call is settled before",
}
"""How it may stand between a rule and a call."""


@dataclass(frozen=True, slots=True)
class Reason:
    """One condition of a rule, or one part of its key."""

    condition: str
    holds: bool
    found: str
    """What the call has there."""


@dataclass(frozen=True, slots=True)
class Explained:
    """One rule, and how it stands to the call."""

    rule: str
    line: int
    state: str
    """One of `STATES`."""
    reasons: tuple[Reason, ...] = ()
    key: Key = ""
    limits: tuple[str, ...] = ()
    cost: int = 0
    note: str = ""

    @property
    def meaning(self) -> str:
        """The state in words."""
        return self.note or STATES[self.state]


@dataclass(frozen=True, slots=True)
class Explanation:
    """What the rules say of a call."""

    outcome: str
    """limited, unlimited (no rule is for it), exempt or denied."""
    by: str
    """The rule that exempts or denies; "allow" and "deny" are the lists of the file."""
    rules: tuple[Explained, ...]


def explained(snapshot: Snapshot | EnvoySnapshot, facts: Facts) -> Explanation:
    """What the rules say of a call, and why."""
    matched = snapshot.match(facts)
    if isinstance(snapshot, EnvoySnapshot):
        rules = _of_envoy(snapshot, facts)
    else:
        rules = tuple(_rule(rule, facts, matched) for rule in snapshot.rules)
    if matched.denied is not None:
        return Explanation("denied", matched.denied.name, rules)
    if matched.exempt is not None:
        return Explanation("exempt", matched.exempt.name, rules)
    limited = any(not bound.rule.feeds for bound in matched.bounds)
    return Explanation("limited" if limited else "unlimited", "", rules)


def _rule(prepared: Compiled, facts: Facts, matched: Matched) -> Explained:
    rule = prepared.rule
    reasons = [reason_of(condition, facts) for condition in conditions_of(rule.match)]
    state, note = "", ""
    if not all(reason.holds for reason in reasons):
        state = "no match"
    elif prepared.deny is not None and prepared.deny(facts):
        state = "denies"
        reasons.append(_named(rule.deny, facts, "deny"))
    elif prepared.allow is not None and prepared.allow(facts):
        state = "allows"
        reasons.append(_named(rule.allow, facts, "allow"))
    elif rule.exempt:
        state = "exempts"
    if state:
        return _told(prepared, state, reasons, matched)
    reasons += [part_reason(part, rule.match.paths, facts) for part in rule.key]
    bound = prepared.bind(facts)
    if bound is None:
        return _told(prepared, "no key", reasons, matched)
    state = "shadow" if rule.shadow else "applies"
    if not any(each.rule is prepared for each in matched.bounds):
        settled = matched.denied or matched.exempt
        state = "not asked" if settled is not None else "replaced"
        if settled is not None:
            who = f"rule {settled.name}" if settled.line else f"the file's {settled.name} list"
            note = f"{who} {'denies' if matched.denied else 'exempts'} the call"
    elif rule.busy:
        note = f"it limits the call while {rule.busy['resource']} is busy"
    limits = tuple(limit.text for limit in bound.limits)
    return Explained(
        rule.name, rule.line, state, tuple(reasons), bound.key, limits, bound.cost, note
    )


def _told(prepared: Compiled, state: str, reasons: Sequence[Reason], matched: Matched) -> Explained:
    """A rule that does not limit the call, for whatever reason."""
    rule, note = prepared.rule, ""
    by = matched.denied or matched.exempt
    if state in ("exempts", "denies") and rule.shadow:
        would = "exempt" if state == "exempts" else "deny"
        note = f"it would {would} the call, but is in shadow"
    elif state in ("exempts", "denies") and by is not rule:
        if by is not None:
            state = "not asked"
        elif any(rule.name in each.rule.replaces for each in matched.bounds):
            state = "replaced"
    return Explained(rule.name, rule.line, state, tuple(reasons), note=note)


def _of_envoy(snapshot: EnvoySnapshot, facts: Facts) -> tuple[Explained, ...]:
    """Of Envoy's rules, the one that the descriptor meets; there is no other way to one."""
    hit = snapshot.find(facts.domain, facts.entries)
    found = []
    for each in snapshot.rules:
        rule = each.compiled.rule
        if hit is None or hit.rule is not each:
            note = "the descriptor does not lead to it"
            found.append(Explained(rule.name, rule.line, "no match", note=note))
            continue
        state = "applies" if each.limit is not None else "exempts" if each.unlimited else "denies"
        state = "shadow" if rule.shadow and not each.unlimited else state
        limits = tuple(limit.text for limit in rule.limits)
        found.append(Explained(rule.name, rule.line, state, (), hit.key, limits, 1))
    return tuple(found)


# -- reasons


def reason_of(condition: Condition, facts: Facts) -> Reason:
    """Whether a condition holds for a call, and what the call has there."""
    name, dimension = condition.name, condition.dimension
    what = f"{dimension} {name}" if name else dimension
    wanted = " or ".join(condition.values)
    if dimension == "through":
        said, found = f"came through {wanted}", " > ".join(facts.chain)
    elif name and "*" in condition.values:
        said, found = f"{what} is there", _found(dimension, name, facts)
    else:
        said, found = f"{what} is {wanted}", _found(dimension, name, facts)
    return Reason(said, condition.check()(facts), found)


def _found(dimension: str, name: str, facts: Facts) -> str:
    value: Any
    if dimension == "header":
        value = facts.headers.get(name)
    elif dimension == "attribute":
        value = facts.attributes.get(name)
    elif dimension == "entry":
        value = ", ".join(value for key, value in facts.entries if key == name)
    else:
        value = getattr(facts, dimension)
        if dimension == "path" and facts.route:
            value = f"{value} (route {facts.route})"
    return "" if value is None else str(value)


def part_reason(part: KeyPart, paths: tuple[str, ...], facts: Facts) -> Reason:
    """Whether a call has a part of a key."""
    read = key_reader((part,), tuple(map(pattern, paths)))
    value = read(facts) if read is not None else ""
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value or "")
    what = f"{part.source}:{part.name}" if part.name else part.source
    return Reason(f"key: {what}", bool(value), text)


def _named(lists: Lists | None, facts: Facts, word: str) -> Reason:
    assert lists is not None  # it has named the call
    for kind, value in (("networks", facts.ip), ("origins", facts.origin), ("users", facts.user)):
        one = Lists(**{kind: getattr(lists, kind)})
        named = named_by(one)
        if named is not None and named(facts):
            listed = ", ".join(getattr(lists, kind))
            return Reason(f"{word} {kind}: {listed}", holds=True, found=value)
    raise AssertionError("nobody is named")
