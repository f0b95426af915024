"""The WSGI middleware, in front of plain applications, under three real servers."""

from __future__ import annotations

import io
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server
from wsgiref.util import FileWrapper
from wsgiref.validate import validator

import pytest
import wsgi_tools
from wsgi_tools import Battery, Client, Stage, rules, serving

from headgate import AsyncGate, Gate, ManualClock
from headgate.integrations.common import Find
from headgate.integrations.environs import EnvironFacts, EnvironHeaders
from headgate.integrations.wsgi import RateLimitMiddleware
from servers import free_port, until


def application(stage: Stage) -> Any:
    """A plain application."""

    def app(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        path = environ["PATH_INFO"].rstrip("/") or "/"
        stage.calls.append(path)
        if path == "/boom":
            raise RuntimeError("boom")
        right = path != "/login" or environ.get("HTTP_X_PASSWORD") == "right"
        start("200 OK" if right else "401 Unauthorized", [("Content-Type", "text/plain")])
        if path == "/stream":
            return stage.blocks()
        if path == "/endless":
            return stage.endless()
        if path == "/file":
            return environ.get("wsgi.file_wrapper", FileWrapper)(open(wsgi_tools.__file__, "rb"))  # type: ignore[no-any-return] # of the server
        return [b"hello"]

    return app


class TestWSGI(Battery):
    def serve(self, *limits: str, **words: Any) -> Client:
        app = RateLimitMiddleware(application(self.stage), *limits, **words)
        client = self.stack.enter_context(serving(app))
        client.gate = app.gate
        return client

    @staticmethod
    def user(request: Any) -> Any:
        return request.get("HTTP_X_USER")


# -- without a server: what a server would see


def called(app: Any, **environ: Any) -> tuple[list[Any], Any]:
    """What an application says to `start_response`, and the body as it is."""
    started: list[Any] = []

    def start(status: str, headers: list[tuple[str, str]], *error: Any) -> Callable[[bytes], None]:
        started.append((status, headers, *error))
        return lambda data: None

    base = {"REQUEST_METHOD": "GET", "PATH_INFO": "/", "REMOTE_ADDR": "192.0.2.7"}
    return started, app({**base, **environ}, start)


def answering(body: Any, *more: Any) -> Any:
    """An application with these bodies, the last of them again and again."""
    bodies = [body, *more]

    def app(environ: dict[str, Any], start: Callable[..., Any]) -> Any:
        start("200 OK", [("Content-Type", "text/plain")])
        return bodies.pop(0) if len(bodies) > 1 else bodies[0]

    return app


def test_five_lines() -> None:
    app = RateLimitMiddleware(answering([b"hello"]), "1/minute")
    assert called(app)[0][0][0] == "200 OK"
    assert called(app)[0][0][0] == "429 Too Many Requests"


def test_a_body_that_holds_nothing_is_handed_on_as_it_is() -> None:
    body = [b"hello"]
    app = RateLimitMiddleware(answering(body), "5/minute")
    assert called(app)[1] is body


def test_the_length_of_a_list_and_an_error_on_the_way() -> None:
    gate = Gate(rules({"limit": "1 concurrent"}))

    def failing() -> Iterator[bytes]:
        yield b"one"
        raise RuntimeError("on the way")

    app = RateLimitMiddleware(answering([b"a", b"b"], failing(), [b"end"]), gate=gate)
    _, body = called(app)
    assert len(body) == 2
    assert called(app)[0][0][0].startswith("429")
    assert list(body) == [b"a", b"b"]
    assert called(app)[0][0][0].startswith("429")  # read, but not closed
    body.close()
    body.close()
    _, body = called(app)
    with pytest.raises(RuntimeError, match="on the way"):
        list(body)
    body.close()
    assert called(app)[0][0][0] == "200 OK"


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, SystemExit])
def test_an_application_that_raises_holds_nothing(error: type[BaseException]) -> None:
    def wrong(environ: dict[str, Any], start: Callable[..., Any]) -> list[bytes]:
        raise error

    app = RateLimitMiddleware(wrong, "1 concurrent")
    for _ in range(2):
        with pytest.raises(error):
            called(app)


def test_a_body_is_closed_once_and_a_second_start_counts() -> None:
    class Own:
        closed = 0

        def __iter__(self) -> Iterator[bytes]:
            return iter([b"sorry"])

        def close(self) -> None:
            self.closed += 1

    own = Own()

    def app(environ: dict[str, Any], start: Callable[..., Any]) -> Own:
        start("200 OK", [])
        try:
            raise RuntimeError("late")
        except RuntimeError:
            start("500 Sorry", [], sys.exc_info())
        return own

    gate = Gate(rules({"limit": "1/minute", "count": "failures"}), clock=ManualClock(1e6))
    limited = RateLimitMiddleware(app, gate=gate)
    started, body = called(limited)
    assert [status for status, *_ in started] == ["200 OK", "500 Sorry"]
    assert started[1][2][0] is RuntimeError
    assert list(body) == [b"sorry"]
    body.close()
    assert own.closed == 1
    assert called(limited)[0][0][0].startswith("429")  # it was a failure in the end


