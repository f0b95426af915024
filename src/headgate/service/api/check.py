"""Check: whether a call may go ahead; alone, in a batch, or only looked at."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from ..codec import dumps
from ..faults import missing, wrong
from ..http import JSON, Answer, json_of, while_there
from .calls import call_of, fields_only, query_of
from .told import answer_of, told_of, wished

if TYPE_CHECKING:
    from ...facts import Facts
    from ...rules.compiled import Matched
    from ..app import Service

__all__ = ["Checks"]

MANY = 1000
"""So many calls a batch has at most."""
KEPT, LONG = 4096, 512
"""So many bodies are remembered, if they have no more bytes than this."""
ONCE = 4 * KEPT
"""Of so many it is known that they came once: only who comes again is remembered."""


class Checks:
    """What answers."""

    def __init__(self, service: Service) -> None:
        self.asking = service.asking
        self.deny = service.settings.deny_status
        self._lease = service.settings.lease
        self._snapshot: Any = None
        self._known: dict[bytes, tuple[Facts, Matched]] = {}
        """What bodies say, and what the rules in force say of it: most come again and again."""
        self._once: set[int] = set()

    def known(self, data: bytes) -> tuple[Facts, Matched]:
        """What a body says of a call, and what the rules say of that."""
        snapshot = self.asking.gate.snapshot
        if snapshot is not self._snapshot:
            self._known.clear()
            self._snapshot = snapshot
        known = self._known.get(data)
        if known is None:
            known = call_of(json_of(data), self.asking)
            if len(data) <= LONG and self.asking.gate.snapshot is snapshot:
                self._remember(data, known)
        return known

    def _remember(self, data: bytes, known: tuple[Facts, Matched]) -> None:
        mark = hash(data)
        if mark not in self._once:
            if len(self._once) >= ONCE:
                self._once.clear()
            self._once.add(mark)
            return
        if len(self._known) >= KEPT:
            self._known.clear()
        self._known[data] = known

    async def check(self, data: bytes, scope: Any) -> Answer:
        """POST /v1/check: take what a call costs, or say no."""
        deny = wished(scope, self.deny) if scope["query_string"] else self.deny
        known = self.known(data)
        work = self.asking.check(*known)
        if self.asking.waits(known[1]):
            verdict, held = await while_there(scope, work)
        else:
            verdict, held = await work
        return answer_of(verdict, scope, deny, held, self._lease)

    async def batch(self, told: Any, scope: Any) -> Answer:
        """POST /v1/check/batch: several calls, each by itself; none of them waits."""
        calls = fields_only(told, "calls").get("calls")
        if calls is None:
            raise missing("calls")
        if type(calls) is not list or len(calls) > MANY:
            raise wrong("calls", f"a list of at most {MANY} calls", calls)
        asked = [
            call_of(each, self.asking, where=f"calls[{place}].") for place, each in enumerate(calls)
        ]
        found = await self.asking.batch(asked)
        verdicts = [told_of(verdict, held, self._lease) for verdict, held in found]
        await asyncio.sleep(0)  # a large batch does not hold the others up for longer
        return 200, [JSON], dumps({"verdicts": verdicts})

    async def peek(self, told: Any, scope: Any) -> Answer:
        """GET or POST /v1/peek: would it pass? Takes nothing."""
        if told is None:
            told = query_of(scope)
        facts, matched = call_of(told, self.asking)
        verdict = await self.asking.peek(facts, matched)
        return 200, [JSON, *verdict.raw_headers()], dumps(told_of(verdict))
