"""The same application with Flask-Limiter and with its names over headgate, over real HTTP."""

from __future__ import annotations

from typing import Any

import flask
import httpx
import pytest
from compat_tools import START, serving_wsgi, stop_time
from flask_limiter_tools import OURS, THEIRS, Build, application, both, by_user, views

from headgate import ManualClock
from servers import Server

TOLD = ("X-RateLimit-Limit", "X-RateLimit-Remaining")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> ManualClock:
    clock = ManualClock(START)
    stop_time(monkeypatch, clock, "limits.storage.memory", "limits.strategies")
    stop_time(monkeypatch, clock, "flask_limiter._extension")
    return clock


def compared(
    build: Build, calls: list[Any], clock: ManualClock, headers: tuple[str, ...] = ()
) -> list[Any]:
    """The answers, which are the same with both."""
    theirs, ours = both(build, calls, clock, headers)
    assert ours == theirs
    return ours


CALLS: dict[str, list[Any]] = {
    "default": [*[("GET", "/default")] * 4, 31, ("GET", "/default"), 31, ("GET", "/default")],
    "own": [*[("GET", "/own")] * 4, 59, ("GET", "/own"), 2, *[("GET", "/own")] * 3],
    "beside": [("GET", "/beside")] * 3,
    "stacked": [("GET", "/stacked"), 2, *[("GET", "/stacked")] * 2, 2, ("GET", "/stacked")],
    "shared": [("GET", "/shared/a"), ("GET", "/shared/b")] * 3,
    "part": [("GET", "/by-host", {"x-part": part}) for part in "abab"],
    "user": [("GET", "/user", {"x-user": name}) for name in "aabab"] + [("GET", "/user")] * 3,
    "cost": [("GET", "/cost"), ("GET", "/cost", {"x-cost": "3"}), ("GET", "/cost")],
    "methods": [("POST", "/methods"), ("GET", "/methods")] * 4,
    "each": [("POST", "/each"), ("GET", "/each")] * 2,
    "when": [("GET", "/when"), ("GET", "/when", {"x-friend": "yes"}), ("GET", "/when")],
    "plan": [("GET", "/plan", {"x-user": name}) for name in ["pro", "free"] * 4],
    "scoped": [("GET", f"/scoped/{part}") for part in "abab"],
    "free": [*[("GET", "/free")] * 5, ("GET", "/nowhere"), ("GET", "/static/none")],
    "closed": [("GET", "/closed")] * 2,
    "class": [("GET", "/class")] * 3,
}


@pytest.mark.parametrize("name", [name for name in CALLS if name != "closed"])
def test_the_same_answers(name: str, clock: ManualClock) -> None:
    answers = compared(views, CALLS[name], clock, TOLD)
    assert (429 in [status for status, *_ in answers]) == (name != "free")


def test_a_limit_of_nothing(clock: ManualClock) -> None:
    assert compared(views, CALLS["closed"], clock) == [429, 429]


def test_the_whole_application(clock: ManualClock) -> None:
    def build(lib: Any, more: dict[str, Any]) -> flask.Flask:
        app, limiter = application(
            lib, more, application_limits=["4/minute"], application_limits_per_method=True,
            strategy="moving-window", key_prefix="app", default_limits=["2/minute"],
            default_limits_exempt_when=lambda: "x-friend" in flask.request.headers,
            default_limits_cost=2, headers_enabled=True,
        )  # fmt: skip

        @app.route("/a", methods=["GET", "POST"])
        def in_a() -> str:
            return "a"

        @app.route("/b")
        @limiter.limit("3/minute")
        def in_b() -> str:
            return "b"

        def in_c() -> str:
            return "c"

        exempt = limiter.exempt(flags=lib.flask_limiter.ExemptionScope.DEFAULT)
        app.add_url_rule("/c", "in_c", exempt(in_c))
        return app

    friend = {"x-friend": "yes"}
    calls = [
        ("GET", "/a"), ("GET", "/b"), ("GET", "/b"), ("GET", "/a", friend), ("GET", "/b"),
        ("POST", "/a", friend), 30, ("GET", "/c"), 31, ("GET", "/c"), ("GET", "/a"),
    ]  # fmt: skip
    answers = compared(build, calls, clock, TOLD)
    assert [status for status, *_ in answers] == [200, 200, 200, 200, 429, 200, 429, 200, 200]


