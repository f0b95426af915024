"""`headgate rules explain`: which rules and policies match given facts, and why or why not."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from ..errors import HeadgateError
from .facts import HELP, facts_of, rules_of
from .shown import as_json, complain, say

if TYPE_CHECKING:
    from ..rules.explained import Explained, Explanation
    from ..rules.explained_policies import ExplainedPolicy

__all__ = ["register"]

STYLES = {
    "applies": "bold green", "exempts": "bold cyan", "denies": "bold red", "shadow": "magenta",
    "no match": "dim", "not asked": "dim",
}  # fmt: skip
OUTCOMES = {
    "limited": "the call is limited by",
    "unlimited": "no rule is for this call: it passes",
    "exempt": "the call passes without being counted, by",
    "denied": "the call is refused, by",
}


def register(actions: Any) -> None:
    """Add what it can do to `headgate rules`."""
    explain = actions.add_parser("explain", help="which rules match a call, and why")
    explain.add_argument("path", metavar="RULES", help="a rules file, or one of Envoy's")
    explain.add_argument("facts", metavar="FACTS", help=HELP)
    explain.add_argument("--matching", action="store_true", help="leave out what does not match")
    explain.add_argument("--json", action="store_true", help="print JSON")
    explain.set_defaults(run=_explain)


def _explain(options: argparse.Namespace) -> int:
    from ..rules.explained import explained
    from ..rules.explained_policies import policies_explained
    from ..rules.match import Snapshot
    from ..rules.model import RuleSet

    policies: tuple[ExplainedPolicy, ...] = ()
    try:
        facts = facts_of(options.facts)
        rules = rules_of(options.path)
        snapshot = Snapshot(rules) if isinstance(rules, RuleSet) else rules
        found = explained(snapshot, facts)
        if isinstance(rules, RuleSet):
            policies = policies_explained(rules, facts, found)
    except HeadgateError as error:
        for one in (error, *getattr(error, "more", ())):
            complain(str(one))
        return 2
    rules = [each for each in found.rules if not options.matching or each.state != "no match"]
    if options.matching:
        policies = tuple(each for each in policies if each.state != "no match")
    if options.json:
        as_json({**_told(found, rules), "policies": [_told_policy(each) for each in policies]})
    else:
        _show(found, rules)
        _show_policies(policies)
    return 0


def _told(found: Explanation, rules: list[Explained]) -> dict[str, Any]:
    return {
        "outcome": found.outcome,
        "by": found.by,
        "rules": [
            {
                "rule": each.rule,
                "line": each.line,
                "state": each.state,
                "meaning": each.meaning,
                "conditions": _conditions(each),
                "key": each.key,
                "limits": each.limits,
                "cost": each.cost,
            }
            for each in rules
        ],
    }


def _told_policy(each: ExplainedPolicy) -> dict[str, Any]:
    return {
        "policy": each.policy,
        "line": each.line,
        "state": each.state,
        "meaning": each.meaning,
        "conditions": _conditions(each),
        "key": each.key,
        "parts": [
            {"part": part.part, "words": part.words, "note": part.note} for part in each.parts
        ],
    }


def _conditions(each: Explained | ExplainedPolicy) -> list[dict[str, Any]]:
    return [
        {"condition": reason.condition, "holds": reason.holds, "found": reason.found}
        for reason in each.reasons
    ]


def _show(found: Explanation, rules: list[Explained]) -> None:
    names = [each.rule for each in found.rules if each.state == "applies"]
    by = found.by or (", ".join(names) if found.outcome == "limited" else "")
    if found.outcome == "limited" and not names:
        say("the call is limited by rules in shadow alone: it passes", "bold")
    else:
        say(" ".join(filter(None, (OUTCOMES[found.outcome], by))), "bold")
    for each in rules:
        say()
        place = f" (line {each.line})" if each.line else ""
        say(f"{each.rule}{place}: {each.state}; {each.meaning}", STYLES.get(each.state, "yellow"))
        _show_reasons(each)
        for limit in each.limits:
            cost = f", cost {each.cost}" if each.cost != 1 else ""
            say(f"      limit {limit}{cost}")


def _show_policies(policies: tuple[ExplainedPolicy, ...]) -> None:
    """The policies in the order in which a call meets them, before the limits of the rules."""
    from ..rules.policy_words import worded

    if not policies:
        return
    names = [each.policy for each in policies if each.state == "applies"]
    by = f", before its limits, by {', '.join(names)}" if names else " by no policy"
    say()
    say(f"the call is protected{by}", "bold")
    for each in policies:
        say()
        place = f" (line {each.line})" if each.line else ""
        style = STYLES.get(each.state, "yellow")
        say(f"{each.policy}{place}: {each.state}; {each.meaning}", style)
        _show_reasons(each)
        for part in each.parts:
            words = f" {worded(part.words)}" if part.words else ""
            note = f" ({part.note})" if part.note else ""
            say(f"      {part.part}{words}{note}")


def _show_reasons(each: Explained | ExplainedPolicy) -> None:
    for reason in each.reasons:
        value = f"it is {reason.found}" if reason.found else "there is none"
        say(f"  {'yes' if reason.holds else 'no ':<3} {reason.condition}; {value}",
            "" if reason.holds else "red")  # fmt: skip
