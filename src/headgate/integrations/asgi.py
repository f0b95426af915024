"""ASGI: the gate as a middleware in front of any ASGI application, for HTTP and websockets."""

from __future__ import annotations

from collections.abc import Awaitable
from functools import partial
from typing import TYPE_CHECKING, Unpack

from ..gating import chain
from ..gating.permit import ASYNC_NOTHING
from .scopes import (
    STARTS,
    App,
    Exchange,
    Message,
    Receive,
    Scope,
    ScopeGate,
    Send,
    Words,
    with_headers,
)

if TYPE_CHECKING:
    from ..facts import Facts
    from ..limit import Limit
    from .common import Answer

__all__ = ["DENIAL", "POLICY_VIOLATION", "RateLimitMiddleware", "send_answer"]

DENIAL = "websocket.http.response"
"""The extension of servers that can answer a handshake by an ordinary response."""
POLICY_VIOLATION = 1008


class RateLimitMiddleware(ScopeGate):
    """Sends calls through a gate before an application sees them.

    Limits as text hold for all calls together, counted by `key`; `Words` are the options.
    """

    def __init__(self, app: App, *limits: str | Limit, **words: Unpack[Words]) -> None:
        super().__init__(limits, **words)
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one call."""
        kind = scope["type"]
        if kind != "http" and kind != "websocket":
            await self.app(scope, receive, send)
            return
        facts = self.facts(scope)
        verdict = await self.gate.check(facts)
        if not verdict.allowed:
            await send_answer(scope, send, self.answer(facts, verdict))
        elif verdict.permit is not ASYNC_NOTHING:
            exchange = Exchange(send)
            exchange.add(verdict, self.failed)
            await exchange.run(self._inside(facts), scope, receive)
        else:

            def told(message: Message) -> Awaitable[None]:
                if message["type"] in STARTS:
                    message = with_headers(message, verdict)
                return send(message)

            app = self._inside(facts) if chain.wanted else self.app
            await app(scope, receive, told)

    def _inside(self, facts: Facts) -> App:
        """The application, to be called for just this call."""
        return partial(chain.inside, facts, self.app)


async def send_answer(scope: Scope, send: Send, answer: Answer) -> None:
    """Send a refusal; to a websocket before it is accepted, by its status if the server can."""
    prefix = "http.response"
    if scope["type"] == "websocket":
        if DENIAL not in (scope.get("extensions") or ()):
            reason = "refused by a limit"
            await send({"type": "websocket.close", "code": POLICY_VIOLATION, "reason": reason})
            return
        prefix = DENIAL
    headers = raw_headers(answer)
    await send({"type": f"{prefix}.start", "status": answer.status, "headers": headers})
    await send({"type": f"{prefix}.body", "body": answer.body})


def raw_headers(answer: Answer) -> list[tuple[bytes, bytes]]:
    """The headers of an answer as bytes; a rule may have any letters in an address."""
    return [
        (name.lower().encode(), value.encode("utf-8", "replace")) for name, value in answer.headers
    ]