def test_blueprints(clock: ManualClock) -> None:
    def build(lib: Any, more: dict[str, Any]) -> flask.Flask:
        app, limiter = application(lib, more, default_limits=["1/minute"], headers_enabled=True)
        names = ["limited", "exempt", "beside", "outer", "inner"]
        parts = {name: flask.Blueprint(name, name, url_prefix=f"/{name}") for name in names}
        for name, part in parts.items():
            part.add_url_rule("/", name, lambda: "view")

        @parts["limited"].route("/own")
        @limiter.limit("3/minute")
        def own() -> str:
            return "own"

        limiter.limit("2/minute")(parts["limited"])
        limiter.exempt(parts["exempt"])
        limiter.limit("2/minute", override_defaults=False)(parts["beside"])
        limiter.limit("2/minute")(parts["outer"])
        parts["outer"].register_blueprint(parts["inner"])
        for name in names[:4]:
            app.register_blueprint(parts[name])
        return app

    calls = [
        *[("GET", "/limited/")] * 3, *[("GET", "/limited/own")] * 4, *[("GET", "/exempt/")] * 3,
        *[("GET", "/beside/")] * 2, *[("GET", "/outer/")] * 3, *[("GET", "/outer/inner/")] * 3,
    ]  # fmt: skip
    answers = compared(build, calls, clock, TOLD)
    assert [status for status, *_ in answers] == [
        200, 200, 429, 200, 200, 200, 429, 200, 200, 200, 200, 429, 200, 200, 429, 200, 200, 429,
    ]  # fmt: skip


def test_filters_and_identities(clock: ManualClock) -> None:
    def build(lib: Any, more: dict[str, Any]) -> flask.Flask:
        app, limiter = application(
            lib, more, default_limits=["1/minute"], request_identifier=lambda: flask.request.path
        )
        limiter.request_filter(lambda: flask.request.headers.get("x-health") == "yes")
        app.add_url_rule("/<part>", "view", lambda part: part)
        return app

    health = {"x-health": "yes"}
    calls = [("GET", "/a"), ("GET", "/b"), ("GET", "/a"), ("GET", "/a", health), ("GET", "/b")]
    assert compared(build, calls, clock) == [200, 200, 429, 200, 429]


def test_settings(clock: ManualClock) -> None:
    config = {
        "RATELIMIT_DEFAULT": "2/minute;3/hour", "RATELIMIT_STRATEGY": "moving-window",
        "RATELIMIT_HEADERS_ENABLED": True, "RATELIMIT_HEADER_LIMIT": "X-My-Limit",
        "RATELIMIT_HEADER_REMAINING": "X-My-Rest", "RATELIMIT_APPLICATION": "5/day",
        "RATELIMIT_KEY_PREFIX": "p",
    }  # fmt: skip

    def build(lib: Any, more: dict[str, Any]) -> flask.Flask:
        app = flask.Flask("app")
        app.config.update(config, RATELIMIT_STORAGE_URI="memory://")
        limiter = lib.flask_limiter.Limiter(lib.util.get_remote_address, **more)
        limiter.init_app(app)
        app.add_url_rule("/", "home", lambda: "home")
        return app

    calls = [*[("GET", "/")] * 3, 61, *[("GET", "/")] * 2]
    answers = compared(build, calls, clock, ("X-My-Limit", "X-My-Rest"))
    assert [status for status, *_ in answers] == [200, 200, 429, 200, 429]


def test_switched_off(clock: ManualClock) -> None:
    def build(lib: Any, more: dict[str, Any]) -> flask.Flask:
        app, limiter = application(lib, more, {"RATELIMIT_ENABLED": False})
        app.add_url_rule("/", "home", limiter.limit("1/day")(lambda: "home"))
        return app

    assert compared(build, [("GET", "/")] * 3, clock) == [200] * 3


