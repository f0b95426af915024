"""Holding: permits with leases, and costs that are reserved and settled."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

from ..asking import LONGEST
from ..codec import dumps
from ..faults import missing, wrong
from ..http import JSON, Answer, while_there
from ..tokens import Held, unknown
from .calls import call_of, cost_of, fields_only, seconds_of
from .told import answer_of, wished

if TYPE_CHECKING:
    from ..app import Service

__all__ = ["Holding"]

TTL = frozenset(("ttl",))
OUTCOMES = ("success", "failure", "ignored")
RESERVED = 300.0
"""Seconds until a reservation comes back that nobody settles, unless the caller says."""


class Holding:
    """What answers."""

    def __init__(self, service: Service) -> None:
        self._asking = service.asking
        self._deny = service.settings.deny_status
        self._lease = service.settings.lease

    async def acquire(self, told: Any, scope: Any) -> Answer:
        """POST /v1/permits: as a check; what is held lives for `ttl` seconds unless renewed."""
        return await self._take(told, scope, self._lease, reserve=False)

    async def reserve(self, told: Any, scope: Any) -> Answer:
        """POST /v1/reserve: take an estimated cost, to be settled."""
        if type(told) is dict:
            cost_of(told)
        return await self._take(told, scope, RESERVED, reserve=True)

    async def _take(self, told: Any, scope: Any, ttl: float, *, reserve: bool) -> Answer:
        deny = wished(scope, self._deny) if scope["query_string"] else self._deny
        facts, matched = call_of(told, self._asking, more=TTL)
        ttl = seconds_of(told, "ttl", LONGEST) or ttl
        work = self._asking.at_length(facts, matched, ttl=ttl, reserve=reserve)
        if self._asking.waits(matched):
            verdict, held = await while_there(scope, work)
        else:
            verdict, held = await work
        return answer_of(verdict, scope, deny, held, ttl)

    async def renew(self, told: Any, scope: Any) -> Answer:
        """PUT /v1/permits/{token}: live on."""
        ttl = seconds_of(fields_only(told, "ttl"), "ttl", LONGEST)
        held, lease = await self._asking.renew(self._held(scope), ttl)
        return 200, [JSON], dumps({held.kind: {"token": held.text(), "lease": lease}})

    async def release(self, told: Any, scope: Any) -> Answer:
        """DELETE /v1/permits/{token}: give back, and say how the call ended."""
        outcome = "success"
        for name, value in parse_qsl(scope["query_string"].decode("latin-1")):
            if name == "outcome":
                outcome = value
        if outcome not in OUTCOMES:
            raise wrong("outcome", f"one of {', '.join(OUTCOMES)}", outcome)
        await self._asking.release(self._held(scope), outcome)
        return 200, [JSON], b'{"released":true}'

    async def settle(self, told: Any, scope: Any) -> Answer:
        """POST /v1/settle: what was reserved is replaced by what it has cost."""
        told = fields_only(told, "token", "cost")
        if "token" not in told:
            raise missing("token")
        if type(told["token"]) is not str:
            raise wrong("token", "a text", told["token"])
        cost = cost_of(told)
        await self._asking.settle(Held.read(told["token"]), cost)
        return 200, [JSON], b'{"settled":true}'

    def _held(self, scope: Any) -> Held:
        token = scope["path"].rpartition("/")[2]
        if not token.isascii():
            raise unknown()
        return Held.read(token)
