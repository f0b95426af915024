"""Quick: the way of nearly every check, without a layer that it does not need.

One rule that takes and no more, on a store within reach, asked by a request that is there as a
whole. Whatever is different goes the usual way, with what was read of it.
"""

from __future__ import annotations

from types import CoroutineType
from typing import TYPE_CHECKING, Any

from ...verdict import AsyncVerdict
from ..http import JSON, Endpoint, begun, done, send_answer
from .told import alone, answer_of

if TYPE_CHECKING:
    from ..http import Guard, Receive, Scope, Send
    from .check import Checks

__all__ = ["QuickCheck"]


class QuickCheck(Endpoint):
    """POST /v1/check."""

    def __init__(self, guard: Guard, checks: Checks) -> None:
        super().__init__(guard, {"POST": checks.check}, raw=True)
        self._checks = checks
        self._gate = checks.asking.gate
        self._most = guard.most
        self._usual = guard.wants_token or self._gate.store.blocking
        """Whether nothing goes the quick way."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        kind = length = b""
        for name, value in scope["headers"]:
            if name == b"content-type":
                kind = value
            elif name == b"content-length":
                length = value
        if (
            self._usual or kind != b"application/json" or scope["method"] != "POST"
            or scope["query_string"] or not 0 < len(length) < 10 or int(length) > self._most
        ):  # fmt: skip
            await super().__call__(scope, receive, send)
            return
        data = scope.get("headgate.body")  # our own server says it at once: see servers
        if data is not None and len(data) == int(length):
            if await self._quick(bytes(data), scope, send):
                return
            await super().__call__(scope, receive, send)
            return
        waiting: Any = receive()
        if type(waiting) is CoroutineType:
            try:
                waiting = begun(waiting, waiting.send(None))
            except StopIteration as end:
                part = end.value
                whole = part["type"] == "http.request" and not part["more_body"]
                if whole and await self._quick(part["body"], scope, send):
                    return
                waiting = done(part)
        await super().__call__(scope, _Again(waiting, receive), send)

    async def _quick(self, data: bytes, scope: Scope, send: Send) -> bool:
        """Whether the answer could be had at once, and was sent."""
        try:
            answer = self._now(data, scope)
        except Exception as error:
            answer = self.failed(error, scope)
        if answer is None:
            return False
        await send_answer(send, *answer)
        return True

    def _now(self, data: bytes, scope: Scope) -> Any:
        """The answer, if it can be had at once."""
        facts, matched = self._checks.known(data)
        bounds, ways = matched.bounds, self._gate._prepared
        if len(bounds) != 1 or ways is None:
            return None
        bound = bounds[0]
        way = ways.get(id(bound.limits))
        if way is None:
            return None
        verdict = self._gate._short(facts, matched, way(bound.key, bound.cost), AsyncVerdict)
        if verdict.allowed:
            body = alone(verdict)
            if body is not None:
                return 200, [JSON, *verdict.raw_headers()], body
        return answer_of(verdict, scope, self._checks.deny)


class _Again:
    """Receives what was under way already, and then what follows."""

    __slots__ = ("_first", "_receive")

    def __init__(self, first: Any, receive: Receive) -> None:
        self._first = first
        self._receive = receive

    def __call__(self) -> Any:
        first, self._first = self._first, None
        return self._receive() if first is None else first
