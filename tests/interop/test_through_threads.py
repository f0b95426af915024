"""`through` in WSGI, Flask, Django and gRPC, where a thread goes on to the next call."""

from __future__ import annotations

import threading
from typing import Any

import django_tools
import flask_tools
import grpc_server_tools as grpc_tools
import pytest
import wsgi_tools
from django.http import HttpResponse, StreamingHttpResponse
from django.urls import path
from flask import Flask, Response
from through_tools import ORIGIN, WIDE, asking, async_blocks, blocks, nothing, seen

from headgate import Gate
from headgate.integrations import django as django_adapter
from headgate.integrations import flask, wsgi


@pytest.fixture(autouse=True)
def gate(monkeypatch: pytest.MonkeyPatch) -> Gate:
    return asking(monkeypatch)


@pytest.mark.parametrize("limit", [WIDE, "5 concurrent"])
def test_wsgi(limit: str) -> None:
    def app(environ: Any, start: Any) -> Any:
        start("200 OK", [])
        if environ["PATH_INFO"] == "/raise":
            raise ZeroDivisionError
        return blocks() if environ["PATH_INFO"] == "/stream" else [seen().encode()]

    guarded = wsgi.RateLimitMiddleware(app, limit, **ORIGIN)
    with wsgi_tools.serving(guarded) as client:
        for way in ("/a", "/stream", "/b"):
            assert client.ask(way).body == f"{way} (batch)".encode()
    environ = {"REQUEST_METHOD": "GET", "PATH_INFO": "/stream", "REMOTE_ADDR": "192.0.2.1"}
    body: Any = guarded(environ, lambda *_: None)  # type: ignore[arg-type] # nobody writes
    assert nothing()  # the thread may go on to something else
    found = []
    for block in body:
        assert nothing()
        found.append(block)
    body.close()
    assert found == [b"", b"/stream (batch)"]
    with pytest.raises(ZeroDivisionError):
        guarded({**environ, "PATH_INFO": "/raise"}, lambda *_: None)  # type: ignore[arg-type] # nobody writes
    assert nothing()


def test_flask() -> None:
    app, _ = flask_tools.shop(WIDE, **ORIGIN)
    threads: set[int] = set()

    @app.get("/one/<number>")
    def one(number: str) -> str:
        threads.add(threading.get_ident())
        return seen()

    @app.get("/stream/<number>")
    def stream(number: str) -> Response:
        return Response(blocks())

    @app.get("/raise")
    def wrong() -> str:
        raise ZeroDivisionError

    with wsgi_tools.serving(app) as client:
        assert client.ask("/one/7").body == b"/one/<number> (batch)"
        assert client.ask("/stream/7").body == b"/stream/<number> (batch)"
    client_ = app.test_client()  # calls in this thread
    for _ in range(2):
        assert client_.get("/one/7").data == b"/one/<number> (batch)"
        assert client_.get("/stream/7").data == b"/stream/<number> (batch)"
        assert client_.get("/raise").status_code == 500
        assert nothing()
    assert threading.get_ident() in threads
    with app.test_request_context("/one/7"):  # by hand, and without an end
        app.preprocess_request()
        assert nothing()


def test_flask_of_views_alone() -> None:
    app = Flask("shop", static_folder=None)
    limit = flask.RateLimit(app)

    @app.get("/one")
    @limit.limited(WIDE)
    def one() -> str:
        return seen()

    client = app.test_client()
    assert client.get("/one").data == b"/one ()"
    assert nothing()


async def _awaited(request: Any) -> HttpResponse:
    return HttpResponse(seen())


def _plain(request: Any, **_: Any) -> HttpResponse:
    return HttpResponse(seen())


def _stream(request: Any) -> StreamingHttpResponse:
    return StreamingHttpResponse(blocks())


async def _async_stream(request: Any) -> StreamingHttpResponse:
    return StreamingHttpResponse(async_blocks())


@pytest.mark.parametrize("kind", django_tools.KINDS)
def test_django(kind: str) -> None:
    views = {"plain": _plain, "awaited": _awaited, "stream": _stream}
    if kind == "asgi":
        views["async_stream"] = _async_stream
    patterns = [path(name, view) for name, view in views.items()]
    patterns.append(path("own/<int:number>", django_adapter.limited(WIDE)(_plain)))
    said = {"LIMITS": [WIDE], "ORIGIN": ORIGIN["origin"]}
    with django_tools.served(kind, patterns, django_tools.MIDDLEWARE, HEADGATE=said) as client:
        for _ in range(2):
            for name in views:
                assert client.ask(f"/{name}").body == f"/{name} (batch)".encode()
        assert client.ask("/own/7").body == b"/own/7 /own/<int:number> (batch)"
        assert client.ask("/plain").body == b"/plain (batch)"


class Handlers(grpc_tools.Plain):
    def _do(self, message: bytes, context: Any) -> bytes:
        return seen().encode()


class AsyncHandlers(grpc_tools.Tasks):
    async def _do(self, message: bytes, context: Any) -> bytes:
        return seen().encode()


class WritingHandlers(grpc_tools.Writers):
    async def _do(self, message: bytes, context: Any) -> bytes:
        return seen().encode()


@pytest.mark.parametrize("kind", grpc_tools.FORMS)
def test_grpc(kind: str) -> None:
    form = grpc_tools.Form(kind)
    form.handlers = {"tasks": AsyncHandlers, "writers": WritingHandlers}.get(kind, Handlers)()
    try:
        client = form.serve(WIDE, **ORIGIN)
        for _ in range(2):
            for way in (grpc_tools.UNARY, grpc_tools.DOWN, grpc_tools.UP, grpc_tools.BOTH):
                answer, code, _ = client.call(way)
                assert code is grpc_tools.OK
                last = answer[-1] if isinstance(answer, list) else answer
                assert last == f"/t.S/{way} (batch)".encode()
    finally:
        form.close()
