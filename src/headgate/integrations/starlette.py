"""Starlette: a decorator for endpoints, the middleware, and a handler for refusals raised inside.

The decorator asks when the route is known, so rules may match and count by its pattern and its
parameters.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response
from starlette.websockets import WebSocket

from ..decision import Decision
from ..errors import LimitExceeded
from ..gating.chain import Around, Inside, entered
from ..headers import header_pairs
from ..problems import refusal_body
from ..verdict import Refused
from . import asgi
from .common import Answer, refusal
from .scopes import Exchange, Receive, Scope, ScopeFacts, ScopeGate, Send, Words

if TYPE_CHECKING:
    from ..limit import Limit

__all__ = ["RateLimitMiddleware", "limited", "refused_response"]

Endpoint = TypeVar("Endpoint", bound=Callable[..., Any])


class Requests(ScopeGate):
    """A gate whose functions are given requests of Starlette, and which knows the route."""

    def request(self, scope: Scope) -> HTTPConnection:
        """A request; of a websocket what it shares with one."""
        return Request(scope) if scope["type"] == "http" else HTTPConnection(scope)

    def facts(self, scope: Scope) -> ScopeFacts:
        """What is known of a call."""
        facts = super().facts(scope)
        facts.route = getattr(scope.get("route"), "path", "")
        facts.params = scope.get("path_params") or {}
        return facts


class RateLimitMiddleware(asgi.RateLimitMiddleware):
    """The middleware of ASGI, whose functions are given requests of Starlette."""

    def request(self, scope: Scope) -> HTTPConnection:
        """A request; of a websocket what it shares with one."""
        return Request(scope) if scope["type"] == "http" else HTTPConnection(scope)


class Told(Response):
    """A response that is sent through an exchange, and in all else the response that it was."""

    __slots__ = ("_around", "_exchange", "_response")

    def __init__(self, response: Any, exchange: Exchange, around: Around | None) -> None:
        self._around = around
        self._response = response
        self._exchange = exchange
        self.__dict__ = response.__dict__  # what others read and set is the response's own

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        self._exchange.send = send
        with Inside(self._around):  # a body may be made on the way
            await self._exchange.run(self._response, scope, receive)


def limited(*limits: str | Limit, **words: Unpack[Words]) -> Callable[[Endpoint], Endpoint]:
    """A decorator for the endpoints of Starlette: functions, methods of HTTPEndpoint, websockets.

    A refused call does not reach the endpoint. Limits as text are counted for each endpoint by
    itself; `name=` makes several count together where they share a store.
    """

    def decorate(endpoint: Endpoint) -> Endpoint:
        if inspect.isclass(endpoint):
            raise TypeError(f"decorate the methods of {endpoint.__name__}, not the class")
        routes = routes_of(endpoint, limits, words)
        work = called(endpoint)

        @functools.wraps(endpoint)
        async def guarded(*args: Any, **kwargs: Any) -> Any:
            request = _request((*args, *kwargs.values()))
            facts = routes.facts(request.scope)
            verdict = await routes.gate.check(facts)
            if not verdict.allowed:
                return await _refuse(request, routes.answer(facts, verdict))
            exchange = Exchange()
            exchange.add(verdict, routes.failed)
            around = entered(facts)
            with Inside(around):
                response = await _held(exchange, work(*args, **kwargs))
            if response is None:  # of a websocket
                exchange.saw({})
                await exchange.over()
                return None
            return Told(response, exchange, around)

        return guarded  # type: ignore[return-value] # it takes and gives the same

    return decorate


def routes_of(endpoint: Any, limits: tuple[str | Limit, ...], words: Words) -> Requests:
    """The gate of an endpoint; limits that have no name have the endpoint's."""
    if not limits or "name" in words:
        return Requests(limits, **words)
    name = getattr(endpoint, "__name__", "endpoint")
    place = f"{endpoint.__module__}.{getattr(endpoint, '__qualname__', name)}"
    own: Words = {**words, "name": place}
    return Requests(limits, name, **own)


def called(endpoint: Callable[..., Any]) -> Callable[..., Awaitable[Any]]:
    """An endpoint that can be awaited; one that cannot goes to a thread."""
    if inspect.iscoroutinefunction(endpoint):
        return endpoint
    return functools.partial(run_in_threadpool, endpoint)


async def _held(exchange: Exchange, work: Awaitable[Any]) -> Any:
    """What an endpoint answers; if it raises, what the call held comes back."""
    try:
        return await work
    except HTTPException as error:  # it becomes a response by somebody else's hand
        error.headers = {**dict(exchange.headers()), **(error.headers or {})}
        exchange.saw({"status": error.status_code})
        await exchange.over()
        raise
    except BaseException as error:
        await exchange.over("failure" if isinstance(error, Exception) else "ignored")
        raise


def _request(values: tuple[Any, ...]) -> HTTPConnection:
    for value in values:
        if isinstance(value, HTTPConnection):
            return value
    raise TypeError("an endpoint of Starlette takes a request; none was given")


async def _refuse(request: HTTPConnection, answer: Answer) -> Response | None:
    response = response_of(answer)
    if not isinstance(request, WebSocket):
        return response
    if asgi.DENIAL in (request.scope.get("extensions") or ()):
        await request.send_denial_response(response)
    else:
        await request.close(asgi.POLICY_VIOLATION, "refused by a limit")
    return None


def response_of(answer: Answer) -> Response:
    """An answer as a response."""
    response = Response(answer.body, answer.status)  # which writes its own length
    response.raw_headers += [
        pair for pair in asgi.raw_headers(answer) if pair[0] != b"content-length"
    ]
    return response


async def refused_response(request: HTTPConnection, error: Exception) -> Response | None:
    """A handler for `LimitExceeded` and `Refused`, raised by limiters and gates inside.

    `Starlette(exception_handlers={LimitExceeded: refused_response})`
    """
    assert isinstance(error, LimitExceeded)
    answer = getattr(error, "answer", None) or _answer(error, request.headers.get("accept", ""))
    return await _refuse(request, answer)


class _Plain:
    """The refusal of a limiter, in which no rule is."""

    status = 429

    def __init__(self, error: LimitExceeded) -> None:
        self.retry_after = error.retry_after
        self.decisions: list[tuple[str, Decision]] = [(error.decision.limit.id, error.decision)]


def _answer(error: LimitExceeded, accept: str) -> Answer:
    """What is said of an error alone: who calls is not known here, so no function is called."""
    if isinstance(error, Refused):
        other = error.verdict.otherwise
        if other is not None and other.kind != "function":
            return refusal(None, None, error.verdict, accept)  # type: ignore[arg-type] # not asked
        refused: Any = error.verdict
        headers = error.verdict.headers()
    else:
        refused = _Plain(error)
        headers = header_pairs(refused.decisions, allowed=False, retry_after=refused.retry_after)
    status, kind, body = refusal_body(refused, accept)
    return Answer(status, [("Content-Type", kind), *headers], body)
