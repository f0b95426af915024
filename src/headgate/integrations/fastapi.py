"""FastAPI: limits as a dependency or as a decorator, the middleware, and a handler for refusals.

Both ask when the route is known, so rules may match and count by its pattern and its parameters.
A dependency sees what is raised, and that FastAPI makes a response of a value; the response that
an endpoint returns itself it cannot see, unless `install(app)` lets it.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, Unpack

from fastapi import Depends, FastAPI, HTTPException, Response, WebSocketException
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException as AnyHTTPException
from starlette.requests import HTTPConnection

from ..errors import LimitExceeded
from ..gating import chain
from ..problems import problem
from ..verdict import AsyncVerdict, Refused
from .asgi import DENIAL, POLICY_VIOLATION
from .scopes import App, Exchange, Receive, Scope, Send, Words
from .starlette import (
    RateLimitMiddleware,
    Requests,
    Told,
    called,
    refused_response,
    response_of,
    routes_of,
)

if TYPE_CHECKING:
    from ..facts import Facts
    from ..limit import Limit
    from .common import Answer

__all__ = [
    "HTTPRefused", "RateLimit", "RateLimitMiddleware", "install", "limited", "refused_response",
]  # fmt: skip

Endpoint = TypeVar("Endpoint", bound=Callable[..., Any])
HIDDEN = "headgate_around"
WATCHED = "headgate"


class HTTPRefused(Refused, HTTPException):
    """A refusal that FastAPI can answer by itself; `install(app)` makes it problem details."""

    def __init__(self, verdict: AsyncVerdict, answer: Answer) -> None:
        Refused.__init__(self, verdict)
        own = ("content-type", "content-length")  # the body will be another
        headers = {name: value for name, value in answer.headers if name.lower() not in own}
        HTTPException.__init__(self, answer.status, problem(verdict), headers)
        self.answer = answer


def install(app: FastAPI) -> None:
    """Let dependencies see responses, and answer refusals raised anywhere inside."""
    app.add_middleware(Watch)
    handler: Any = refused_response  # for requests and websockets alike, which types cannot say
    app.add_exception_handler(LimitExceeded, handler)


class Watch:
    """A middleware through which the limits of routes see the response."""

    def __init__(self, app: App) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one call."""
        if scope["type"] in ("http", "websocket"):
            exchange = Exchange(send)
            await exchange.run(self.app, {**scope, WATCHED: exchange}, receive)
        else:
            await self.app(scope, receive, send)


async def exchange_of(connection: HTTPConnection) -> AsyncIterator[Exchange]:
    """The exchange that watches the response, or one that ends with the dependencies."""
    with chain.Inside(chain.around.get()):  # what limits note of the call ends with it
        watched = connection.scope.get(WATCHED)
        if watched is not None:
            yield watched
            return
        exchange = Exchange()
        try:
            yield exchange
        except AnyHTTPException as error:  # it becomes a response by somebody else's hand
            error.headers = {**dict(exchange.headers()), **(error.headers or {})}
            exchange.saw({"status": error.status_code})
            raise
        except Exception:
            await exchange.over("failure")
            raise
        else:
            if connection.scope["type"] == "websocket":
                exchange.saw({})
        finally:
            await exchange.over()


class Merged(MutableHeaders):
    """Headers that dependencies add to a response.

    FastAPI reads them for the responses that it makes itself, and for no others.
    """

    def __init__(self, headers: MutableHeaders, read: Callable[[], None]) -> None:
        super().__init__(raw=headers.raw)
        self._read = read

    @property
    def raw(self) -> list[tuple[bytes, bytes]]:
        """The pairs, as they are sent."""
        self._read()
        return super().raw


