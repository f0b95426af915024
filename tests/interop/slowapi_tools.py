"""What the tests of the names of slowapi share: an application with either library."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from fastapi import FastAPI, Response
from starlette.requests import Request
from starlette.responses import PlainTextResponse

from headgate.compat.slowapi import Limiter

TOLD = ("X-RateLimit-Limit", "X-RateLimit-Remaining")


def library(prefix: str) -> SimpleNamespace:
    """slowapi, or what stands for it."""
    parts = {
        part: importlib.import_module(f"{prefix}slowapi.{part}")
        for part in ("util", "errors", "middleware")
    }
    return SimpleNamespace(slowapi=importlib.import_module(f"{prefix}slowapi"), **parts)


THEIRS, OURS = library(""), library("headgate.compat.")


def application(
    lib: Any, middleware: str = "", default_limits: Sequence[str] = (), **options: Any
) -> tuple[FastAPI, Limiter]:
    """An application and its limiter, as slowapi's own pages have it."""
    options["default_limits"] = list(default_limits)
    options.setdefault("key_func", lib.util.get_remote_address)
    limiter: Limiter = lib.slowapi.Limiter(**options)
    app = FastAPI()
    app.state.limiter = limiter
    app.add_exception_handler(
        lib.errors.RateLimitExceeded, lib.slowapi._rate_limit_exceeded_handler
    )
    if middleware:
        app.add_middleware(getattr(lib.middleware, middleware))
    return app, limiter


def by_user(request: Request) -> str:
    return request.headers.get("x-user", "")


def routes(lib: Any, options: dict[str, Any]) -> FastAPI:
    app, limiter = application(lib, headers_enabled=True, **options)

    @app.get("/async")
    @limiter.limit("3/minute")
    async def one(request: Request) -> Any:
        return PlainTextResponse("one")

    @app.get("/sync")
    @limiter.limit("2 per 30 seconds")
    def two(request: Request) -> Any:
        return PlainTextResponse("two")

    @app.get("/data/{place}")
    @limiter.limit("2/minute")
    async def data(place: int, request: Request, response: Response) -> Any:
        return {"place": place}

    @app.get("/stacked")
    @limiter.limit("2/second")
    @limiter.limit("4/minute")
    async def stacked(request: Request) -> Any:
        return PlainTextResponse("stacked")

    @app.get("/text")
    @limiter.limit("2/second;4 per minute")
    async def text(request: Request) -> Any:
        return PlainTextResponse("text")

    @app.get("/shared/a")
    @limiter.shared_limit("3/minute", scope="both")
    async def shared_a(request: Request) -> Any:
        return PlainTextResponse("a")

    @app.get("/shared/b")
    @limiter.shared_limit("3/minute", scope="both")
    async def shared_b(request: Request) -> Any:
        return PlainTextResponse("b")

    @app.get("/user")
    @limiter.limit("2/minute", key_func=by_user)
    async def user(request: Request) -> Any:
        return PlainTextResponse("user")

    @app.get("/cost")
    @limiter.limit("5/minute", cost=lambda request: int(request.headers.get("x-cost", "2")))
    async def cost(request: Request) -> Any:
        return PlainTextResponse("cost")

    @app.api_route("/methods", methods=["GET", "POST"])
    @limiter.limit("1/minute", methods=["POST"])
    async def methods(request: Request) -> Any:
        return PlainTextResponse("methods")

    @app.api_route("/each", methods=["GET", "POST"])
    @limiter.limit("1/minute", per_method=True)
    async def each(request: Request) -> Any:
        return PlainTextResponse("each")

    @app.get("/when")
    @limiter.limit("1/minute", exempt_when=lambda request: "x-friend" in request.headers)
    async def when(request: Request) -> Any:
        return PlainTextResponse("when")

    @app.get("/never")
    @limiter.limit("1/minute", exempt_when=lambda: True)
    async def never(request: Request) -> Any:
        return PlainTextResponse("never")

    @app.get("/plan")
    @limiter.limit(lambda key: "3/minute" if key == "pro" else "1/minute", key_func=by_user)
    async def plan(request: Request) -> Any:
        return PlainTextResponse("plan")

    @app.get("/closed")
    @limiter.limit("0/minute")
    async def closed(request: Request) -> Any:
        return PlainTextResponse("closed")

    return app