def test_refusals_say_the_same(clock: ManualClock) -> None:
    told: list[Any] = []

    def build(lib: Any, more: dict[str, Any]) -> flask.Flask:
        def breached(found: Any) -> Any:
            told.append((str(found.limit), found.key, found.breached, found.remaining))
            return flask.make_response("breached", 418) if flask.request.path == "/on" else None

        app, limiter = application(lib, more, on_breach=breached)

        @app.route("/plain")
        @limiter.limit("0/day")
        def plain() -> str:
            return "plain"

        @app.route("/message")
        @limiter.limit("0/day", error_message=lambda: "made up")
        def message() -> str:
            return "message"

        @app.route("/on")
        @limiter.limit("0/day")
        def on() -> str:
            return "on"

        @app.errorhandler(429)
        def handled(error: Any) -> Any:
            return {"said": error.description, "by": type(error).__name__}, 429

        return app

    said = []
    for lib, more in ((THEIRS, {}), (OURS, {"storage_options": {"clock": clock}})):
        with serving_wsgi(build(lib, more)) as url:
            answers = [httpx.get(url + path) for path in ("/plain", "/message", "/on")]
            said.append([(answer.status_code, answer.text) for answer in answers])
    assert said[0] == said[1]
    assert told[:3] == told[3:]
    assert said[1][0][0] == httpx.codes.TOO_MANY_REQUESTS
    assert "0 per 1 day" in said[1][0][1]


def test_only_failures_are_deducted(clock: ManualClock) -> None:
    def build(lib: Any, more: dict[str, Any]) -> flask.Flask:
        app, limiter = application(lib, more, headers_enabled=True)

        @app.route("/login")
        @limiter.limit("2/minute", deduct_when=lambda response: response.status_code != 200)
        def login() -> Any:
            return "", int(flask.request.headers["x-answer"])

        return app

    calls = [
        ("GET", "/login", {"x-answer": answer}) for answer in ("200", "401", "200", "401", "200")
    ]
    answers = compared(build, calls, clock, TOLD)
    assert answers == [
        [200, "2", "2"], [401, "2", "1"], [200, "2", "1"], [401, "2", "0"], [429, "2", "0"],
    ]  # fmt: skip


def test_what_is_known_of_the_present_request(clock: ManualClock) -> None:
    def build(lib: Any, more: dict[str, Any]) -> flask.Flask:
        app, limiter = application(lib, more)

        @app.route("/")
        @limiter.limit("5/minute;2/second")
        def home() -> Any:
            current = limiter.current_limit
            assert current is not None
            return {
                "limits": [str(one.limit) for one in limiter.current_limits],
                "current": [str(current.limit), current.remaining, current.breached],
            }

        return app

    said = []
    for lib, more in ((THEIRS, {}), (OURS, {"storage_options": {"clock": clock}})):
        with serving_wsgi(build(lib, more)) as url:
            said.append(httpx.get(url).json())
    assert said[0] == said[1]
    assert said[1]["current"] == ["2 per 1 second", 1, False]


def test_two_applications_on_one_redis() -> None:
    with Server() as server:

        def build(lib: Any) -> flask.Flask:
            place = f"{server.url}?budget=10s" if lib is OURS else server.url
            app, limiter = application(lib, {}, storage_uri=place)
            app.add_url_rule("/", "home", limiter.limit("3/hour")(lambda: "home"))
            return app

        said = []
        for lib in (THEIRS, OURS):
            with serving_wsgi(build(lib)) as one, serving_wsgi(build(lib)) as other:
                said.append([httpx.get(url).status_code for url in (one, other, one, other)])
        assert said == [[200, 200, 200, 429]] * 2


def test_limits_as_objects(clock: ManualClock) -> None:
    def build(lib: Any, more: dict[str, Any]) -> flask.Flask:
        names = lib.flask_limiter
        app, limiter = application(
            lib, more, default_limits=[names.Limit("2/minute", key_function=by_user)],
            application_limits=[names.ApplicationLimit("5/minute", scope="all")],
        )  # fmt: skip
        app.add_url_rule("/", "home", lambda: "home")
        own = names.RouteLimit("1/minute", limiter=limiter, override_defaults=True)
        app.add_url_rule("/own", "own", own(lambda: "own"))
        return app

    users = [("GET", "/", {"x-user": name}) for name in "aab"]
    calls = [*users, ("GET", "/own"), ("GET", "/own"), ("GET", "/", {"x-user": "c"})]
    assert compared(build, calls, clock) == [200, 200, 200, 200, 429, 429]


def test_reset(clock: ManualClock) -> None:
    app, limiter = application(OURS, {"storage_options": {"clock": clock}})
    app.add_url_rule("/", "home", limiter.limit("1/day")(lambda: "home"))
    client = app.test_client()
    assert [client.get("/").status_code for _ in range(2)] == [200, 429]
    limiter.reset()
    assert client.get("/").status_code == 200
