"""The same application with Flask-Limiter and with its names over headgate, over real HTTP."""

from __future__ import annotations

import importlib
import threading
import warnings
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import flask
import httpx
import pytest
from compat_tools import START, asked, serving_wsgi, stop_time
from flask.views import MethodView

from headgate import ManualClock
from headgate.compat import NotOffered
from headgate.compat.flask_limiter import Limiter
from headgate.compat.limits.errors import ConfigurationError
from servers import Server, free_port

TOLD = ("X-RateLimit-Limit", "X-RateLimit-Remaining")


def library(prefix: str) -> SimpleNamespace:
    """Flask-Limiter, or what stands for it."""
    whole = importlib.import_module(f"{prefix}flask_limiter")
    util = importlib.import_module(f"{prefix}flask_limiter.util")
    return SimpleNamespace(flask_limiter=whole, util=util)


THEIRS, OURS = library(""), library("headgate.compat.")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> ManualClock:
    clock = ManualClock(START)
    stop_time(monkeypatch, clock, "limits.storage.memory", "limits.strategies")
    stop_time(monkeypatch, clock, "flask_limiter._extension")
    return clock


def application(
    lib: Any, more: dict[str, Any], config: dict[str, Any] | None = None, **options: Any
) -> tuple[flask.Flask, Limiter]:
    """An application and its limiter."""
    app = flask.Flask("app")
    app.config.update(config or {})
    options.setdefault("storage_uri", "memory://")
    key = options.pop("key_func", lib.util.get_remote_address)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        limiter: Limiter = lib.flask_limiter.Limiter(key, app=app, **options, **more)
    app.extensions["kept"] = limiter  # a module would keep it; the original's views do not
    return app, limiter


Build = Callable[[Any, dict[str, Any]], flask.Flask]


def both(
    build: Build, calls: list[Any], clock: ManualClock, headers: tuple[str, ...] = ()
) -> list[list[Any]]:
    """The answers of the original, and of ours."""
    answers = []
    for lib, more in ((THEIRS, {}), (OURS, {"storage_options": {"clock": clock}})):
        with serving_wsgi(build(lib, more)) as url:
            answers.append(asked(url, calls, clock, headers))
    return answers


def compared(
    build: Build, calls: list[Any], clock: ManualClock, headers: tuple[str, ...] = ()
) -> list[Any]:
    """The answers, which are the same with both."""
    theirs, ours = both(build, calls, clock, headers)
    assert ours == theirs
    return ours


def by_user() -> str:
    return flask.request.headers.get("x-user", "")


def views(lib: Any, more: dict[str, Any]) -> flask.Flask:
    app, limiter = application(
        lib, more, default_limits=["4/minute", "3 per 30 seconds"], headers_enabled=True
    )

    @app.route("/default")
    def default() -> str:
        return "default"

    @app.route("/own")
    @limiter.limit("2/minute")
    def own() -> str:
        return "own"

    @app.route("/beside")
    @limiter.limit("2/minute", override_defaults=False)
    def beside() -> str:
        return "beside"

    @app.route("/stacked")
    @limiter.limit("2/second")
    @limiter.limit("3/minute")
    def stacked() -> str:
        return "stacked"

    @app.route("/shared/a")
    @limiter.shared_limit("3/minute", scope="both")
    def shared_a() -> str:
        return "a"

    @app.route("/shared/b")
    @limiter.shared_limit("3/minute", "both")
    def shared_b() -> str:
        return "b"

    @app.route("/by-host")
    @limiter.shared_limit("1/minute", scope=lambda name: flask.request.headers.get("x-part", name))
    def by_part() -> str:
        return "part"

    @app.route("/user")
    @limiter.limit("2/minute", key_func=by_user)
    def user() -> str:
        return "user"

    @app.route("/cost")
    @limiter.limit("5/minute", cost=lambda: int(flask.request.headers.get("x-cost", "2")))
    def cost() -> str:
        return "cost"

    @app.route("/methods", methods=["GET", "POST"])
    @limiter.limit("1/minute", methods=["POST"])
    def methods() -> str:
        return "methods"

    @app.route("/each", methods=["GET", "POST"])
    @limiter.limit("1/minute", per_method=True)
    def each() -> str:
        return "each"

    @app.route("/when")
    @limiter.limit("1/minute", exempt_when=lambda: "x-friend" in flask.request.headers)
    def when() -> str:
        return "when"

    @app.route("/plan")
    @limiter.limit(lambda: "3/minute" if by_user() == "pro" else "1/minute", key_func=by_user)
    def plan() -> str:
        return "plan"

    @app.route("/scoped/<part>")
    @limiter.limit("1/minute", scope=lambda _: flask.request.path)
    def scoped(part: str) -> str:
        return part

    @app.route("/free")
    @limiter.exempt
    def free() -> str:
        return "free"

    @app.route("/closed")
    @limiter.limit("0/minute", error_message="shut")
    def closed() -> str:
        return "closed"

    class Things(MethodView):
        decorators = [limiter.limit("2/minute")]  # noqa: RUF012 # as Flask has it

        def get(self) -> str:
            return "things"

    app.add_url_rule("/class", view_func=Things.as_view("things"))
    return app


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


