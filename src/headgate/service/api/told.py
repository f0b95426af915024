"""Told: a verdict as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

from ...decision import Decision
from ...headers import STRUCTURED, Policy, each, policy_of, state_of
from ..codec import dumps
from ..faults import wrong
from ..http import JSON, Answer, Pairs

if TYPE_CHECKING:
    from ...limit import Limit
    from ...verdict import Verdict
    from ..tokens import Held

__all__ = ["alone", "answer_of", "told_of", "wished"]

INFINITY = float("inf")
KEPT = 4096


def told_of(verdict: Verdict, held: Held | None = None, lease: float = 0.0) -> dict[str, Any]:
    """What is told of a verdict, and of what the caller holds."""
    decisions: list[dict[str, Any]] = []
    remaining = None
    allowed = verdict.allowed
    for bound, answer in zip(verdict._bounds, verdict._answers, strict=True):
        rule = bound.rule
        for name, part in each(((rule.name, answer),)):
            left = part.remaining
            one: dict[str, Any] = {
                "rule": name,
                "limit": part.limit.text,
                "allowed": part.allowed,
                "remaining": left,
                "retry_after": _finite(part.retry_after),
                "reset_after": _finite(part.reset_after),
            }
            if rule.rule.shadow:
                one["shadow"] = True
            elif remaining is None or left < remaining:
                remaining = left
            decisions.append(one)
    told: dict[str, Any] = {
        "allowed": allowed,
        "rule": verdict.rule,
        "status": verdict.status,
        "retry_after": _finite(verdict.retry_after),
        "remaining": remaining,
        "decisions": decisions,
        "degraded": verdict.degraded,
        "shadowed": list(verdict.shadowed),
    }
    if allowed:
        delay = verdict.delay
        if delay:
            told["delay"] = delay
        if verdict._rule is not None:
            told["exempt"] = verdict.exempt
    if held is not None:
        told[held.kind] = {"token": held.text(), "lease": lease if held.asks else None}
    return told


def alone(verdict: Verdict) -> tuple[Pairs, bytes] | None:
    """Headers and body for a call that passed one rule, which nearly all are; None if there is
    more to tell.

    `told_of` once more for them alone, with what never changes written beforehand.
    """
    bounds, answers = verdict._bounds, verdict._answers
    if len(bounds) != 1 or verdict._shadowed or verdict._rule is not None:
        return None
    rule, answer = bounds[0].rule, answers[0]
    if type(answer) is not Decision or rule.rule.shadow or answer.degraded:
        return None
    if answer._outcome[0] > 0:  # a delay
        return None
    source = answer._source
    name = rule.name, source.limit.text
    written = _written.get(name)
    if written is None:
        if len(_written) >= KEPT:
            _written.clear()
        written = _written[name] = _write(rule.name, source.limit)
    policy, body = written
    left, _, reset = answer._look()
    after = b"null" if reset < 0 else b"%r" % (reset / source.per_second)
    if verdict._format in STRUCTURED:
        pairs = state_of(policy, left, reset, source.per_second)
    else:
        pairs = verdict.raw_headers()
    return [JSON, *pairs], body % (left, left, after)


Written = tuple[Policy, bytes]
_written: dict[tuple[str, str], Written] = {}


def _write(rule: str, limit: Limit) -> Written:
    """All but what is left, twice, and when it is whole again."""
    name, text = (dumps(each).replace(b"%", b"%%") for each in (rule, limit.text))
    parts = (
        b'{"allowed":true,"rule":"","status":200,"retry_after":0.0,"remaining":%d,"decisions":',
        b'[{"rule":', name, b',"limit":', text, b',"allowed":true,"remaining":%d,',
        b'"retry_after":0.0,"reset_after":%b}],"degraded":false,"shadowed":[]}',
    )  # fmt: skip
    return policy_of(rule, limit), b"".join(parts)


def answer_of(
    verdict: Verdict, scope: Any, deny: int, held: Held | None = None, lease: float = 0.0
) -> Answer:
    """The answer to whoever asked; a refusal has the status that they wish for."""
    if verdict.allowed and held is None:
        short = alone(verdict)
        if short is not None:
            return 200, *short
    status = 200
    if not verdict.allowed and wished(scope, deny) == 429:
        status = verdict.status
    body = dumps(told_of(verdict, held, lease))
    return status, [JSON, *verdict.raw_headers()], body


def wished(scope: Any, deny: int) -> int:
    """The status of a refusal: by the query, the header `Prefer: status=429`, or the settings."""
    query = scope["query_string"]
    if query:
        for name, value in parse_qsl(query.decode("latin-1"), keep_blank_values=True):
            if name == "status":
                if value not in ("200", "429"):
                    raise wrong("status", "200 or 429", value)
                return int(value)
    for name, value in scope["headers"]:
        if name == b"prefer":
            for wish in value.split(b","):
                if wish.replace(b" ", b"").lower() in (b"status=429", b"status=200"):
                    return int(wish.strip()[-3:])
    return deny


def _finite(seconds: float) -> float | None:
    return None if seconds == INFINITY else seconds
