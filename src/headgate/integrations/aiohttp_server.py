"""aiohttp servers: the gate as a middleware of an application, or as a decorator of a handler.

What a call holds is given back when the task that answers it ends: then its response has been
sent to the last byte, or never will be.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from aiohttp import web

from ..addresses import Trusted, client_address, read_address
from ..callers import errand
from ..facts import Facts
from ..gate import AsyncGate
from ..gating import chain
from ..paths import normal_path
from ..rules.patterns import host_of
from .common import Find, Finder, gate_of, known_of, refusal, succeeded, trusted_of

if TYPE_CHECKING:
    from aiohttp.typedefs import Handler

    from ..clock import Clock
    from ..gate import AsyncPermit
    from ..limit import Limit
    from ..problems import Replace

__all__ = ["Words", "limited", "rate_limit", "tell"]

Handling = Callable[..., Awaitable[web.StreamResponse]]

# Older ones know texts only, newer ones warn of them.
TOLD: Any = web.RequestKey("headgate", list) if hasattr(web, "RequestKey") else "headgate"
"""Under this a request keeps the verdicts that its response has not told yet."""


class Words(TypedDict, total=False):
    """What may be said beside the limits.

    Functions that find out who calls are given the request, `failed` is given the response.
    """

    rules: Any
    gate: AsyncGate | None
    key: str | Sequence[str]
    store: Any
    user: Finder
    device: Finder
    api_key: Finder
    origin: Finder
    attributes: Finder
    priority: Finder
    trusted: Trusted | Sequence[str] | str | None
    body: Replace | None
    failed: Callable[[web.StreamResponse], bool] | None
    name: str
    clock: Clock | None
    room: Callable[[], float] | None
    functions: Mapping[str, Callable[..., Any]] | None


def rate_limit(app: web.Application, *limits: str | Limit, **words: Unpack[Words]) -> AsyncGate:
    """Send all calls of an application through a gate, and return the gate.

    limits   limits as text, for all calls together, counted by `key`; or `rules=`, or `gate=`
    user, device, api_key, origin, attributes, priority
             what is known of a call: functions of the request
    trusted  the proxies whose word on the client's address is taken
    body     a refusal's own body: a function of the verdict and the Accept header
    failed   whether a response is a failure; else those with a status of 500 or above are, and
             for limits that count failures those of 400 or above
    """
    guard = Guard(limits, **words)

    @web.middleware
    async def middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
        return await guard.answer(request, partial(handler, request))

    app.middlewares.append(middleware)
    app.on_response_prepare.append(tell)
    if words.get("gate") is None:

        async def close(_: web.Application) -> None:
            await guard.gate.close()

        app.on_cleanup.append(close)
    return guard.gate


def limited(*limits: str | Limit, **words: Unpack[Words]) -> Callable[[Handling], Handling]:
    """A decorator for a handler, or for a method of a view; the words are those of `rate_limit`.

    Handlers count apart from each other, unless they are given the same gate or name.
    """

    def decorate(handler: Handling) -> Handling:
        own: Words = {"name": f"{handler.__module__}.{handler.__qualname__}", **words}
        guard = Guard(limits, rule=handler.__name__, **own)

        @wraps(handler)
        async def guarded(*args: Any) -> web.StreamResponse:
            last = args[-1]  # a method has itself in front
            request = last.request if isinstance(last, web.View) else last
            call = partial(handler, *args)
            if any(tell in app.on_response_prepare for app in request.match_info.apps):
                return await guard.answer(request, call)
            try:
                response = await guard.answer(request, call)
            except web.HTTPException as error:
                await tell(request, error)
                raise
            if isinstance(response, web.StreamResponse) and not response.prepared:
                await tell(request, response)
            return response

        return guarded

    return decorate


async def tell(request: web.BaseRequest, response: web.StreamResponse) -> None:
    """Add the headers of its limits to a response: a signal for `app.on_response_prepare`."""
    for verdict in request.pop(TOLD, ()):
        with suppress(Exception):  # a response without them is better than none
            response.headers.extend(verdict.headers())


class Guard:
    """A gate in front of handlers."""

    def __init__(
        self, limits: Sequence[str | Limit], rule: str = "", **words: Unpack[Words]
    ) -> None:
        rest: dict[str, Any] = dict(words)
        self._find = Find(*(rest.pop(word, None) for word in Find._fields))
        self._trusted = trusted_of(rest.pop("trusted", None))
        self._body: Replace | None = rest.pop("body", None)
        self._failed: Callable[[web.StreamResponse], bool] | None = rest.pop("failed", None)
        if rule and rest.get("gate") is not None:
            del rest["name"]  # it has one
        told = {"name": rule} if rule and limits else None
        self.gate: AsyncGate = gate_of(AsyncGate, limits, words=told, **rest)

    async def answer(
        self, request: web.Request, call: Callable[[], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        """The response to one call: the handler's, or a refusal."""
        facts = self._facts(request)
        verdict = await self.gate.check(facts)
        if not verdict.allowed:
            accept = facts.headers.get("accept", "")
            status, headers, body = refusal(self.gate, facts, verdict, accept, self._body)
            return web.Response(status=status, headers=headers, body=body)
        request.setdefault(TOLD, []).append(verdict)
        permit = verdict.permit
        if chain.wanted:
            call = partial(chain.inside, facts, call)
        if not permit:
            return await call()
        outcome = "failure"
        try:
            response = await call()
            outcome = self._outcome(response)
        except web.HTTPException as error:  # it is the response, too
            outcome = self._outcome(error)
            raise
        except asyncio.CancelledError:
            outcome = "ignored"
            raise
        finally:
            task = asyncio.current_task()
            assert task is not None
            task.add_done_callback(lambda task: _ended(task, permit, outcome))
        return response

    def _facts(self, request: web.Request) -> Facts:
        headers: dict[str, str] = {}
        for raw, value in request.headers.items():
            name = raw.lower()
            headers[name] = f"{headers[name]}, {value}" if name in headers else value
        peer = request.remote or ""
        resource = request.match_info.route.resource
        return Facts(
            method=request.method,
            path=normal_path(request.rel_url.raw_path),
            host=host_of(request.host),
            route=resource.canonical if resource is not None else "",
            headers=headers,
            ip=client_address(peer if read_address(peer) else None, headers, self._trusted),
            params=request.match_info,
            size=request.content_length or 0,
            **known_of(self._find, request),
        )

    def _outcome(self, response: object) -> str:
        if not isinstance(response, web.StreamResponse):
            return "failure"  # aiohttp says so to whoever forgot to return one
        if self._failed is not None:
            return "failure" if self._failed(response) else "success"
        return succeeded(response.status)


def _ended(task: asyncio.Task[Any], permit: AsyncPermit, outcome: str) -> None:
    """Give back, after a response was sent or could not be."""
    if task.cancelled():
        outcome = "ignored"
    elif task.exception() is not None:
        outcome = "failure"
    errand(permit.release(outcome))
