"""The same application with slowapi and with its names over headgate, over real HTTP."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from compat_tools import START, asked, serving_asgi, stop_time
from fastapi import FastAPI, Response
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, StreamingResponse

from headgate import ManualClock
from headgate.compat import NotOffered
from headgate.compat.limits.errors import ConfigurationError
from headgate.compat.slowapi import Limiter
from servers import Server, free_port

TOLD = ("X-RateLimit-Limit", "X-RateLimit-Remaining")


def library(prefix: str) -> SimpleNamespace:
    """slowapi, or what stands for it."""
    parts = {
        part: importlib.import_module(f"{prefix}slowapi.{part}")
        for part in ("util", "errors", "middleware")
    }
    return SimpleNamespace(slowapi=importlib.import_module(f"{prefix}slowapi"), **parts)


THEIRS, OURS = library(""), library("headgate.compat.")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> ManualClock:
    clock = ManualClock(START)
    stop_time(monkeypatch, clock, "limits.storage.memory", "limits.strategies", "slowapi.extension")
    return clock


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


def test_differs_a_store_is_awaited(monkeypatch: pytest.MonkeyPatch) -> None:
    with Server() as server:
        place = f"{server.url}?budget=10s"
        app, limiter = application(OURS, "SlowAPIMiddleware", ["1/hour"], storage_uri=place)

        @app.get("/own")
        @limiter.limit("1/hour")
        async def own(request: Request) -> Any:
            return {}

        @app.get("/default")
        async def default() -> Any:
            return {}

        def blocks(*_: Any) -> None:
            raise AssertionError("the event loop would stand still")

        monkeypatch.setattr(limiter.limiter.storage.store, "decide", blocks)
        calls = [("GET", "/own"), ("GET", "/default")] * 2
        with serving_asgi(app) as url:
            assert asked(url, calls, ManualClock()) == [200, 200, 429, 429]


# -- what differs, each for a reason that the page gives


def test_differs_a_refusal_by_one_limit_takes_nothing_of_the_other(clock: ManualClock) -> None:
    def build(lib: Any, options: dict[str, Any]) -> FastAPI:
        app, limiter = application(lib, **options)

        @app.get("/")
        @limiter.limit("3/minute;1/second")
        async def home(request: Request) -> Any:
            return {}

        return app

    calls = [*[("GET", "/")] * 3, 2, ("GET", "/")]
    with serving_asgi(build(THEIRS, {})) as url:
        assert asked(url, calls, clock) == [200, 429, 429, 429]
    with serving_asgi(build(OURS, {"storage_options": {"clock": clock}})) as url:
        assert asked(url, calls, clock) == [200, 429, 429, 200]


def test_differs_headers_of_two_decorators(clock: ManualClock) -> None:
    calls = [("GET", "/stacked")]
    with serving_asgi(routes(THEIRS, {})) as url:
        assert asked(url, calls, clock, TOLD) == [[200, "2, 2", "1, 1"]]
    with serving_asgi(routes(OURS, {"storage_options": {"clock": clock}})) as url:
        assert asked(url, calls, clock, TOLD) == [[200, "2", "1"]]


def test_differs_headers(clock: ManualClock) -> None:
    names = ("X-RateLimit-Reset", "Retry-After")
    clock.advance(0.75)  # to a whole second
    now = int(clock.now())
    calls = [("GET", "/async")] * 4
    with serving_asgi(routes(THEIRS, {})) as url:
        answers = asked(url, calls, clock, names)
    assert answers[0] == [200, f"{now + 61}.0", "61"]
    assert answers[3] == [429, f"{now + 61}.0", "61"]
    with serving_asgi(routes(OURS, {"storage_options": {"clock": clock}})) as url:
        answers = asked(url, calls, clock, names)
    assert answers[0] == [200, f"{now + 60}", None]
    assert answers[3] == [429, f"{now + 60}", "60"]
    dated = routes(OURS, {"storage_options": {"clock": clock}, "retry_after": "http-date"})
    with serving_asgi(dated) as url:
        assert asked(url, calls, clock, ("Retry-After",))[3] == [
            429, "Tue, 14 Nov 2023 22:14:21 GMT",
        ]  # fmt: skip


def test_differs_a_broken_text_is_an_error(clock: ManualClock) -> None:
    async def view(request: Request) -> Any:
        return {}

    _, limiter = application(THEIRS)
    limiter.limit("5 a day")(view)  # logged, and the route has no limit
    _, limiter = application(OURS)
    with pytest.raises(ValueError, match="5 a day"):
        limiter.limit("5 a day")(view)


def test_differs_a_limit_by_a_function_overrides_defaults(clock: ManualClock) -> None:
    def build(lib: Any, options: dict[str, Any]) -> FastAPI:
        app, limiter = application(lib, "SlowAPIMiddleware", default_limits=["1/minute"], **options)

        @app.get("/")
        @limiter.limit(lambda: "2/minute")
        async def home(request: Request) -> Any:
            return {}

        return app

    calls = [("GET", "/")] * 3
    with serving_asgi(build(THEIRS, {})) as url:
        assert asked(url, calls, clock) == [200, 429, 429]
    with serving_asgi(build(OURS, {"storage_options": {"clock": clock}})) as url:
        assert asked(url, calls, clock) == [200, 200, 429]


def test_differs_functions_of_one_name_are_apart(clock: ManualClock) -> None:
    def build(lib: Any, options: dict[str, Any]) -> FastAPI:
        app, limiter = application(lib, **options)
        for path, text in (("/a", "1/minute"), ("/b", "2/minute")):

            @app.get(path)
            @limiter.limit(text)
            async def view(request: Request) -> Any:
                return {}

        return app

    calls = [("GET", "/b")] * 3
    with serving_asgi(build(THEIRS, {})) as url:
        assert asked(url, calls, clock) == [200, 429, 429]
    with serving_asgi(build(OURS, {"storage_options": {"clock": clock}})) as url:
        assert asked(url, calls, clock) == [200, 200, 429]


def request_from(peer: str, **headers: str) -> Request:
    pairs = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return Request({"type": "http", "client": (peer, 1), "headers": pairs})


def test_differs_addresses() -> None:
    one, other = request_from("2001:db8::1"), request_from("2001:db8::2")
    assert THEIRS.util.get_remote_address(one) != THEIRS.util.get_remote_address(other)
    assert OURS.util.get_remote_address(one) == OURS.util.get_remote_address(other)
    four = request_from("192.0.2.7", x_forwarded_for="1.2.3.4")
    for lib in (THEIRS, OURS):
        assert lib.util.get_remote_address(four) == lib.util.get_ipaddr(four) == "192.0.2.7"
    nobody = Request({"type": "http", "client": None, "headers": []})
    assert OURS.util.get_remote_address(nobody) == THEIRS.util.get_remote_address(nobody)


def test_behind_proxies() -> None:
    behind = OURS.util.behind("10.0.0.0/8")
    assert behind(request_from("10.0.0.1", x_forwarded_for="6.6.6.6, 192.0.2.7")) == "192.0.2.7"
    assert behind(request_from("192.0.2.9", x_forwarded_for="6.6.6.6")) == "192.0.2.9"


@pytest.mark.parametrize(
    ("options", "theirs", "ours"),
    [
        ({}, [500, 500, 500], [200, 200, 429]),
        ({"in_memory_fallback_enabled": True}, [200, 200, 429], [200, 200, 429]),
        # slowapi swallows the error and then misses what it did not note because of it.
        ({"swallow_errors": True}, [500, 500, 500], [200, 200, 200]),
    ],
)
def test_differs_a_server_that_is_away(
    options: dict[str, Any], theirs: list[int], ours: list[int]
) -> None:
    def build(lib: Any) -> FastAPI:
        address = f"redis://127.0.0.1:{free_port()}"
        app, limiter = application(lib, storage_uri=address, **options)

        @app.get("/")
        @limiter.limit("2/hour")
        async def home(request: Request) -> Any:
            return {}

        return app

    calls: list[Any] = [("GET", "/")] * 3
    with serving_asgi(build(THEIRS)) as url:
        assert asked(url, calls, ManualClock()) == theirs
    with serving_asgi(build(OURS)) as url:
        assert asked(url, calls, ManualClock()) == ours


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


# -- what is not offered


def test_what_is_not_offered_says_what_to_use(monkeypatch: pytest.MonkeyPatch) -> None:
    limiter = OURS.slowapi.Limiter(key_func=by_user)

    async def socket(websocket: Any) -> None: ...

    async def nothing() -> None: ...

    with pytest.raises(NotOffered, match=r"integrations\.asgi"):
        limiter.limit("1/day")(socket)
    with pytest.raises(TypeError, match="request"):
        limiter.limit("1/day")(nothing)
    with pytest.raises(NotOffered, match="scope"):
        limiter.shared_limit("1/day", scope=lambda name: name)
    with pytest.raises(NotOffered, match="in_memory_fallback_enabled"):
        OURS.slowapi.Limiter(key_func=by_user, in_memory_fallback=["1/day"])
    with pytest.raises(ConfigurationError, match="fixed-window"):
        OURS.slowapi.Limiter(key_func=by_user, strategy="token-bucket")
    with pytest.raises(ConfigurationError, match="http-date"):
        OURS.slowapi.Limiter(key_func=by_user, retry_after="soon")
    with pytest.raises(ValueError, match="key_style"):
        OURS.slowapi.Limiter(key_func=by_user, key_style="name")
    monkeypatch.setenv("RATELIMIT_STORAGE_OPTIONS", "{}")
    with pytest.raises(NotOffered, match="RATELIMIT_STORAGE_URL"):
        OURS.slowapi.Limiter(key_func=by_user)


def test_reset(clock: ManualClock) -> None:
    limiter = OURS.slowapi.Limiter(key_func=by_user, storage_options={"clock": clock})
    item = importlib.import_module("headgate.compat.limits").parse("1/day")
    assert [limiter.limiter.hit(item, "a") for _ in range(2)] == [True, False]
    limiter.reset()
    assert limiter.limiter.hit(item, "a")
