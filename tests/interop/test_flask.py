"""Flask's extension, in real applications over real HTTP."""

from __future__ import annotations

from typing import Any

import pytest
import wsgi_tools
from flask import Blueprint, Flask, Response, request, send_file, stream_with_context
from flask.views import View
from flask_tools import shop, statuses
from werkzeug.exceptions import HTTPException
from werkzeug.middleware.dispatcher import DispatcherMiddleware
from wsgi_tools import Battery, Client, CountingStore, Stage, rules, serving

from headgate import Gate, Limiter, LimitExceeded, Refused
from headgate.errors import RulesError
from headgate.integrations.flask import RateLimit
from servers import until


def application(limit: RateLimit, stage: Stage) -> Flask:
    """An application with the paths of the battery."""
    app = Flask("shop", static_folder=None)
    app.logger.disabled = True
    limit.init_app(app)

    @app.before_request
    def note() -> None:
        stage.calls.append(request.path)

    @app.get("/")
    @app.get("/other")
    def home() -> str:
        return "hello"

    @app.get("/boom")
    def boom() -> str:
        raise RuntimeError("boom")

    @app.route("/login", methods=["GET", "POST"])
    def login() -> Any:
        return "hello" if request.headers.get("X-Password") == "right" else ("no", 401)

    @app.get("/stream")
    def stream() -> Response:
        return Response(stream_with_context(stage.blocks()))

    @app.get("/endless")
    def endless() -> Response:
        return Response(stage.endless())

    @app.get("/file")
    def file() -> Response:
        return send_file(wsgi_tools.__file__)

    return app


class TestFlask(Battery):
    def serve(self, *limits: str, **words: Any) -> Client:
        limit = RateLimit(None, *limits, **words)
        client = self.stack.enter_context(serving(application(limit, self.stage)))
        client.gate = limit.gate
        return client

    @staticmethod
    def user(request: Any) -> Any:
        return request.headers.get("X-User")


# -- errors


def test_handlers_of_the_application_are_used() -> None:
    def answers(*kinds: Any) -> list[tuple[str, bool]]:
        app, _ = shop("1/minute")
        app.get("/")(lambda: "hello")
        for kind in kinds:
            app.register_error_handler(kind, lambda error, kind=kind: (f"for {kind}", 429))
        with serving(app) as client:
            client.ask()
            reply = client.ask()
            assert reply.status == 429
            assert reply.headers["ratelimit"].count("default") == 1
            return [(reply.body.decode(), "retry-after" in reply.headers)]

    assert answers(429) == [("for 429", True)]
    assert answers(HTTPException) == [(f"for {HTTPException}", True)]
    assert answers(LimitExceeded, 429) == [(f"for {LimitExceeded}", True)]
    assert answers(LimitExceeded, Refused) == [(f"for {Refused}", True)]


def test_a_handler_that_was_there_before_and_one_of_a_blueprint() -> None:
    app = Flask("shop", static_folder=None)
    app.register_error_handler(LimitExceeded, lambda error: ("before", 420))
    RateLimit(app, "1/minute", rules=None)
    part = Blueprint("part", "part")
    part.register_error_handler(429, lambda error: (f"part: {error.__cause__.verdict.rule}", 421))
    part.register_error_handler(Refused, lambda error: (f"part: {error.verdict.rule}", 422))
    part.get("/part")(lambda: "hello")
    app.register_blueprint(part)
    assert statuses(app, "/", "/", "/part") == [404, 420, 422]


def test_refusals_of_other_gates_have_a_status_and_those_of_limiters_are_errors() -> None:
    app, _ = shop("9/minute")
    limiter = Limiter("1/hour")

    @app.get("/limiter")
    def limiting() -> str:
        limiter.wait("", timeout=0)
        return "passed"

    @app.get("/gate")
    def gated() -> str:
        with other.enter("db"):
            return "passed"

    with Gate(rules({"limit": "1/minute", "status": 503, "key": []})) as other:
        assert statuses(app, "/gate", "/gate") == [200, 503]
    assert statuses(app, "/limiter", "/limiter") == [200, 500]


# -- applications


def test_applications_made_by_a_factory() -> None:
    limit = RateLimit("1/minute", "5/hour")

    def create(store: Any) -> Flask:
        app = Flask("shop", static_folder=None)
        app.config["HEADGATE_STORE"] = store
        limit.init_app(app)
        app.get("/")(lambda: "hello")
        return app

    store = CountingStore()
    first, second, third = create(store), create(store), create(None)
    assert statuses(first, "/") == [200]
    assert statuses(second, "/") == [429]
    assert statuses(third, "/") == [200]
    with pytest.raises(RuntimeError, match="already"):
        limit.init_app(first)


def test_applications_inside_of_each_other() -> None:
    outer, _ = shop("1 concurrent")
    inner, _ = shop("1/minute")
    inner.get("/")(lambda: "inner")

    @outer.get("/call")
    def call() -> Any:
        return Response.from_app(inner, {**request.environ, "PATH_INFO": "/"})

    outer.get("/")(lambda: "outer")
    app: Any = DispatcherMiddleware(outer, {"/in": inner})
    with serving(app) as client:
        assert client.ask("/call").body == b"inner"
        until(lambda: client.ask("/").status == 200)
        assert client.ask("/call").status == 429  # by the inner one
        until(lambda: client.ask("/").status == 200)
        assert client.ask("/in/").status == 429


def test_a_context_that_outlives_requests() -> None:
    app, _ = shop("2/minute")
    app.get("/")(lambda: "hello")
    with app.app_context():
        client = app.test_client()
        assert [client.get("/").status_code for _ in range(3)] == [200, 200, 429]
        assert client.get("/").headers["RateLimit"].count("default") == 1
    with app.test_request_context("/", environ_base={"REMOTE_ADDR": "127.0.0.1"}):
        assert app.full_dispatch_request().status_code == 429


def test_what_is_wrong_is_said() -> None:
    app, limit = shop()
    with pytest.raises(TypeError, match="a limit is missing"):
        limit.limited()
    with pytest.raises(RulesError, match=r"limited\(\).*count"):
        limit.limited("5/minute", count="successes")
    with pytest.raises(RulesError, match=r"limited\(\).*cuont"):
        limit.limited("5/minute", cuont="failures")
    with pytest.raises(RulesError, match="key"):
        limit.limited("5/minute", key="shoe-size")
    decorate: Any = limit.limited("5/minute")
    with pytest.raises(TypeError, match="for functions"):
        decorate(View)
    with pytest.raises(TypeError, match="one of the three"):
        RateLimit(Flask("other"), "5/minute", rules="rules.yaml")
    other = Flask("other")
    other.testing = True
    other.get("/")(limit.limited("5/minute")(lambda: "hello"))
    with pytest.raises(RuntimeError, match="init_app was not called"):
        other.test_client().get("/")
    assert statuses(app, "/") == [404]
