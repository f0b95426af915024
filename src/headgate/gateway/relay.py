"""Relay: one call passed on to the upstream, and its response passed back, piece by piece.

Neither body is ever held as a whole: a piece is read when the one before it has been taken.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

import aiohttp

from ..integrations.scopes import Receive, Scope, ScopeFacts, Send
from ..service.faults import Fault
from .answers import send_fault, too_early
from .guard import Guard, Heed, Held
from .heads import request_head, response_head
from .incoming import Incoming, length_of
from .pace import Flow, Pace
from .patience import Patience
from .plan import Plan
from .upstream import Upstream

if TYPE_CHECKING:
    from ..facts import Facts

__all__ = ["Relay"]

logger = logging.getLogger("headgate")

FAULTS = {
    "first byte": (504, "The upstream did not answer in time."),
    "total": (504, "The call took too long."),
    "upstream": (504, "The upstream did not take the request in time."),
    "client": (408, "The request did not arrive in time."),
    "too large": (413, "The request is too large."),
}
"""By what was not awaited, the answer of a call whose response has not begun."""
CLIENT = ("client", "pace")
"""What is waited for where the upstream is not."""
ARRIVAL = 10.0
"""Seconds after which a guard does not wait for a client's request any more."""


class Relay:
    """An ASGI application that is another server, somewhere else."""

    def __init__(
        self,
        plan: Plan,
        *,
        guard: Guard | None = None,
        heed: Heed | None = None,
        download: Pace | None = None,
        upload: Pace | None = None,
    ) -> None:
        self.plan = plan
        self.upstream = Upstream(plan)
        self.guard = guard or Guard()
        self.heed = heed
        self.download, self.upload = download, upload
        self._needs_facts = any(one is not None for one in (heed, download, upload))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one call by asking the upstream."""
        plan = self.plan
        facts = ScopeFacts(scope, plan.trusted) if self._needs_facts else None
        try:
            key = self._heeded(facts)
            length = length_of(scope["headers"], plan.max_body)
            client = scope.get("client")
            headers = request_head(
                scope["headers"], client[0] if client else None, scope["scheme"], plan.trusted,
                "" if plan.keeps_host else self.upstream.target.authority,
            )  # fmt: skip
            call = _Call(self, scope, receive, send, facts, length)
            try:
                call.enter()
            except Held as held:
                raise too_early(503, "The upstream is not well.", held.seconds) from None
        except Fault as fault:
            await send_fault(send, fault)
            return
        if length is not None and length >= 0:
            headers.append(("content-length", str(length)))
        try:
            await call.run(headers, key)
        finally:
            call.leave("ignored")  # unless there was more to say

    def _heeded(self, facts: Facts | None) -> Any:
        """The key by which the upstream's wishes are kept, if this call may be made."""
        if self.heed is None or facts is None:
            return None
        key = self.heed.key(facts)
        asked = self.heed.asked(key)
        if asked is not None:
            raise too_early(asked[0], "The upstream asked for fewer calls.", asked[1])
        return key

    async def close(self) -> None:
        """Close all connections, and let go of stores."""
        await self.upstream.close()
        for pace in (self.download, self.upload):
            if pace is not None:
                await pace.close()


