"""Admin: what only those who run the service may see and do, on a listener of its own.

Without a token only this machine reaches it, and a browser's page of another site does not:
the Host must be this machine's, and a request that a browser sends on behalf of another site is
refused. Every change is a line in the audit log.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from ..telemetry.prometheus import exposition
from ..telemetry.stream import CONTENT_TYPE, Stream
from .api.rules import reset_key, rules_told
from .asking import Asking
from .codec import dumps
from .faults import Fault
from .http import JSON, Answer, Endpoint, Guard, send_answer
from .logs import audit

if TYPE_CHECKING:
    from ..gate import AsyncGate
    from ..telemetry import Telemetry
    from .settings import Settings

__all__ = ["Admin"]

HOSTS = frozenset(("localhost", "127.0.0.1", "::1"))
HISTORY = 300
"""Seconds of history that a reader of the stream may ask for."""
NO_STORE = (b"cache-control", b"no-store")
logger = logging.getLogger("headgate.service")

Reload = Callable[[], Awaitable[dict[str, Any]]]


class Admin:
    """Metrics, events, status, reload and reset, as an ASGI application.

    gate       whose rules are shown, and whose store is asked to forget
    telemetry  whose numbers are shown
    reload     looks at the rules anew, everywhere; its answer is told
    status     what else there is to say: the workers
    """

    def __init__(
        self,
        gate: AsyncGate,
        settings: Settings,
        telemetry: Telemetry,
        *,
        reload: Reload | None = None,
        status: Callable[[], dict[str, Any]] | None = None,
    ) -> None:
        self.gate = gate
        self.telemetry = telemetry
        self.stream = Stream(telemetry)
        self._asking = Asking(gate, settings.lease)
        self._reload = reload
        self._status = status
        self._token = settings.token()
        self._guard = Guard(settings.max_body, settings.timeout, self._token)
        self.routes: dict[str, Any] = {
            path: Endpoint(self._guard, methods, refused=self._refused)
            for path, methods in {
                "/metrics": {"GET": self._metrics},
                "/status": {"GET": self._told},
                "/top": {"GET": self._top},
                "/v1/rules": {"GET": self._rules},
                "/v1/reset": {"POST": self._reset},
                "/reload": {"POST": self._anew},
            }.items()
        }
        self.routes["/healthz"] = Endpoint(self._guard, {"GET": self._health}, open_=True)
        self.routes["/events"] = self._events
        """By path; whoever adds some puts an ASGI application there."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """One request."""
        if scope["type"] != "http":
            return
        handler = self.routes.get(scope["path"])
        try:
            if handler is None:
                raise Fault(404, "there is nothing at this path")
            self._same_site(scope)
            await handler(scope, receive, send)
        except Fault as fault:
            self._refused(fault, scope)
            await send_answer(send, *fault.response())

    def _refused(self, fault: Fault, scope: Any) -> None:
        """A line for what was tried in vain; mistyped paths are of no interest."""
        if fault.status in (401, 403) or (scope["method"] != "GET" and fault.status != 404):
            audit(f"{scope['method']} {scope['path'][:80]}", who(scope), str(fault.status))

    def _same_site(self, scope: Any) -> None:
        """Refuse what a browser sends for somebody else's page."""
        host = origin = b""
        for name, value in scope["headers"]:
            if name == b"host":
                host = value
            elif name == b"origin":
                origin = value
            elif name == b"sec-fetch-site" and value not in (b"same-origin", b"none"):
                raise Fault(403, "pages of other sites are not served here")
        if origin and origin.partition(b"://")[2] != host:
            raise Fault(403, "pages of other sites are not served here")
        if not self._token and scope.get("server", ("", 0))[1] is not None:
            # A name that somebody made point to this machine is not this machine's name.
            try:
                name = urlsplit(f"//{host.decode('latin-1')}").hostname
            except ValueError:
                name = None
            if name not in HOSTS:
                raise Fault(403, "without a token, only localhost is served here")

    # -- what there is to see

    async def _metrics(self, told: Any, scope: Any) -> Answer:
        accept = b", ".join(value for name, value in scope["headers"] if name == b"accept")
        kind, text = exposition(self.telemetry, accept.decode("latin-1"))
        return 200, [(b"content-type", kind.encode()), NO_STORE], text

    async def _told(self, told: Any, scope: Any) -> Answer:
        found = {
            "rules": self.gate.status(),
            **(self._status() if self._status is not None else {}),
            "telemetry": self.telemetry.snapshot(),
        }
        return 200, [JSON, NO_STORE], dumps(found)

    async def _top(self, told: Any, scope: Any) -> Answer:
        found = {
            kind: {
                rule: [{"key": b.key, "count": b.count, "error": b.error} for b in busy]
                for rule, busy in self.telemetry.top(refused=kind == "refused").items()
            }
            for kind in ("all", "refused")
        }
        return 200, [JSON, NO_STORE], dumps(found)

    async def _rules(self, told: Any, scope: Any) -> Answer:
        return await rules_told(self.gate)

    async def _health(self, told: Any, scope: Any) -> Answer:
        return 200, [JSON], b'{"status":"ok"}'

    async def _events(self, scope: Any, receive: Any, send: Any) -> None:
        """GET /events: every second's numbers, as server-sent events."""
        if scope["method"] != "GET":
            raise Fault(405, "events are read by GET", headers=[(b"allow", b"GET")])
        given = [value for name, value in scope["headers"] if name == b"authorization"]
        self._guard.admit(given[0] if given else b"")
        pairs = [(b"content-type", CONTENT_TYPE.encode()), NO_STORE, (b"x-accel-buffering", b"no")]
        await send({"type": "http.response.start", "status": 200, "headers": pairs})
        reading = self.stream.read(HISTORY)
        gone = asyncio.ensure_future(_gone(receive))
        try:
            while True:
                chunk = asyncio.ensure_future(anext(reading, None))
                await asyncio.wait({chunk, gone}, return_when=asyncio.FIRST_COMPLETED)
                if not chunk.done():
                    chunk.cancel()
                    await asyncio.gather(chunk, return_exceptions=True)
                    return
                data = chunk.result()
                body = {"type": "http.response.body", "body": data or b"", "more_body": bool(data)}
                await send(body)
                if not data:
                    return
        finally:
            gone.cancel()
            await reading.aclose()  # type: ignore[attr-defined] # a generator

    # -- what there is to do

    async def _reset(self, told: Any, scope: Any) -> Answer:
        places = await reset_key(told, self._asking)
        names = [name for name, _ in places]
        keys = list(dict.fromkeys(str(key) for _, key in places))
        audit("reset", who(scope), "done", rule=", ".join(names), key=", ".join(keys))
        return 200, [JSON], dumps({"reset": names})

    async def _anew(self, told: Any, scope: Any) -> Answer:
        found = await self._reload() if self._reload is not None else {}
        audit("reload", who(scope), "broken" if found.get("last_error") else "done")
        return 200, [JSON], dumps(found)


async def _gone(receive: Any) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def who(scope: Any) -> str:
    """Who asks, as far as a socket can tell."""
    client = scope.get("client")
    return str(client[0]) if client else "a local socket"
