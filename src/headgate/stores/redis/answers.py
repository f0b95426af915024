"""Replies become decisions: what a script packed is what a decision reads its numbers from."""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Any

from ...algorithms import rule_of
from ...decision import Ask, Decision, decided
from ...limit import Limit

__all__ = [
    "BODY",
    "OUTCOME",
    "WHOLE",
    "Fenced",
    "answered",
    "granted_together",
    "outcome_of",
    "own_rule",
    "taken",
]

OUTCOME = Struct("<5q")
"""Wait, three words of state or view, and the time, in ticks."""
REST = Struct("<2q")
"""A permit's fencing token, and the cost that was decided on."""
WHOLE = Struct("<7q")
"""Both together: an answer of `decide` on a key that has no limit of its own."""
BODY = 25
"""Bytes of three words as they are kept: the answer of a take that passes at its own instant."""
KNOWN = 1024
_own: dict[tuple[str, str, int], Any] = {}


class Fenced(Decision):
    """A permit granted by a store that others share; `fence` grows with every grant of a key."""

    __slots__ = ("fence",)

    fence: int

    def __reduce__(self) -> tuple[Any, ...]:
        return _refenced, (super().__reduce__(), self.fence)


def _refenced(made: tuple[Any, ...], fence: int) -> Decision:
    make, arguments = made
    decision: Decision = make(*arguments)
    decision.fence = fence  # type: ignore[attr-defined] # it is a Fenced again
    return decision


def own_rule(text: str, limit_id: str, room: int = 0) -> Any:
    """The rule of a key's own limit, made once."""
    name = (text, limit_id, room)
    rule = _own.get(name)
    if rule is None:
        if len(_own) >= KNOWN:
            _own.clear()  # thousands of different own limits: made again when needed
        limit = Limit.parse(text).named(limit_id)
        rule = _own[name] = rule_of(limit, room if limit.elastic else 0)
    return rule


def taken(reply: bytes, rule: Any, cost: int) -> Decision:
    """The decision of a single take."""
    wait, a, b, c, now = outcome_of(reply)
    return decided(rule, (wait, a, b, c), now, cost)


def outcome_of(reply: bytes) -> tuple[int, int, int, int, int]:
    """Wait, words and time of a single take, in whichever form they came."""
    if len(reply) == BODY:
        now, b, c = body_words(reply)
        return 0, now, b, c, now
    wait, a, b, c, now = OUTCOME.unpack(reply)
    return wait, a, b, c, now


def body_words(body: bytes) -> tuple[int, int, int]:
    """The three words of a state as it is kept."""
    whole = int.from_bytes
    return whole(body[4:11], "little"), whole(body[11:18], "little"), whole(body[18:25], "little")


def answered(reply: bytes, ask: Ask, rule: Any) -> Decision:
    """The decision on one ask of several, or on an unusual one."""
    wait, a, b, c, now = OUTCOME.unpack_from(reply)
    fence, cost = REST.unpack_from(reply, OUTCOME.size)
    if len(reply) > OUTCOME.size + REST.size:
        rule = own_rule(reply[OUTCOME.size + REST.size :].decode(), ask.limit.id)
    if ask.op not in ("take", "check", "shadow"):
        cost = 0
    decision = decided(rule, (wait, a, b, c), now, cost)
    if ask.op == "check" or not ask.cost:
        return decision.glance()
    if fence and decision.allowed:
        fenced = Fenced()
        fenced._source, fenced._now, fenced._cost = rule, now, cost
        fenced._outcome = (wait, a, b, c)
        fenced.fence = fence
        return fenced
    return decision


def granted_together(asks: Sequence[Ask], decisions: list[Decision]) -> list[Decision]:
    """All of the takes or none: what would have passed alone took nothing if another refused."""
    if all(d.allowed or ask.op != "take" for ask, d in zip(asks, decisions, strict=True)):
        return decisions
    return [
        decision.glance() if ask.op in ("take", "shadow") else decision
        for ask, decision in zip(asks, decisions, strict=True)
    ]
