"""The same application with slowapi and with its names over headgate, over real HTTP."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from compat_tools import START, asked, serving_asgi, stop_time
from fastapi import FastAPI, Response
from slowapi_tools import OURS, THEIRS, TOLD, application, by_user, routes
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, StreamingResponse

from headgate import ManualClock
from servers import Server


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> ManualClock:
    clock = ManualClock(START)
    stop_time(monkeypatch, clock, "limits.storage.memory", "limits.strategies", "slowapi.extension")
    return clock


def compared(
    build: Callable[[Any, dict[str, Any]], FastAPI],
    calls: list[Any],
    clock: ManualClock,
    headers: tuple[str, ...] = (),
) -> list[Any]:
    """The answers, which are the same with both."""
    with serving_asgi(build(THEIRS, {})) as url:
        theirs = asked(url, calls, clock, headers)
    with serving_asgi(build(OURS, {"storage_options": {"clock": clock}})) as url:
        ours = asked(url, calls, clock, headers)
    assert ours == theirs
    return ours


CALLS: dict[str, list[Any]] = {
    "async": [*[("GET", "/async")] * 5, 59, ("GET", "/async"), 2, *[("GET", "/async")] * 4],
    "sync": [*[("GET", "/sync")] * 3, 31, *[("GET", "/sync")] * 3],
    "data": [*[("GET", "/data/1")] * 3, *[("GET", "/data/2")] * 3],
    "stacked": [("GET", "/stacked"), 2, *[("GET", "/stacked")] * 3, 61, ("GET", "/stacked")],
    "text": [("GET", "/text"), 2, *[("GET", "/text")] * 3, 61, ("GET", "/text")],
    "shared": [("GET", "/shared/a"), ("GET", "/shared/b")] * 3,
    "user": [("GET", "/user", {"x-user": name}) for name in "aabab"] + [("GET", "/user")] * 3,
    "cost": [("GET", "/cost"), ("GET", "/cost", {"x-cost": "3"}), ("GET", "/cost")],
    "methods": [("POST", "/methods"), ("GET", "/methods")] * 3,
    "each": [("POST", "/each"), ("GET", "/each")] * 2,
    "when": [("GET", "/when"), ("GET", "/when", {"x-friend": "yes"}), ("GET", "/when")],
    "never": [("GET", "/never")] * 3,
    "plan": [("GET", "/plan", {"x-user": name}) for name in ["pro", "free"] * 4],
}


@pytest.mark.parametrize("name", CALLS)
def test_the_same_answers(name: str, clock: ManualClock) -> None:
    twice = name == "stacked"  # slowapi then writes each header twice
    answers = compared(routes, CALLS[name], clock, () if twice else TOLD)
    refused = [answer for answer in answers if 429 in ([answer] if twice else answer)]
    assert bool(refused) == (name != "never")


def test_a_limit_of_nothing(clock: ManualClock) -> None:
    assert compared(routes, [("GET", "/closed")] * 2, clock) == [429, 429]


def defaults(lib: Any, options: dict[str, Any], middleware: str) -> FastAPI:
    app, limiter = application(
        lib, middleware, default_limits=["2/minute"], headers_enabled=True, **options
    )

    @app.get("/default/{place}")
    async def default(place: int) -> Any:
        return {"place": place}

    @app.get("/own")
    @limiter.limit("1/minute")
    async def own(request: Request) -> Any:
        return PlainTextResponse("own")

    @app.get("/both")
    @limiter.limit("3/minute", override_defaults=False)
    async def both(request: Request) -> Any:
        return PlainTextResponse("both")

    @app.get("/free")
    @limiter.exempt
    async def free() -> Any:
        return PlainTextResponse("free")

    @app.get("/stream")
    async def stream() -> Any:
        return StreamingResponse(iter(["a", "b", "c"]))

    return app


@pytest.mark.parametrize("middleware", ["SlowAPIMiddleware", "SlowAPIASGIMiddleware"])
def test_defaults(middleware: str, clock: ManualClock) -> None:
    calls = [
        *[("GET", "/default/1")] * 3, ("GET", "/default/2"), *[("GET", "/own")] * 2,
        *[("GET", "/both")] * 3, *[("GET", "/free")] * 3, ("GET", "/nowhere"), 61,
        ("GET", "/default/1"),
    ]  # fmt: skip
    answers = compared(lambda lib, more: defaults(lib, more, middleware), calls, clock, TOLD)
    assert [status for status, *_ in answers] == [
        200, 200, 429, 200, 200, 429, 200, 200, 429, 200, 200, 200, 404, 200,
    ]  # fmt: skip


def test_streams_are_not_held_up(clock: ManualClock) -> None:
    app = defaults(OURS, {"storage_options": {"clock": clock}}, "SlowAPIMiddleware")
    with serving_asgi(app) as url:
        answers = [httpx.get(f"{url}/stream") for _ in range(3)]
    assert [(answer.status_code, answer.text) for answer in answers[:2]] == [(200, "abc")] * 2
    assert answers[0].headers["x-ratelimit-remaining"] == "1"
    assert answers[2].status_code == 429


def everywhere(lib: Any, options: dict[str, Any]) -> FastAPI:
    app, limiter = application(
        lib, "SlowAPIMiddleware", application_limits=["3/minute"], key_prefix="app",
        key_style="endpoint", strategy="moving-window", **options,
    )  # fmt: skip

    @app.get("/a/{place}")
    async def in_a(place: int) -> Any:
        return {}

    @app.get("/b")
    async def in_b() -> Any:
        return {}

    @app.get("/c/{place}")
    @limiter.limit("2/minute")
    async def in_c(place: int, request: Request) -> Any:
        return {}

    return app


def test_limits_of_the_whole_application(clock: ManualClock) -> None:
    calls = [
        ("GET", "/a/1"), ("GET", "/a/2"), ("GET", "/b"), ("GET", "/b"), ("GET", "/a/1"),
        ("GET", "/c/1"), ("GET", "/c/2"), ("GET", "/c/3"), 30, ("GET", "/b"), 30.5, ("GET", "/b"),
    ]  # fmt: skip
    assert compared(everywhere, calls, clock) == [200, 200, 200, 429, 429, 200, 200, 429, 429, 200]


def test_refusals_say_the_same(clock: ManualClock) -> None:
    def build(lib: Any, options: dict[str, Any]) -> FastAPI:
        app, limiter = application(lib, **options)

        @app.get("/plain")
        @limiter.limit("0/day")
        async def plain(request: Request) -> Any:
            return {}

        @app.get("/message")
        @limiter.limit("0/day", error_message="slow down")
        async def message(request: Request) -> Any:
            return {}

        @app.get("/made")
        @limiter.limit("0/day", error_message=lambda: "made up")
        async def made(request: Request) -> Any:
            return {}

        return app

    said = []
    for lib, options in ((THEIRS, {}), (OURS, {"storage_options": {"clock": clock}})):
        with serving_asgi(build(lib, options)) as url:
            said.append([httpx.get(url + path).json() for path in ("/plain", "/message", "/made")])
    assert said[0] == said[1]
    assert said[1][0] == {"error": "Rate limit exceeded: 0 per 1 day"}


def test_a_handler_of_ones_own(clock: ManualClock) -> None:
    def build(lib: Any, options: dict[str, Any]) -> FastAPI:
        app, limiter = application(
            lib, "SlowAPIASGIMiddleware", default_limits=["1/day"], headers_enabled=True, **options
        )

        async def own(request: Request, error: Any) -> Response:
            response = JSONResponse({"by": str(error.limit.limit)}, status_code=503)
            found: Response = limiter._inject_headers(response, request.state.view_rate_limit)
            return found

        app.add_exception_handler(lib.errors.RateLimitExceeded, own)

        @app.get("/default")
        async def default() -> Any:
            return {}

        @app.get("/own")
        @limiter.limit("1/hour")
        async def limited(request: Request) -> Any:
            return PlainTextResponse("own")

        return app

    calls = [("GET", "/own"), ("GET", "/own"), ("GET", "/default"), ("GET", "/default")]
    with serving_asgi(build(OURS, {"storage_options": {"clock": clock}})) as url:
        ours = asked(url, calls, clock, (*TOLD, "Retry-After"))
    with serving_asgi(build(THEIRS, {})) as url:
        theirs = asked(url, calls[:2], clock, TOLD)
    assert [answer[:3] for answer in ours[:2]] == theirs
    assert ours == [
        [200, "1", "0", None], [503, "1", "0", "3600"],
        [200, "1", "0", None], [503, "1", "0", "86400"],
    ]  # fmt: skip


def test_switched_off(clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = [("GET", "/async")] * 5
    given = {"enabled": False}
    assert compared(lambda lib, more: routes(lib, {**more, **given}), calls, clock) == [200] * 5
    monkeypatch.setenv("RATELIMIT_ENABLED", "false")
    assert compared(routes, calls, clock) == [200] * 5


def test_settings_from_the_environment(clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RATELIMIT_DEFAULT", "1/minute")
    monkeypatch.setenv("RATELIMIT_STRATEGY", "moving-window")

    def build(lib: Any, options: dict[str, Any]) -> FastAPI:
        app, _ = application(lib, "SlowAPIMiddleware", **options)

        @app.get("/")
        async def home() -> Any:
            return {}

        return app

    calls = [("GET", "/"), ("GET", "/"), 61, ("GET", "/")]
    assert compared(build, calls, clock) == [200, 429, 200]


def test_two_applications_on_one_redis() -> None:
    with Server() as server:

        def build(lib: Any) -> FastAPI:
            place = f"{server.url}?budget=10s" if lib is OURS else server.url
            app, limiter = application(lib, storage_uri=place)

            @app.get("/async")
            @limiter.limit("3/hour")
            async def in_task(request: Request) -> Any:
                return {}

            @app.get("/sync")
            @limiter.limit("3/hour")
            def in_thread(request: Request) -> Any:
                return {}

            return app

        said = []
        for lib in (THEIRS, OURS):
            with serving_asgi(build(lib)) as one, serving_asgi(build(lib)) as other:
                said.append(
                    [
                        httpx.get(url + path).status_code
                        for path in ("/async", "/sync")
                        for url in (one, other, one, other)
                    ]
                )
        assert said == [[200, 200, 200, 429] * 2] * 2


def test_a_key_function_that_fails(clock: ManualClock) -> None:
    def nobody(request: Request) -> str:
        raise LookupError

    def build(lib: Any, options: dict[str, Any]) -> FastAPI:
        app, limiter = application(lib, key_func=nobody, **options)

        @app.get("/")
        @limiter.limit("1/hour")
        async def home(request: Request) -> Any:
            return {}

        return app

    calls: list[Any] = [("GET", "/")] * 2
    assert compared(build, calls, clock) == [500, 500]
    with serving_asgi(build(OURS, {"swallow_errors": True})) as url:
        assert asked(url, calls, clock) == [200, 200]


def test_reset(clock: ManualClock) -> None:
    limiter = OURS.slowapi.Limiter(key_func=by_user, storage_options={"clock": clock})
    item = importlib.import_module("headgate.compat.limits").parse("1/day")
    assert [limiter.limiter.hit(item, "a") for _ in range(2)] == [True, False]
    limiter.reset()
    assert limiter.limiter.hit(item, "a")
