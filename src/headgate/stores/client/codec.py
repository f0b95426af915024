"""The words of `/v1/decide`: asks and decisions as JSON, for both ends of the line.

    {"groups": [[{"op": "take", "limit": "100/minute", "key": "user:42"}], ...]}
    {"groups": [[{"wait": 0, "a": 1, "b": 2, "c": 3, "now": 4, "cost": 1}], ...]}

Groups are independent, and all-or-nothing each. What has its usual value is left out of an ask.
A decision travels as the words it was made from, and is made from them again by the same rule,
so that its numbers are those it had where it was made. Where there is no rule to make it by
(`seen`: how many ticks a second has), the words are the numbers themselves.

Whatever does not fit this to the letter is a ValueError, and nothing has happened.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

from ...algorithms import rule_of
from ...decision import Ask, Decision, Glance, Seen, decided
from ...keys import Key
from ...limit import Limit
from ..local import check_op
from ..redis.answers import Fenced, own_rule
from . import reading
from .reading import WORD, fields_of, groups_of, key_in, key_out, list_of, shown, text_of, whole

__all__ = [
    "decode_asks", "decode_change", "decode_decisions", "decode_own", "encode_asks",
    "encode_change", "encode_decisions", "encode_group", "encode_own", "fold", "joined_asks",
]  # fmt: skip

LONGEST = 1024
"""Characters of a limit's text."""
KNOWN = 4096
"""Limits that are read once."""
USUAL: dict[str, Any] = {
    "cost": 1, "space": "", "max_wait": 0, "least": -1, "token": 0, "ttl": 0, "at": 0, "room": 0,
}  # fmt: skip
FIELDS = {"op", "limit", "id", "key", *USUAL}
LEAST = {"least": -1, "max_wait": 0, "token": 0, "ttl": 0, "at": 0, "room": 0}
"""The smallest values of those that are numbers, besides the cost."""
WORDS = ("wait", "a", "b", "c", "now", "cost")
MORE = {*WORDS, "own", "fence", "degraded", "glance", "seen"}
_limits: dict[tuple[str, str], Limit] = {}
_dumps = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode


# -- asks


def encode_asks(groups: Sequence[Sequence[Ask]]) -> bytes:
    """The body that asks for decisions on these groups."""
    return joined_asks([encode_group(asks) for asks in groups])


def joined_asks(groups: Sequence[bytes]) -> bytes:
    """The same, of groups that are encoded already."""
    return b'{"groups":[%b]}' % b",".join(groups)


def encode_group(asks: Sequence[Ask]) -> bytes:
    """One group; errors for what no store can be asked."""
    return _dumps([_ask_out(ask) for ask in asks]).encode()


def decode_asks(body: bytes) -> list[list[Ask]]:
    """The groups that a body asks about."""
    return [[_ask_in(ask) for ask in list_of(group, "a group")] for group in groups_of(body)]