def test_a_file_stays_what_the_server_made_of_it() -> None:
    class Slots(FileWrapper):
        """One that takes no attributes, as those made in C."""

        __slots__ = ()

        def __setattr__(self, name: str, value: object) -> None:
            if name == "close" and "close" in vars(self):
                raise AttributeError(name)
            super().__setattr__(name, value)

    for kind, kept in ((FileWrapper, True), (Slots, False)):
        file = io.BytesIO(b"content")
        app = RateLimitMiddleware(answering(kind(file)), "1 concurrent")
        _, body = called(app, **{"wsgi.file_wrapper": kind})
        assert isinstance(body, kind) is kept
        assert called(app)[0][0][0].startswith("429")
        assert list(body) == [b"content"]
        body.close()
        assert file.closed
        assert app.gate.check(facts_of()).allowed


def facts_of(**environ: Any) -> EnvironFacts:
    base = {"REQUEST_METHOD": "GET", "PATH_INFO": "/", "REMOTE_ADDR": "192.0.2.7"}
    return EnvironFacts({**base, **environ}, None, Find(), None)


def test_facts_of_an_environ() -> None:
    facts = facts_of(
        REQUEST_METHOD="put", SCRIPT_NAME="/shop", PATH_INFO="/caf\xc3\xa9//x/../y", REMOTE_ADDR="",
        HTTP_HOST="[::1]:80", HTTP_X_TENANT="a", CONTENT_TYPE="text/plain", CONTENT_LENGTH="12",
    )  # fmt: skip
    assert (facts.method, facts.path, facts.ip) == ("PUT", "/shop/café/y", "unix")
    assert (facts.host, facts.size, facts.user, facts.args) == ("[::1]", 12, "", {})
    assert dict(facts.headers) == {
        "host": "[::1]:80", "x-tenant": "a", "content-type": "text/plain", "content-length": "12",
    }  # fmt: skip
    assert len(facts.headers) == 4
    assert facts_of(CONTENT_LENGTH="").size == facts_of(CONTENT_LENGTH="-1").size == 0
    assert facts_of(SERVER_NAME="Shop").host == "shop"
    assert facts_of(PATH_INFO="/\xff\u20ac").path == "/%FF?"
    assert EnvironHeaders({}).get("x") is None
    with pytest.raises(AttributeError, match="has no 'nothing'"):
        facts.nothing  # noqa: B018 # reading it is the test


def test_who_calls_is_asked_only_if_a_rule_wants_it() -> None:
    asked: list[str] = []

    def user(environ: dict[str, Any]) -> str:
        asked.append(environ["PATH_INFO"])
        return "ann"

    said = rules(
        {"limit": "9/minute"}, {"match": {"path": "/mine"}, "key": ["user"], "limit": "1/minute"}
    )
    app = RateLimitMiddleware(answering([]), rules=said, user=user)
    for path in ("/", "/mine"):
        called(app, PATH_INFO=path)
    assert asked == ["/mine"]


def test_what_cannot_be_is_said() -> None:
    app = application(Stage())
    with pytest.raises(TypeError, match="one of the three"):
        RateLimitMiddleware(app)
    with pytest.raises(TypeError, match="not a AsyncGate"):
        RateLimitMiddleware(app, gate=AsyncGate(rules({"limit": "1/minute"})))
    with pytest.raises(ValueError, match="a key is made of"):
        RateLimitMiddleware(app, "1/minute", key="shoe-size")


# -- other servers


class _Quiet(WSGIRequestHandler):
    def log_message(self, *args: Any) -> None:  # nobody reads it
        pass


def test_under_wsgiref_by_the_letter_of_the_standard() -> None:
    app = validator(
        RateLimitMiddleware(validator(answering([b"hello"])), "2 concurrent", "2/minute")
    )
    with make_server("127.0.0.1", 0, app, WSGIServer, _Quiet) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        client = Client(server.server_port)
        replies = [client.ask() for _ in range(3)]
        server.shutdown()
        thread.join(60)
    assert [reply.status for reply in replies] == [200, 200, 429]
    assert replies[0].body == b"hello"


GUNICORN = """
import json
from headgate.integrations.wsgi import RateLimitMiddleware

def app(environ, start):
    start("200 OK", [("Content-Type", "text/plain")])
    if environ["PATH_INFO"] == "/file":
        return environ["wsgi.file_wrapper"](open(__file__, "rb"))
    return [json.dumps(kept).encode()]

kept = []
limited = RateLimitMiddleware(app, "1 concurrent", "4/hour")

def application(environ, start):
    body = limited(environ, start)
    kept.append(isinstance(body, environ["wsgi.file_wrapper"]))
    return body
"""


def test_under_gunicorn(tmp_path: Any) -> None:
    (tmp_path / "shop.py").write_text(GUNICORN)
    port = free_port()
    command = [
        sys.executable,
        "-m",
        "gunicorn",
        "--threads",
        "2",
        "--bind",
        f"127.0.0.1:{port}",
        "shop",
    ]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=tmp_path, stdout=log, stderr=log)
    try:
        client = Client(port)
        file = until(lambda: client.ask("/file"), 60)
        assert (file.status, file.body) == (200, GUNICORN.encode())
        kept = until(lambda: (reply := client.ask()).status == 200 and reply.json())
        assert kept[0] is True
        for _ in range(9):
            last = client.ask(X_Forwarded_For="192.0.2.1")
        assert last.status == 429
        assert last.json()["violated-policies"] == ["default#1"]
    finally:
        process.terminate()
        process.wait(60)