class Around:
    """What surrounds an endpoint: the request, the headers to send, the response on its way."""

    __slots__ = ("connection", "exchange", "response")

    def __init__(
        self,
        connection: HTTPConnection,
        response: Response,
        exchange: Annotated[Exchange, Depends(exchange_of)],
    ) -> None:
        self.connection = connection
        self.response = response
        self.exchange = exchange
        if not self.watched:
            response._headers = Merged(response.headers, self._made)  # which `headers` gives

    def _made(self) -> None:
        """FastAPI makes a response of what the endpoint returned: its status is known."""
        of_route = getattr(self.connection.scope.get("route"), "status_code", None)
        self.exchange.saw({"status": self.response.status_code or of_route or 200})

    @property
    def watched(self) -> bool:
        """Whether the response is seen by `install`."""
        return WATCHED in self.connection.scope

    def let_in(self, verdict: AsyncVerdict, routes: Requests, facts: Facts) -> None:
        """A call was let in."""
        self.exchange.add(verdict, routes.failed)
        if (noted := chain.entered(facts)) is not None:
            chain.around.set(noted)
        if not self.watched:
            for name, value in verdict.headers():
                self.response.headers.append(name, value)

    def refuse(self, verdict: AsyncVerdict, answer: Answer) -> Exception:
        """The error that refuses a call."""
        scope = self.connection.scope
        if scope["type"] == "websocket" and DENIAL not in (scope.get("extensions") or ()):
            return WebSocketException(POLICY_VIOLATION, "refused by a limit")
        return HTTPRefused(verdict, answer)


class RateLimit(Requests):
    """A dependency that lets calls in: `dependencies=[Depends(RateLimit("5/minute"))]`.

    One of these is one limit: where it stands several times, all calls count together. It gives
    the endpoint the verdict. Limits as text in a store that is shared need a `name`.
    """

    def __init__(self, *limits: str | Limit, **words: Unpack[Words]) -> None:
        if limits and words.get("store") is not None and "name" not in words:
            raise TypeError("in a store, a limit needs a name of its own: RateLimit(..., name=)")
        super().__init__(limits, **words)

    async def __call__(self, around: Annotated[Around, Depends()]) -> AsyncVerdict:
        """The verdict on a call that may go ahead."""
        facts = self.facts(around.connection.scope)
        verdict = await self.gate.check(facts)
        if not verdict.allowed:
            raise around.refuse(verdict, self.answer(facts, verdict))
        around.let_in(verdict, self, facts)
        return verdict


def limited(*limits: str | Limit, **words: Unpack[Words]) -> Callable[[Endpoint], Endpoint]:
    """A decorator for path operations, below `@app.get(...)`; their signature stays theirs.

    Calls count that reach the function: what its dependencies or its model refuse does not.
    """

    def decorate(endpoint: Endpoint) -> Endpoint:
        if inspect.isgeneratorfunction(endpoint) or inspect.isasyncgenfunction(endpoint):
            raise TypeError(f"{endpoint.__name__} yields; limit it by the dependency, RateLimit")
        routes = routes_of(endpoint, limits, words)
        work = called(endpoint)

        @functools.wraps(endpoint)
        async def guarded(*args: Any, **kwargs: Any) -> Any:
            around: Around = kwargs.pop(HIDDEN)
            scope = around.connection.scope
            facts = routes.facts(scope)
            verdict = await routes.gate.check(facts)
            if not verdict.allowed:
                answer = routes.answer(facts, verdict)
                if scope["type"] == "http":
                    return response_of(answer)
                raise around.refuse(verdict, answer)
            around.let_in(verdict, routes, facts)
            result = await work(*args, **kwargs)
            if not around.watched:
                if isinstance(result, Response):
                    return Told(result, around.exchange, chain.around.get())
                around.exchange.saw({"status": around.response.status_code or 200})
            return result

        _hide(guarded, endpoint)
        return guarded  # type: ignore[return-value] # it takes and gives the same

    return decorate


def _hide(guarded: Any, endpoint: Callable[..., Any]) -> None:
    """Let FastAPI give `guarded` one thing more than `endpoint` takes."""
    try:
        signature = inspect.signature(endpoint, eval_str=True)
    except Exception:  # FastAPI will say what is wrong with it, or knows better
        signature = inspect.signature(endpoint)
    more = inspect.Parameter(
        HIDDEN, inspect.Parameter.KEYWORD_ONLY, annotation=Annotated[Around, Depends()]
    )
    known = [*signature.parameters.values()]
    place = len(known) - (bool(known) and known[-1].kind is inspect.Parameter.VAR_KEYWORD)
    guarded.__signature__ = signature.replace(parameters=[*known[:place], more, *known[place:]])
