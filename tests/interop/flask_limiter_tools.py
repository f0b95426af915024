"""What the tests of the names of Flask-Limiter share: an application with either library."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import flask
from compat_tools import asked, serving_wsgi
from flask.views import MethodView

from headgate import ManualClock
from headgate.compat.flask_limiter import Limiter


def library(prefix: str) -> SimpleNamespace:
    """Flask-Limiter, or what stands for it."""
    whole = importlib.import_module(f"{prefix}flask_limiter")
    util = importlib.import_module(f"{prefix}flask_limiter.util")
    return SimpleNamespace(flask_limiter=whole, util=util)


THEIRS, OURS = library(""), library("headgate.compat.")


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