# -- what differs, each for a reason that the page gives


def test_differs_a_refusal_by_one_limit_takes_nothing_of_the_other(clock: ManualClock) -> None:
    def build(lib: Any, more: dict[str, Any]) -> flask.Flask:
        app, limiter = application(lib, more)
        app.add_url_rule("/", "home", limiter.limit("3/second;5/minute")(lambda: "home"))
        return app

    calls = [*[("GET", "/")] * 5, 2, *[("GET", "/")] * 3, 2, *[("GET", "/")] * 3]
    theirs, ours = both(build, calls, clock)
    assert theirs == ours == [200] * 3 + [429] * 2 + [200] * 2 + [429] * 4

    def reverse(lib: Any, more: dict[str, Any]) -> flask.Flask:
        app, limiter = application(lib, more)
        limit = limiter.limit("1/minute", key_func=by_user)
        shared = limiter.limit("2/second", key_func=lambda: "all")
        app.add_url_rule("/", "home", shared(limit(lambda: "home")))
        return app

    # The longer limit refuses ann, and Flask-Limiter has taken from the shorter one by then.
    users = [("GET", "/", {"x-user": name}) for name in ("ann", "ann", "bob")]
    theirs, ours = both(reverse, users, clock)
    assert theirs == [200, 429, 429]
    assert ours == [200, 429, 200]


def test_differs_headers(clock: ManualClock) -> None:
    clock.advance(0.75)  # to a whole second
    now = int(clock.now())
    calls = [*[("GET", "/own")] * 3]
    theirs, ours = both(views, calls, clock, ("X-RateLimit-Reset", "Retry-After"))
    assert theirs[0] == [200, str(now + 61), "61"]
    assert theirs[2] == [429, str(now + 61), "61"]
    assert ours[0] == [200, str(now + 60), None]
    assert ours[2] == [429, str(now + 60), "60"]


def test_differs_guesses_at_the_same_time_do_not_all_pass(clock: ManualClock) -> None:
    """What may have to be deducted is taken first, and given back if it need not be."""
    arrived = threading.Semaphore(0)
    go_on = threading.Event()

    def build(lib: Any, more: dict[str, Any]) -> flask.Flask:
        app, limiter = application(lib, more)

        @app.route("/login")
        @limiter.limit("2/minute", deduct_when=lambda response: response.status_code != 200)
        def login() -> Any:
            arrived.release()
            go_on.wait(10)
            return "no", 401

        return app

    passed = []
    for lib, more, expected in (
        (THEIRS, {}, 5), (OURS, {"storage_options": {"clock": clock}}, 2),
    ):  # fmt: skip
        go_on.clear()
        answers: list[int] = []
        with serving_wsgi(build(lib, more)) as url:
            threads = [
                threading.Thread(
                    target=lambda url=url, answers=answers: answers.append(
                        httpx.get(f"{url}/login", timeout=20).status_code
                    )
                )
                for _ in range(5)
            ]
            for thread in threads:
                thread.start()
            for _ in range(expected):
                assert arrived.acquire(timeout=10)
            go_on.set()
            for thread in threads:
                thread.join()
        passed.append(answers.count(401))
    assert passed == [5, 2]


def test_nothing_is_deducted_without_a_response(clock: ManualClock) -> None:
    app, limiter = application(OURS, {"storage_options": {"clock": clock}}, {"TESTING": True})

    @app.route("/")
    @limiter.limit("1/minute", deduct_when=lambda response: response.status_code != 200)
    def home() -> Any:
        raise LookupError

    client = app.test_client()
    for _ in range(3):
        with pytest.raises(LookupError):
            client.get("/")


def test_differs_addresses() -> None:
    app = flask.Flask("app")

    def of(lib: Any, peer: str) -> str:
        with app.test_request_context("/", environ_base={"REMOTE_ADDR": peer}):
            found: str = lib.util.get_remote_address()
            return found

    assert of(THEIRS, "2001:db8::1") != of(THEIRS, "2001:db8::2")
    assert of(OURS, "2001:db8::1") == of(OURS, "2001:db8::2")
    assert of(OURS, "192.0.2.7") == of(THEIRS, "192.0.2.7")
    behind = OURS.util.behind("10.0.0.0/8")
    for peer, client in (("10.0.0.1", "192.0.2.7"), ("192.0.2.9", "192.0.2.9")):
        headers = {"X-Forwarded-For": "6.6.6.6, 192.0.2.7"}
        with app.test_request_context("/", environ_base={"REMOTE_ADDR": peer}, headers=headers):
            assert behind() == client