def fold(token: int) -> int:
    """A token of any length as one of 63 bits, the same one each time."""
    if 0 <= token < WORD:
        return token
    data = token.to_bytes((token.bit_length() + 8) // 8, "little", signed=True)
    return int.from_bytes(blake2b(data, digest_size=8).digest(), "little") >> 1 or 1


def _ask_out(ask: Ask) -> dict[str, Any]:
    check_op(ask)
    limit = ask.limit
    found: dict[str, Any] = {"op": ask.op, "limit": limit.text, "key": key_out(ask.key)}
    if limit.id != (limit.name or limit.text):
        found["id"] = limit.id
    for name, usual in USUAL.items():
        value = getattr(ask, name)
        if value != usual and (name != "least" or ask.op == "take"):  # means nothing elsewhere
            found[name] = value
    if ask.token:
        found["token"] = fold(ask.token)
    for name in ("max_wait", "ttl"):
        if name in found:
            found[name] = min(found[name], WORD - 1)
    return found


def _ask_in(value: Any) -> Ask:
    found = fields_of(value, "an ask", FIELDS)
    limit = _limit_in(text_of(found, "limit"), found.get("id"))
    numbers: dict[str, Any] = {
        name: whole(found[name], name, LEAST[name]) for name in LEAST if name in found
    }
    cost = found.get("cost", 1)
    if "room" in numbers and numbers["room"] > 1000:
        raise ValueError(f"room is a number of thousandths up to 1000, not {numbers['room']}")
    space = text_of(found, "space") if "space" in found else ""
    ask = Ask(text_of(found, "op"), limit, key_in(found.get("key", "")), cost, space, **numbers)
    try:
        check_op(ask)
    except TypeError as error:
        raise ValueError(str(error)) from None
    return ask


def _limit_in(text: str, filed: Any) -> Limit:
    if filed is None:
        filed = ""
    elif not isinstance(filed, str):
        raise ValueError(f"id is a text, not {shown(filed)}")
    filed.encode()
    limit = _limits.get((text, filed))
    if limit is None:
        if len(text) > LONGEST:
            raise ValueError(f"a limit's text has up to {LONGEST} characters")
        limit = Limit.parse(text)
        limit = limit.named(filed) if filed else limit
        if len(_limits) >= KNOWN:
            _limits.clear()  # thousands of different limits: read again when needed
        _limits[text, filed] = limit
    return limit


# -- decisions


def encode_decisions(
    groups: Sequence[Sequence[Ask]], decisions: Sequence[Sequence[Decision]]
) -> bytes:
    """The body that answers these groups."""
    found = [
        [_decision_out(ask, decision) for ask, decision in zip(asks, answers, strict=True)]
        for asks, answers in zip(groups, decisions, strict=True)
    ]
    return _dumps({"groups": found}).encode()


def decode_decisions(body: bytes, groups: Sequence[Sequence[Ask]]) -> list[list[Decision]]:
    """The decisions on these groups that a body holds."""
    found = groups_of(body)
    if len(found) != len(groups):
        raise ValueError(f"{len(groups)} groups were asked about, and {len(found)} answered")
    return [_answers_in(asks, answers) for asks, answers in zip(groups, found, strict=True)]


def _decision_out(ask: Ask, decision: Decision) -> dict[str, Any]:
    source: Any = decision._source
    limit = source.limit
    wait, a, b, c = decision._outcome
    found: dict[str, Any] = {}
    if source is not rule_of(limit, ask.room if limit.elastic else 0):
        found["seen"] = source.per_second
        a, b, c = decision._look()
    if limit.text != ask.limit.text:
        found["own"] = limit.text
    if decision.degraded:
        found["degraded"] = True
    if isinstance(decision, Glance):
        found["glance"] = True
    if isinstance(decision, Fenced):
        found["fence"] = decision.fence
    words = (wait, a, b, c, decision._now, decision._cost)
    return dict(zip(WORDS, words, strict=True)) | found


def _answers_in(asks: Sequence[Ask], answers: Any) -> list[Decision]:
    found = list_of(answers, "a group")
    if len(found) != len(asks):
        raise ValueError(f"{len(asks)} asks were sent, and {len(found)} answered")
    return [_decision_in(ask, answer) for ask, answer in zip(asks, found, strict=True)]


def _decision_in(ask: Ask, value: Any) -> Decision:
    found = fields_of(value, "a decision", MORE)
    wait, a, b, c, now, cost = (whole(found.get(name), name, -WORD) for name in WORDS)
    if wait < -1 or now < 0 or cost < 0:
        raise ValueError("wait is at least -1, and now and cost are at least 0")
    limit, source = ask.limit, None
    if "own" in found:
        text = text_of(found, "own")
        source = own_rule(text, limit.id, ask.room)
        limit = source.limit
    if "seen" in found:
        seen = whole(found["seen"], "seen", 1)
        source = Seen(limit, seen, bool(found.get("degraded", False)))
    elif source is None:
        source = rule_of(limit, ask.room if limit.elastic else 0)
    fence = whole(found.get("fence", 0), "fence", 0)
    decision: Decision
    if fence and wait >= 0:
        decision = fenced = Fenced()
        fenced._source, fenced._now, fenced._cost = source, now, cost
        fenced._outcome = (wait, a, b, c)
        fenced.fence = fence
    else:
        decision = decided(source, (wait, a, b, c), now, cost)
    return decision.glance() if found.get("glance", False) else decision


# -- a key's own limit


def encode_change(space: str, limit_id: str, key: Key, limit: Limit | None = None) -> bytes:
    """The body that names a key, for `/v1/assigned`; or gives it a limit, for `/v1/assign`."""
    text = None if limit is None else limit.text
    return _dumps({"space": space, "id": limit_id, "key": key_out(key), "limit": text}).encode()


def decode_change(body: bytes) -> tuple[str, str, Key, Limit | None]:
    """Namespace, id, key and limit: the arguments of a store's `assign`."""
    found = fields_of(reading.read(body), "a change", {"space", "id", "key", "limit"})
    filed, text = text_of(found, "id"), found.get("limit")
    limit = None if text is None else _limit_in(text_of(found, "limit"), filed)
    return text_of(found, "space"), filed, key_in(found.get("key", "")), limit


def encode_own(limit: Limit | None) -> bytes:
    """The body that says which limit a key has of its own."""
    return _dumps({"limit": None if limit is None else limit.text}).encode()


def decode_own(body: bytes, limit_id: str) -> Limit | None:
    """That limit."""
    found = fields_of(reading.read(body), "an answer", {"limit"})
    return None if found.get("limit") is None else _limit_in(text_of(found, "limit"), limit_id)
