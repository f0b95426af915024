"""What differs from slowapi, each for a reason that the page gives; what is not offered."""

from __future__ import annotations

from typing import Any

import pytest
from compat_tools import START, asked, serving_asgi, stop_time
from fastapi import FastAPI
from slowapi_tools import OURS, THEIRS, TOLD, application, by_user, routes
from starlette.requests import Request

from headgate import ManualClock
from headgate.compat import NotOffered
from headgate.compat.limits.errors import ConfigurationError
from servers import Server, free_port


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> ManualClock:
    clock = ManualClock(START)
    stop_time(monkeypatch, clock, "limits.storage.memory", "limits.strategies", "slowapi.extension")
    return clock


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
