"""Decide: the store contract over HTTP, for clients whose store is `headgate://`.

An answer has the words of its outcome, so that the client's decisions say the same numbers as
in process: wait, three words, the time in ticks, and the cost. With `seen` the three words are
what remains, the retry and the reset, in ticks of which a second has so many.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...decision import Ask
from ...errors import HeadgateError, StoreError
from ...stores.client.codec import encode_decisions
from ..codec import dumps
from ..faults import Fault, missing, wrong
from ..http import JSON, Answer
from ..tokens import key_from, limit_of
from .calls import fields_only

if TYPE_CHECKING:
    from ...limit import Limit
    from ..app import Service

__all__ = ["Deciding"]

MANY = 4096
"""So many asks a request has at most."""
OPS = frozenset(
    ("take", "check", "shadow", "charge", "refund", "settle", "release", "renew", "reset")
)
NUMBERS = {
    "cost": (0, 2**53 - 1), "max_wait": (0, 2**63 - 1), "least": (-1, 2**53 - 1),
    "token": (0, 2**63 - 1), "ttl": (0, 2**63 - 1), "at": (0, 2**63 - 1), "room": (0, 1000),
}  # fmt: skip
LONGEST = 2**53 - 1
"""Microseconds; a wait or a lease that is longer, by some centuries, is cut to this."""
WORDS = frozenset(("op", "limit", "id", "key", "space", *NUMBERS))


class Deciding:
    """What answers."""

    def __init__(self, service: Service) -> None:
        self._asking = service.asking
        self._store: Any = service.asking.store

    async def decide(self, told: Any, scope: Any) -> Answer:
        """POST /v1/decide: groups of asks, each all-or-nothing by itself."""
        groups = fields_only(told, "groups").get("groups")
        if groups is None:
            raise missing("groups")
        if type(groups) is not list or not all(type(group) is list for group in groups):
            raise wrong("groups", "a list of lists of asks")
        if sum(map(len, groups)) > MANY:
            raise wrong("groups", f"at most {MANY} asks in all")
        asks = [
            [ask_of(each, f"groups[{n}][{place}]") for place, each in enumerate(group)]
            for n, group in enumerate(groups)
        ]
        try:
            answers = await self._asking.decide_many(asks)
        except StoreError:
            raise
        except (HeadgateError, ValueError, TypeError) as error:
            raise Fault(422, str(error)[:300], field="groups") from None
        desk = self._asking.gate._desk
        for group in asks:
            back = [ask for ask in group if ask.op in ("release", "refund", "settle", "reset")]
            if back and any(ask.space == desk.name for ask in back):
                desk.came_back(back)
        return 200, [JSON], encode_decisions(asks, answers)

    async def assign(self, told: Any, scope: Any) -> Answer:
        """POST /v1/assign: give a key a limit of its own; null takes it away."""
        told = fields_only(told, "space", "id", "key", "limit")
        if "limit" not in told:
            raise missing("limit", "limit is a text, or null to take it away")
        place = _place(told)
        limit = None if told["limit"] is None else _limit(told["limit"], place[1], "limit")
        store = self._store
        if store.blocking:
            await store.assign_async(*place, limit)
        else:
            store.assign(*place, limit)
        return 200, [JSON], dumps({"limit": None if limit is None else limit.text})

    async def assigned(self, told: Any, scope: Any) -> Answer:
        """POST /v1/assigned: the limit that a key was given; null if none."""
        place = _place(fields_only(told, "space", "id", "key", "limit"))
        store = self._store
        own = await store.assigned_async(*place) if store.blocking else store.assigned(*place)
        return 200, [JSON], dumps({"limit": None if own is None else own.text})


def _place(told: dict[str, Any]) -> tuple[str, str, Any]:
    space, name = told.get("space", ""), told.get("id")
    if type(space) is not str:
        raise wrong("space", "a text", space)
    if type(name) is not str or not name:
        raise wrong("id", "a limit's id", name)
    return space, name, _key(told.get("key", ""), "key")


def ask_of(told: Any, where: str) -> Ask:
    """An ask as JSON tells it; what is not said has its default."""
    if type(told) is not dict:
        raise wrong(where, "an object", told)
    for field in told:
        if field not in WORDS:
            raise Fault(422, f"an ask has no {field[:80]!r}", field=f"{where}.{field[:80]}")
    op, space, name = told.get("op", "take"), told.get("space", ""), told.get("id", "")
    if type(op) is not str or op not in OPS:
        raise wrong(f"{where}.op", f"one of {', '.join(sorted(OPS))}", op)
    if type(space) is not str:
        raise wrong(f"{where}.space", "a text", space)
    if type(name) is not str:
        raise wrong(f"{where}.id", "a text", name)
    if "limit" not in told:
        raise missing(f"{where}.limit")
    limit = _limit(told["limit"], name, f"{where}.limit")
    numbers: dict[str, Any] = {}
    for field, (least, most) in NUMBERS.items():
        if field in told:
            value = told[field]
            if type(value) is not int or not least <= value <= most:
                expected = f"a whole number from {least} to {most}"
                raise wrong(f"{where}.{field}", expected, value)
            numbers[field] = min(value, LONGEST) if field in ("max_wait", "ttl") else value
    if op != "take" and numbers.get("least", -1) >= 0:
        raise wrong(f"{where}.least", "for takes alone")
    key = _key(told.get("key", ""), f"{where}.key")
    return Ask(op, limit, key, numbers.pop("cost", 1), space, **numbers)


def _limit(told: Any, name: str, where: str) -> Limit:
    if type(told) is not str or len(told) > 1024:
        raise wrong(where, "a limit as text", told)
    try:
        return limit_of(told, name)
    except ValueError as error:
        raise Fault(422, str(error)[:300], field=where) from None


def _key(told: Any, where: str) -> Any:
    try:
        return key_from(told)
    except ValueError as error:
        raise wrong(where, str(error), told) from None
