"""Service: everything that is served over HTTP on the data side, as one ASGI application.

Paths are found in a dict. Whoever adds some puts an ASGI application there:

    service.routes["/auth/nginx"] = handler
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from .api.check import Checks
from .api.decide import Deciding
from .api.holding import Holding
from .api.quick import QuickCheck
from .api.rules import rules_told
from .asking import Asking
from .codec import dumps
from .faults import Fault
from .http import JSON, Answer, Endpoint, Guard, send_answer
from .openapi import document
from .reach import Reach
from .settings import Settings

if TYPE_CHECKING:
    from ..gate import AsyncGate
    from ..telemetry import Telemetry

__all__ = ["Handler", "Service"]

Handler = Callable[[Any, Any, Any], Awaitable[None]]
"""An ASGI application: scope, receive, send."""
_NOT_FOUND = Fault(404, "there is nothing at this path; see /openapi.json")


class Service:
    """The HTTP of the data side: the API, health, and what others add.

    gate       an AsyncGate; its store is the one that is asked
    settings   limits on size and time, and how refusals are told
    telemetry  who counts; the caller lets it watch the gate
    """

    def __init__(
        self,
        gate: AsyncGate,
        settings: Settings | None = None,
        telemetry: Telemetry | None = None,
    ) -> None:
        self.gate = gate
        self.settings = settings or Settings()
        self.telemetry = telemetry
        self.asking = Asking(gate, self.settings.lease)
        self.draining = False
        """Whether this service is about to end: nobody new should be sent here."""
        self.guard = Guard(self.settings.max_body, self.settings.timeout, self.settings.api_token())
        self._reach = Reach(gate.store)
        self.routes: dict[str, Handler] = {}
        """By path."""
        self.under: dict[str, Handler] = {}
        """By what stands before the last slash of a path: `/v1/permits` for each of its tokens."""
        self._mount()

    def _mount(self) -> None:
        checks, holding, deciding = Checks(self), Holding(self), Deciding(self)
        guard = self.guard
        for path, methods in {
            "/v1/check/batch": {"POST": checks.batch},
            "/v1/peek": {"GET": checks.peek, "POST": checks.peek},
            "/v1/decide": {"POST": deciding.decide},
            "/v1/assign": {"POST": deciding.assign},
            "/v1/assigned": {"POST": deciding.assigned},
            "/v1/reserve": {"POST": holding.reserve},
            "/v1/settle": {"POST": holding.settle},
            "/v1/permits": {"POST": holding.acquire},
            "/v1/rules": {"GET": self._rules},
        }.items():
            self.routes[path] = Endpoint(guard, methods)
        self.routes["/v1/check"] = QuickCheck(guard, checks)
        permits = {"PUT": holding.renew, "DELETE": holding.release}
        self.under["/v1/permits"] = Endpoint(guard, permits)
        for path, function in (
            ("/healthz", self._health),
            ("/readyz", self._ready),
            ("/openapi.json", self._document),
        ):
            self.routes[path] = Endpoint(guard, {"GET": function, "HEAD": function}, open_=True)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """One request."""
        await self.answer(scope, receive, send)

    def answer(self, scope: Any, receive: Any, send: Any) -> Awaitable[None]:
        """The same, for a server that knows what it is given: it saves a coroutine."""
        if scope["type"] != "http":
            return _live(scope, receive, send)
        path = scope["path"]
        handler = self.routes.get(path) or self.under.get(path.rpartition("/")[0])
        if handler is None:
            return send_answer(send, *_NOT_FOUND.response())
        return handler(scope, receive, send)

    # -- health

    async def _health(self, told: Any, scope: Any) -> Answer:
        return 200, [JSON], b'{"status":"ok"}'

    async def _ready(self, told: Any, scope: Any) -> Answer:
        there = await self._reach.there()
        ready = not self.draining
        body = {
            "ready": ready,
            "store": "there" if there else "away",
            "rules": len(self.gate.snapshot),
        }
        return 200 if ready else 503, [JSON], dumps(body)

    async def _rules(self, told: Any, scope: Any) -> Answer:
        return await rules_told(self.gate)

    async def _document(self, told: Any, scope: Any) -> Answer:
        return 200, [JSON], document()


async def _live(scope: Any, receive: Any, send: Any) -> None:
    """Nothing to begin, nothing to end: the gate is somebody else's."""
    while scope["type"] == "lifespan":
        what = (await receive())["type"]
        await send({"type": f"{what}.complete"})
        if what == "lifespan.shutdown":
            return
