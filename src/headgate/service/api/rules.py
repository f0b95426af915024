"""Rules: which are in force, what went wrong with others, and keys that are forgotten."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...decision import Ask
from ..codec import dumps
from ..faults import Fault, missing, wrong
from ..http import JSON, Answer
from ..tokens import key_from
from .calls import call_of

if TYPE_CHECKING:
    from ...keys import Key
    from ..asking import Asking

__all__ = ["reset_key", "rules_told", "status_told"]

AGAIN = (b"retry-after", b"1")


def status_told(gate: Any) -> dict[str, Any]:
    """What a gate says of its rules."""
    found: dict[str, Any] = gate.status()
    return found


async def rules_told(gate: Any) -> Answer:
    """GET /v1/rules: the status of the rules, and the rules themselves in short."""
    rules = []
    for compiled in gate.snapshot.rules:
        rule = getattr(compiled, "compiled", compiled).rule
        one: dict[str, Any] = {
            "name": rule.name,
            "key": [
                f"{part.source}:{part.name}" if part.name else part.source for part in rule.key
            ],
            "limits": [limit.text for limit in rule.limits],
            "status": rule.status,
        }
        for word in ("shadow", "exempt", "wait", "priority", "on_error"):
            if getattr(rule, word):
                one[word] = getattr(rule, word)
        if rule.count != "all":
            one["count"] = rule.count
        if rule.plans is not None:
            one["plans"] = sorted(rule.plans.limits)
        rules.append(one)
    status = status_told(gate)
    return 200, [JSON], dumps({"status": status, "rules": rules})


async def reset_key(told: Any, asking: Asking) -> list[tuple[str, Key]]:
    """POST /v1/reset: forget what a key has used under a rule, or a call under all of its rules.

    Returns the limits, by their ids, and the keys.
    """
    if type(told) is dict and "rule" in told and "key" in told:
        try:
            key = key_from(told["key"])
        except ValueError as error:
            raise wrong("key", str(error), told["key"]) from None
        if type(told["rule"]) is not str:
            raise wrong("rule", "a text", told["rule"])
        compiled = asking.rule(told["rule"])
        places = [(limit, key) for limit in compiled.limits]
    else:
        if type(told) is dict and "rule" in told:
            raise missing("key")
        _, matched = call_of(told, asking)
        places = [(limit, bound.key) for bound in matched.bounds for limit in bound.limits]
    asks = [Ask("reset", limit, key, 1, asking.gate.name) for limit, key in places]
    if asks:
        found = await asking.decide(asks)
        if any(each.degraded for each in found):  # a stand-in forgot what it alone knew
            raise Fault(503, "the store is away: nothing is reset", headers=[AGAIN])
        asking.gate._desk.came_back(asks)
    return [(limit.id, key) for limit, key in places]
