"""Gateway: an ASGI application that limits calls and passes them on to an upstream."""

from __future__ import annotations

from email.utils import formatdate
from typing import TYPE_CHECKING, Unpack
from urllib.parse import quote, unquote

from ..integrations.asgi import DENIAL, RateLimitMiddleware
from ..integrations.scopes import App, Message, Receive, Scope, Send, Words
from ..resilience.breaker import Breaker
from ..service.faults import Fault
from .answers import send_fault
from .breaker import BreakerGuard
from .plan import Plan
from .relay import Relay

if TYPE_CHECKING:
    from ..gate import AsyncGate
    from ..limit import Limit
    from .guard import Guard, Heed
    from .pace import Pace

__all__ = ["Gateway"]

WEBSOCKET = "Websockets do not pass this gateway."
REFUSED = frozenset(("CONNECT", "TRACE"))


class Gateway:
    """A reverse proxy with limits.

    plan               where calls go, and within which times; or just the upstream's URL
    limits, words      as for the ASGI middleware: limits as text, or `rules=`, or `gate=`; with
                       none of them nothing is refused
    guard              holds calls back while the upstream is not well: a Breaker, or a `Guard`
    heed               remembers for how long the upstream wants no more calls
    download, upload   bytes per second of responses and of requests
    """

    def __init__(
        self,
        plan: Plan | str,
        *limits: str | Limit,
        guard: Guard | Breaker | None = None,
        heed: Heed | None = None,
        download: Pace | None = None,
        upload: Pace | None = None,
        **words: Unpack[Words],
    ) -> None:
        self.plan = Plan(plan) if isinstance(plan, str) else plan
        if isinstance(guard, Breaker):
            guard = BreakerGuard(guard)
        self.relay = Relay(self.plan, guard=guard, heed=heed, download=download, upload=upload)
        self.gate: AsyncGate | None = None
        self._app: App = self.relay
        if limits or words.get("rules") or words.get("gate") is not None:
            words.setdefault("trusted", self.plan.trusted)
            limited = RateLimitMiddleware(self.relay, *limits, **words)
            self._app, self.gate = limited, limited.gate
        elif words:
            raise TypeError(f"{', '.join(words)}: that is for limits or rules")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one call."""
        kind = scope["type"]
        if kind == "lifespan":
            await self._lifespan(receive, send)
        elif kind == "websocket":
            await _no_websocket(scope, send)
        elif kind == "http":
            if self.plan.health and scope["path"] == self.plan.health:
                await _well(_dated(send))
                return
            try:
                scope = _straight(scope)
            except Fault as fault:
                await send_fault(_dated(send), fault)
                return
            await self._app(scope, receive, _dated(send))

    async def close(self) -> None:
        """Close all connections, and let go of stores."""
        await self.relay.close()
        if self.gate is not None:
            await self.gate.close()

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                await send({"type": "lifespan.startup.complete"})
            else:
                await self.close()
                await send({"type": "lifespan.shutdown.complete"})
                return


def _straight(scope: Scope) -> Scope:
    """A scope that means the same to the rules and to the upstream; a Fault if it cannot.

    Rules see methods and paths as they are written, and must see what the upstream will.
    """
    method: str = scope["method"]
    if method != method.upper() or method in REFUSED:
        raise Fault(501, f"The method {method[:32]} is not passed on.", close=True)
    headers = scope["headers"]
    if any(name == b"upgrade" and b"websocket" in value.lower() for name, value in headers):
        raise Fault(501, WEBSOCKET, close=True)
    raw: bytes = scope.get("raw_path") or quote(scope["path"]).encode()
    if raw.startswith(b"/"):
        scope["raw_path"] = raw
        return scope
    scheme, mark, rest = raw.partition(b"://")
    if not mark or scheme.lower() not in (b"http", b"https"):
        raise Fault(400, "The request names no path.", close=True)
    # As it is written to a proxy; what it names is then the host, whatever Host says.
    host, slash, path = rest.partition(b"/")
    others = [(name, value) for name, value in headers if name != b"host"]
    raw = slash + path or b"/"
    return {
        **scope,
        "path": unquote(raw.decode("latin-1")),
        "raw_path": raw,
        "headers": [(b"host", host), *others],
    }


def _dated(send: Send) -> Send:
    """What is sent has a date, of whoever made it."""

    async def dated(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = message["headers"]
            if not any(name == b"date" for name, _ in headers):
                now = formatdate(usegmt=True).encode()
                message = {**message, "headers": [*headers, (b"date", now)]}
        await send(message)

    return dated


async def _well(send: Send) -> None:
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", b"3")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"ok\n"})


async def _no_websocket(scope: Scope, send: Send) -> None:
    """From a server that understands them; other servers leave them to `_straight`."""
    if DENIAL in (scope.get("extensions") or ()):
        await send_fault(send, Fault(501, WEBSOCKET), DENIAL)
    else:
        await send({"type": "websocket.close", "code": 1008, "reason": WEBSOCKET})
