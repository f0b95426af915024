"""The middleware that applies default limits and those of the whole application."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Any

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .errors import RateLimitExceeded
from .extension import Limiter, _rate_limit_exceeded_handler

__all__ = ["SlowAPIASGIMiddleware", "SlowAPIMiddleware"]


class SlowAPIASGIMiddleware:
    """Counts the calls of routes that have no limits of their own."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        limiter: Limiter = scope["app"].state.limiter
        view = _view_of(scope["app"].routes, scope)
        request = Request(scope, receive)
        if limiter.leaves_alone(view) or not limiter._auto_check:
            await self.app(scope, receive, send)
            return
        try:
            flow = limiter.checking(request, view, everywhere=True)
            await limiter.limiter.storage.run_async(flow)
        except RateLimitExceeded as error:
            handlers: dict[Any, Any] = scope["app"].exception_handlers
            handler = handlers.get(RateLimitExceeded, _rate_limit_exceeded_handler)
            response = handler(request, error)
            if inspect.isawaitable(response):
                response = await response
            await response(scope, receive, send)
            return

        async def told(message: Message) -> None:
            if message["type"] == "http.response.start":
                limiter.write(MutableHeaders(scope=message), request.state.view_rate_limit)
            await send(message)

        await self.app(scope, receive, told)


SlowAPIMiddleware = SlowAPIASGIMiddleware
"""The same: there is no need for two."""


def _view_of(routes: Iterable[BaseRoute], scope: Scope) -> Any:
    for route in routes:
        match, _ = route.matches(scope)
        if match == Match.FULL:
            return getattr(route, "endpoint", None)
    return None