@pytest.mark.parametrize(
    ("options", "theirs", "ours"),
    [
        ({}, [500, 500, 500], [200, 200, 429]),
        ({"in_memory_fallback_enabled": True}, [200, 200, 429], [200, 200, 429]),
        ({"swallow_errors": True}, [200, 200, 200], [200, 200, 200]),
    ],
)
def test_differs_a_server_that_is_away(
    options: dict[str, Any], theirs: list[int], ours: list[int]
) -> None:
    for lib, expected in ((THEIRS, theirs), (OURS, ours)):
        address = f"redis://127.0.0.1:{free_port()}"
        app, limiter = application(lib, {}, storage_uri=address, **options)
        app.logger.disabled = True
        app.add_url_rule("/", "home", limiter.limit("2/hour")(lambda: "home"))
        with serving_wsgi(app) as url:
            assert asked(url, [("GET", "/")] * 3, ManualClock()) == expected


def test_differs_a_limit_on_another_function_adds_to_the_defaults(clock: ManualClock) -> None:
    def build(lib: Any, more: dict[str, Any]) -> flask.Flask:
        app, limiter = application(lib, more, default_limits=["2/minute"])

        @limiter.limit("4/minute")
        def helper() -> str:
            return "helped"

        @app.route("/")
        def home() -> Any:
            return helper()

        return app

    # Flask-Limiter learns of the helper by the first call, and leaves out the defaults then.
    theirs, ours = both(build, [("GET", "/")] * 5, clock)
    assert theirs == [200, 200, 200, 200, 429]
    assert ours == [200, 200, 429, 429, 429]


def test_differs_functions_of_one_name_are_apart(clock: ManualClock) -> None:
    def build(lib: Any, more: dict[str, Any]) -> flask.Flask:
        app, limiter = application(lib, more)
        for path, text in (("/a", "1/minute"), ("/b", "2/minute")):
            app.add_url_rule(path, path[1:], limiter.limit(text)(lambda: "view"))
        return app

    theirs, ours = both(build, [("GET", "/b")] * 3, clock)
    assert theirs == [200, 429, 429]
    assert ours == [200, 200, 429]


def test_differs_a_broken_text_is_an_error() -> None:
    _, limiter = application(THEIRS, {})
    limiter.limit("5 a day")(lambda: "home")  # logged at each call, which has no limit
    _, limiter = application(OURS, {})
    with pytest.raises(ValueError, match="5 a day"):
        limiter.limit("5 a day")


# -- what is not offered


def test_what_is_not_offered_says_what_to_use() -> None:
    def made(**options: Any) -> None:
        app = flask.Flask("app")
        app.config.update(options.pop("config", {}))
        OURS.flask_limiter.Limiter(by_user, app=app, **options)

    with pytest.raises(NotOffered, match="on_breach"):
        made(meta_limits=["1/day"])
    with pytest.raises(NotOffered, match="on_breach"):
        made(config={"RATELIMIT_META": "1/day"})
    with pytest.raises(NotOffered, match="on_breach"):
        OURS.flask_limiter.MetaLimit("1/day")
    with pytest.raises(NotOffered, match="in_memory_fallback_enabled"):
        made(in_memory_fallback=["1/day"])
    with pytest.raises(NotOffered, match="in_memory_fallback_enabled"):
        made(config={"RATELIMIT_IN_MEMORY_FALLBACK": "1/day"})
    with pytest.raises(ConfigurationError, match="moving-window"):
        made(strategy="leaky-bucket")
    with pytest.raises(TypeError, match="no argument colour"):
        made(colour="red")
    _, limiter = application(OURS, {})
    with pytest.raises(NotOffered, match=r"headgate\.Limiter"), limiter.limit("1/day"):
        pass
    with pytest.raises(NotOffered, match="on_breach"):
        limiter.limit("1/day", meta_limits=["1/day"])
    with pytest.raises(TypeError, match="colour"):
        limiter.limit("1/day", colour="red")
    with pytest.raises(NotOffered, match="each blueprint"):
        limiter.exempt(by_user, flags=OURS.flask_limiter.ExemptionScope.DESCENDENTS)
    with pytest.raises(RuntimeError, match="init_app"):
        OURS.flask_limiter.Limiter(by_user).reset()


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
