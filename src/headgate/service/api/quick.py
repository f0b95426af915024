"""Quick: the way of nearly every check, without a layer that it does not need.

One rule that takes and no more, on a store within reach, asked by a request that is there as a
whole. Whatever is different goes the usual way, with what was read of it.
"""

from __future__ import annotations

from types import CoroutineType
from typing import TYPE_CHECKING, Any

from ...verdict import AsyncVerdict
from ..http import Endpoint, begun, done
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
        data = scope.get("headgate.body")  # our own server says it at once: see servers
        if data is None or len(data) > self._most or not self._may_be_quick(scope):
            await self._as_it_comes(scope, receive, send)
            return
        try:
            answer = self._now(bytes(data), scope)
        except Exception as error:
            answer = self.failed(error, scope)
        if answer is None:
            await super().__call__(scope, receive, send)
            return
        # As send_answer does, without a coroutine more.
        status, pairs, body = answer
        pairs.append((b"content-length", b"%d" % len(body)))
        await send({"type": "http.response.start", "status": status, "headers": pairs})
        await send({"type": "http.response.body", "body": body})

    def _may_be_quick(self, scope: Scope) -> bool:
        if self._usual or scope["method"] != "POST" or scope["query_string"]:
            return False
        for name, value in scope["headers"]:
            if name == b"content-type":
                return value == b"application/json"  # type: ignore[no-any-return] # as ASGI has it
        return False

    async def _as_it_comes(self, scope: Scope, receive: Receive, send: Send) -> None:
        """A request whose body is to be asked for."""
        length = next((value for name, value in scope["headers"] if name == b"content-length"), b"")
        if (
            "headgate.body" in scope or not self._may_be_quick(scope)
            or not 0 < len(length) < 10 or int(length) > self._most
        ):  # fmt: skip
            await super().__call__(scope, receive, send)
            return
        waiting: Any = receive()
        if type(waiting) is CoroutineType:
            try:
                waiting = begun(waiting, waiting.send(None))
            except StopIteration as end:
                part = end.value
                if part["type"] == "http.request" and not part["more_body"]:
                    scope["headgate.body"] = part["body"]
                waiting = done(part)
        again = _Again(waiting, receive)
        if "headgate.body" in scope:
            await self(scope, again, send)
            # Who answered quickly has not asked again for what was received already.
            again.close()
        else:
            await super().__call__(scope, again, send)

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
            told = alone(verdict)
            if told is not None:
                return 200, *told
        return answer_of(verdict, scope, self._checks.deny)


class _Again:
    """Receives what was under way already, and then what follows."""

    __slots__ = ("_first", "_receive")

    def __init__(self, first: Any, receive: Receive) -> None:
        self._first = first
        self._receive = receive

    def close(self) -> None:
        """What nobody asked for."""
        if self._first is not None:
            self._first.close()

    def __call__(self) -> Any:
        first, self._first = self._first, None
        return self._receive() if first is None else first
