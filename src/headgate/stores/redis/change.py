"""Limits that change under a key: own limits, and states that another limit wrote.

What was used stays used: a state is read under the rule that wrote it, carried over by the
reference algorithms, and written back only if nobody has touched it in the meantime.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ...algorithms import carried, rule_of
from ...errors import LimitSyntaxError, StoreError, StoreUnavailable
from ...limit import Limit
from . import codec
from .bodies import dump_body, load_body
from .link.calls import Call, Command, Flow
from .scripts import script

if TYPE_CHECKING:
    from ...keys import Key
    from .plan import Planner

__all__ = ["assigning", "converted", "healing", "read_own", "unreadable"]

SHORTEST = 19
"""No state has fewer bytes."""
TRIES = 64
"""How often a value may change under our hands before we give up."""


def converted(plan: Planner, name: bytes, rule: Any, value: bytes, limit_id: str) -> Flow[None]:
    """Bring a state to the shape of the rule that holds for its key now; one try."""
    if not value:
        raise StoreError(f"two limits of different kinds are filed under the id {limit_id!r}")
    held = codec.split(value)
    now = yield from _time(plan)
    own = b""
    if held.own_text:
        rule = rule_of(Limit.parse(held.own_text).named(limit_id))
        own = codec.blob(rule, now)
    body = yield from _carried(plan, held.body, rule, now)
    yield from _swap(plan, name, value, held._replace(own_blob=own, body=body), rule, now)


def assigning(plan: Planner, space: str, limit_id: str, key: Key, own: Limit | None) -> Flow[None]:
    """Give a key a limit of its own, or take it away."""
    name = plan.names.key(space, limit_id, key)
    for _ in range(TRIES):
        (value,) = yield [Command((b"GET", name), name)]
        if isinstance(value, Exception):
            raise value
        held = codec.split(value or b"")
        now = yield from _time(plan)
        base = plan.limits.get((space, limit_id))
        rule = rule_of(own) if own is not None else rule_of(base) if base is not None else None
        body = held.body
        if body and rule is not None:
            body = yield from _carried(plan, body, rule, now, settled=True)
        new = held._replace(
            own_blob=b"" if own is None else codec.blob(rule, now),
            own_text="" if own is None else own.text,
            body=body,
        )
        if (yield from _swap(plan, name, value or b"", new, rule, now)):
            return
    raise StoreError("this key's limit could not be set: others keep changing the key")


def read_own(plan: Planner, space: str, limit_id: str, key: Key) -> Flow[Limit | None]:
    """The limit a key was given, if any."""
    name = plan.names.key(space, limit_id, key)
    (value,) = yield [Command((b"GET", name), name)]
    if isinstance(value, Exception):
        raise value
    text = codec.split(value or b"").own_text
    return Limit.parse(text).named(limit_id) if text else None


def unreadable(error: Exception) -> bool:
    """Whether a script stumbled over a value that no script of ours wrote."""
    return "too short" in str(error) and not isinstance(error, StoreUnavailable)


def healing(plan: Planner, places: Sequence[tuple[bytes, Any]]) -> Flow[None]:
    """Take away values that nobody can read, or their keys would be of no use for ever."""
    for name, rule in places:
        (value,) = yield [Command((b"GET", name), name)]
        if isinstance(value, Exception):
            raise value
        if value is not None and not _reads(value, rule):
            call = Call(script("swap", ()), (name,), (value, b"", b"0"))
            (reply,) = yield [call]
            if isinstance(reply, Exception):
                raise reply


def _reads(value: bytes, rule: Any) -> bool:
    if not value:
        return False
    try:
        held = codec.split(value)
        if held.own_text:
            Limit.parse(held.own_text)
        if codec.tag_of(held.body) == codec.shape_tag(rule):
            load_body(rule, held.body)
    except (StoreError, ValueError):
        return False
    return not held.body or len(held.body) >= SHORTEST


def _time(plan: Planner) -> Flow[int]:
    now = plan.now()
    if now >= 0:
        return now
    (reply,) = yield [Command((b"TIME",), plan.names.register)]
    if isinstance(reply, Exception):
        raise reply
    seconds, micros = (int(word) for word in reply)
    now = seconds * 1_000_000 + micros
    plan.learn(now)
    return now


def _carried(plan: Planner, body: bytes, rule: Any, now: int, settled: bool = False) -> Flow[bytes]:
    """A body under another rule; nothing if nobody knows any more what wrote it."""
    tag = codec.tag_of(body)
    if not body:
        return body
    if tag == codec.shape_tag(rule) and not settled:
        return body
    old = rule
    if tag != codec.shape_tag(rule):
        field = b"%08x" % tag
        (text,) = yield [Command((b"HGET", plan.names.register, field), plan.names.register)]
        if isinstance(text, Exception):
            raise text
        try:
            old = rule_of(Limit.parse(text.decode())) if text else None
        except LimitSyntaxError:  # written by a later version, say
            old = None
        if old is None or codec.shape_tag(old) != tag:
            return b""
    state = load_body(old, body)
    state = _settled(old, state, now)
    state = _settled(rule, carried(old, state, rule, now), now)
    return dump_body(rule, state)


def _settled(rule: Any, state: Any, now: int) -> Any:
    """The state brought up to now."""
    if rule.words:
        return rule.charge(*state, now // rule.tick, 0)
    rule.roll(state, now // rule.tick)
    return state


def _swap(plan: Planner, name: bytes, old: bytes, new: Any, rule: Any, now: int) -> Flow[bool]:
    """Write a value if the old one is still there; whether it was."""
    value = codec.join(new)
    px = 0
    if value and not new.own_text:
        lives = codec.lives_ms(new, rule, now)
        px = lives + plan.slack if lives else 0  # a permit that only its holder ends has no end
    arguments = (old, value, b"%d" % px)
    before = plan.registering([rule]) if rule is not None else []
    *_, reply = yield [*before, Call(script("swap", ()), (name,), arguments)]
    if isinstance(reply, Exception):
        raise reply
    return bool(reply)