class _Call:
    """One call, and what the guard is told of it."""

    def __init__(
        self, relay: Relay, scope: Scope, receive: Receive, send: Send, facts: Facts | None,
        length: int | None,
    ) -> None:  # fmt: skip
        self._relay, self._scope, self._send, self._facts = relay, scope, send, facts
        plan = relay.plan
        self._patience = Patience(plan.total)
        flow = None
        if relay.upload is not None and facts is not None and length != 0:
            flow = relay.upload.flow(facts)
        self._incoming = Incoming(receive, plan, self._patience, flow, length)
        self._loop = asyncio.get_running_loop()
        self._started = self._entered = False
        self._token: Any = None
        self._look: asyncio.TimerHandle | None = None

    def enter(self) -> None:
        """Ask the guard; a Held if the call may not be made."""
        self._token = self._relay.guard.enter()
        self._entered = True
        if self._incoming.expected:
            self._look = self._loop.call_later(ARRIVAL, self._arriving)

    def leave(self, outcome: str) -> None:
        """Tell the guard, once: what comes after the beginning of a response is not counted."""
        if self._entered:
            self._entered = False
            over = self._incoming.over_at
            # The upstream's own time: that of a client which sends slowly is not counted.
            seconds = self._loop.time() - over if over else 0.0
            self._relay.guard.leave(self._token, outcome, seconds)
        if self._look is not None:
            self._look.cancel()

    def _arriving(self) -> None:
        """A request is long in coming. If its client is, the guard waits for it no longer."""
        if not self._incoming.over_at and self._patience.waiting in CLIENT:
            self.leave("ignored")
        elif not self._incoming.over_at:
            self._look = self._loop.call_later(ARRIVAL, self._arriving)

    async def run(self, headers: list[tuple[str, str]], key: Any) -> None:
        """Ask the upstream, and pass its response back."""
        fault: Fault | None = None
        response: aiohttp.ClientResponse | None = None
        try:
            async with self._patience:
                response = await self._asked(headers)
                self._answered(response, key)
                await self._back(response)
        except TimeoutError as error:
            fault = self._late(error)
        except (aiohttp.ClientError, OSError, ValueError) as error:
            if self._patience.why:  # the error only follows from that
                fault = self._late(TimeoutError())
            else:
                self.leave("ignored" if _is_unsent(error) else "failure")
                fault = Fault(502, "The upstream could not be reached, or broke off.")
                logger.warning("upstream %s: %r", self._relay.plan.upstream, error)
        finally:
            self._incoming.close()
            if response is not None:
                response.close()  # does nothing to one that was read to its end
        # A response that has begun cannot become another one: the server breaks it off.
        if fault is not None and not self._started:
            await send_fault(self._send, fault)

    async def _asked(self, headers: list[tuple[str, str]]) -> aiohttp.ClientResponse:
        scope = self._scope
        query = scope["query_string"].decode("latin-1")
        incoming = self._incoming
        incoming.begin()
        return await self._relay.upstream.request(
            scope["method"], scope["raw_path"].decode("latin-1"), query, headers,
            incoming if incoming.expected else None,
        )  # fmt: skip

    def _answered(self, response: aiohttp.ClientResponse, key: Any) -> None:
        status = response.status
        if not 200 <= status <= 599:
            raise aiohttp.ClientError(f"a response of status {status}")
        self.leave("failure" if status >= 500 else "success")
        heed = self._relay.heed
        if heed is not None:
            heed.heard(key, status, {n.lower(): value for n, value in response.headers.items()})

    async def _back(self, response: aiohttp.ClientResponse) -> None:
        """Pass the response on to the client."""
        send, patience, between = self._send, self._patience, self._relay.plan.between
        self._started = True
        head = response_head(response.raw_headers)
        patience.allow(between, "client")
        await send({"type": "http.response.start", "status": response.status, "headers": head})
        content = response.content
        flow = self._flow()
        while not content.at_eof():
            patience.allow(between, "upstream")
            chunk = await content.readany()
            last = content.at_eof()
            if flow is not None:
                patience.allow(0, "pace")
                async for piece in flow.pieces(chunk):
                    patience.allow(between, "client")
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
                    patience.allow(0, "pace")
            elif chunk and not last:
                patience.allow(between, "client")
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
            elif chunk:
                await self._last(chunk)
                return
        await self._last(b"")

    async def _last(self, chunk: bytes) -> None:
        """Send the end of the response; who goes away after that takes nothing along.

        For a server calls it a going, too, when all was sent. What is given back in this last
        step must not be broken off by that.
        """
        self._incoming.close()
        self._patience.allow(self._relay.plan.between, "client")
        await self._send({"type": "http.response.body", "body": chunk})

    def _flow(self) -> Flow | None:
        pace = self._relay.download
        return None if pace is None or self._facts is None else pace.flow(self._facts)

    def _late(self, error: TimeoutError) -> Fault | None:
        """What a call is told whose time is up; nothing if the client has gone."""
        why = self._patience.why
        if not why:  # aiohttp's own: there was no connection
            logger.warning("upstream %s: %r", self._relay.plan.upstream, error)
            why = "upstream"
        if why == "gone":
            return None
        status, detail = FAULTS[why]
        # Of all the time that a call has, its client may have used up the most.
        blamed = self._patience.waiting if why == "total" else why
        self.leave("ignored" if blamed in CLIENT or why == "too large" else "failure")
        return Fault(status, detail, close=True)


def _is_unsent(error: Exception) -> bool:
    """Whether a request could not even be written: nothing is said about the upstream."""
    known = isinstance(error, aiohttp.ClientError | OSError)
    return isinstance(error, aiohttp.InvalidURL) or not known
