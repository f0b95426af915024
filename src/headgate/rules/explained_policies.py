"""Explained policies: which of them protect a call, with which parts, and why or why not."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ..facts import Facts
from ..keys import Key
from .compiled import Compiled
from .conditions import conditions_of
from .explained import Explanation, Reason, part_reason, reason_of
from .keys import text_of
from .model import PolicyRule, RuleSet, SystemRule
from .policies import Policies, Readers
from .policy_words import OUTER, parts_of, share

__all__ = ["STATES", "ExplainedPart", "ExplainedPolicy", "policies_explained"]

STATES = {
    "applies": "it protects the call",
    "shadow": "it decides, but never refuses",
    "no key": "a part of its key is missing, so it does not protect the call",
    "no match": "a condition does not hold",
    "not asked": "the call is settled before",
}
"""How it may stand between a policy and a call."""
BOUND = ("applies", "shadow", "not asked")
"""In which of them it is for the call at all."""
FUNCTIONS = "only around functions of the gate"


@dataclass(frozen=True, slots=True)
class ExplainedPart:
    """One part of a policy, in the words of a rules file."""

    part: str
    words: dict[str, Any]
    note: str = ""


@dataclass(frozen=True, slots=True)
class ExplainedPolicy:
    """One policy, or the machine, and how it stands to the call."""

    policy: str
    line: int
    state: str
    """One of `STATES`."""
    reasons: tuple[Reason, ...] = ()
    key: Key = ""
    parts: tuple[ExplainedPart, ...] = field(default=())
    """In the order in which a call meets them."""
    note: str = ""

    @property
    def meaning(self) -> str:
        """The state in words."""
        return self.note or STATES[self.state]


def policies_explained(
    rules: RuleSet, facts: Facts, found: Explanation
) -> tuple[ExplainedPolicy, ...]:
    """What the policies say of a call, in the order in which it meets them, the machine first.

    `found` is what the rules say of it: who is exempt or refused by them meets no policy.
    """
    settled = ""
    if found.outcome in ("exempt", "denied"):
        verb = "exempts" if found.outcome == "exempt" else "denies"
        settled = f"{found.by} {verb} the call before policies are asked"
    policies = Policies(rules.policies, rules.source)
    told = [] if rules.system is None else [_machine(rules.system, settled)]
    before: dict[str, str] = {}
    """Which policy has an outer part that holds for the call."""
    for place, (rule, prepared) in enumerate(zip(rules.policies, policies.prepared, strict=True)):
        told.append(_policy(rule, prepared, policies.readers[place], facts, settled, before))
    return tuple(told)


def _machine(rule: SystemRule, settled: str) -> ExplainedPolicy:
    state = "not asked" if settled else "shadow" if rule.shadow else "applies"
    parts = tuple(ExplainedPart(part, words) for part, words in parts_of(rule))
    return ExplainedPolicy(rule.name, rule.line, state, parts=parts, note=settled)


def _policy(
    rule: PolicyRule,
    prepared: Compiled,
    readers: Readers,
    facts: Facts,
    settled: str,
    before: dict[str, str],
) -> ExplainedPolicy:
    reasons = [reason_of(condition, facts) for condition in conditions_of(rule.match)]
    key: Key = ""
    state, note = "no match", ""
    if all(reason.holds for reason in reasons):
        reasons += [part_reason(part, rule.match.paths, facts) for part in rule.key]
        bound = prepared.bind(facts)
        state = "no key"
        if bound is not None:
            state = "not asked" if settled else "shadow" if rule.shadow else "applies"
            key, note = bound.key, settled
    applies = state == "applies"
    parts = []
    for part, words in parts_of(rule):
        said = ""
        if part in OUTER:
            said = FUNCTIONS
            first = before.setdefault(part, rule.name) if applies else rule.name
            if first != rule.name:
                said = f"left to {first}, which comes before"
            elif rule.shadow:
                said = "left out, as the policy is in shadow"
        elif part == "timeout":
            said = "for blocks and functions of the gate; the shortest of all policies holds"
        elif part == "bulkhead" and "pool" in words:
            said = "plain functions of the gate are called in its threads"
        elif part == "adaptive" and readers.partition is not None and state in BOUND:
            said = _partition(rule, text_of(readers.partition(facts)))
        parts.append(ExplainedPart(part, words, said))
    return ExplainedPolicy(rule.name, rule.line, state, tuple(reasons), key, tuple(parts), note)


def _partition(rule: PolicyRule, value: str | bytes) -> str:
    """To which partition the call belongs."""
    assert rule.adaptive is not None
    assert rule.adaptive.partitions is not None  # or nothing reads it
    name = value if isinstance(value, str) else value.decode("utf-8", "replace")
    own = dict(rule.adaptive.partitions.shares).get(name)
    if own is None:
        return f"the call is in no partition{f': {name!r} is none' if name else ''}"
    return f"the call is in partition {name}, to which {share(own)} are guaranteed"
