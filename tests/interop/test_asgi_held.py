"""The ASGI middleware: what a call or a websocket holds, and until when it holds it."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterator
from typing import Any, ClassVar

import pytest
from asgi_tools import ONE, Served, called, clock, hello, http_scope, rules_text, ws_scope

from headgate import Facts
from headgate.integrations.asgi import RateLimitMiddleware
from servers import until


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    server = Served()
    yield server
    server.close()


def answering(status: int) -> Any:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": status})
        await send({"type": "http.response.body"})

    return app


class Streaming:
    """Sends a piece, and the last one when it is told to; or ends when its client leaves."""

    def __init__(self) -> None:
        self.go_on = threading.Event()
        self.ends: list[str] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "http.response.start", "status": 200})
        await send({"type": "http.response.body", "body": b"piece", "more_body": True})
        if scope["path"] == "/until-left":
            await receive()
            self.ends.append("left")
            return
        await asyncio.get_running_loop().run_in_executor(None, self.go_on.wait, 10)
        await send({"type": "http.response.body", "body": b"end"})
        self.ends.append("sent")


class TestGivingBack:
    @pytest.fixture
    def stream(self) -> Iterator[Streaming]:
        app = Streaming()
        yield app
        app.go_on.set()

    def test_a_place_is_held_until_the_body_has_ended(
        self, served: Served, stream: Streaming
    ) -> None:
        app = RateLimitMiddleware(stream, rules=rules_text(ONE))
        with served.client(app) as client:
            with client.stream("GET", "/") as first:
                pieces = first.iter_bytes()
                assert next(pieces) == b"piece"
                refused = client.get("/")
                assert refused.status_code == 429
                assert "retry-after" not in refused.headers
                stream.go_on.set()
                assert b"".join(pieces) == b"end"
            until(lambda: client.get("/").status_code == 200, what="the place did not come back")

    def test_a_client_that_leaves(self, served: Served, stream: Streaming) -> None:
        app = RateLimitMiddleware(stream, rules=rules_text(ONE))
        with served.client(app) as client:
            with client.stream("GET", "/until-left") as first:
                pieces = first.iter_bytes()
                assert next(pieces) == b"piece"
                assert client.get("/").status_code == 429
            stream.go_on.set()
            until(lambda: client.get("/").status_code == 200, what="the place did not come back")
        assert stream.ends[0] == "left"

    def test_an_application_that_fails(self, served: Served) -> None:
        async def broken(scope: Any, receive: Any, send: Any) -> None:
            raise ZeroDivisionError

        with served.client(RateLimitMiddleware(broken, rules=rules_text(ONE))) as client:
            assert [client.get("/").status_code for _ in range(3)] == [500] * 3

    def test_a_call_that_is_cancelled(self) -> None:
        async def waits(scope: Any, receive: Any, send: Any) -> None:
            await asyncio.sleep(3600)

        app = RateLimitMiddleware(waits, rules=rules_text(ONE))

        async def main() -> list[bool]:
            found = []
            for _ in range(3):
                task = asyncio.create_task(app(http_scope(), None, None))  # type: ignore[arg-type] # unused
                await asyncio.sleep(0)
                verdict = await app.gate.check(Facts())
                found.append(verdict.allowed)
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
            found.append((await app.gate.check(Facts())).allowed)
            return found

        assert asyncio.run(main()) == [False, False, False, True]

    def test_work_after_the_response_holds_nothing(self, served: Served) -> None:
        done = threading.Event()

        async def app(scope: Any, receive: Any, send: Any) -> None:
            await hello(scope, receive, send)
            await asyncio.get_running_loop().run_in_executor(None, done.wait, 10)

        with served.client(RateLimitMiddleware(app, rules=rules_text(ONE))) as client:
            assert client.get("/").status_code == 200
            until(lambda: client.get("/").status_code == 200)
            done.set()

    @pytest.mark.parametrize(
        ("status", "codes"),
        [(200, [200] * 4), (404, [404, 404, 429, 429]), (500, [500, 500, 429, 429])],
    )
    def test_only_failures_count(self, served: Served, status: int, codes: list[int]) -> None:
        rule = '{"name": "guess", "key": ["ip"], "limit": "2/hour", "count": "failures"}'
        app = RateLimitMiddleware(answering(status), rules=rules_text(rule), clock=clock())
        with served.client(app) as client:
            assert [client.get("/").status_code for _ in range(4)] == codes

    def test_what_a_failure_is_may_be_said(self, served: Served) -> None:
        rule = '{"name": "guess", "key": ["ip"], "limit": "1/hour", "count": "failures"}'

        def failed(message: Any) -> bool:
            return bool(message["status"] == 204)

        for status, last in ((404, 404), (204, 429)):
            app = RateLimitMiddleware(
                answering(status), rules=rules_text(rule), failed=failed, clock=clock()
            )
            with served.client(app) as client:
                assert [client.get("/").status_code for _ in range(2)] == [status, last]

    def test_who_cannot_judge_counts_a_failure(self, caplog: pytest.LogCaptureFixture) -> None:
        rule = '{"name": "guess", "limit": "1/hour", "count": "failures"}'
        app = RateLimitMiddleware(
            hello, rules=rules_text(rule), failed=lambda message: 1 / 0, clock=clock()
        )
        assert [called(app, http_scope())[0]["status"] for _ in range(2)] == [200, 429]
        assert "could not judge" in caplog.text

    def test_a_guess_whose_client_leaves_stays_counted(self) -> None:
        async def leaves(scope: Any, receive: Any, send: Any) -> None:
            await receive()

        rule = '{"name": "guess", "limit": "1/hour", "count": "failures"}'
        app = RateLimitMiddleware(leaves, rules=rules_text(rule), clock=clock())
        assert called(app, http_scope()) == []
        assert called(app, http_scope())[0]["status"] == 429

    def test_a_permit_that_cannot_be_given_back_breaks_nothing(
        self, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from headgate.gating.permit import AsyncPermit

        async def broken(*_: Any) -> bool:
            raise OSError("gone")

        app = RateLimitMiddleware(hello, rules=rules_text(ONE))
        with monkeypatch.context() as patch:
            patch.setattr(AsyncPermit, "release", broken)
            assert len(called(app, http_scope())) == 2
        assert "could not be given back" in caplog.text


class TestWebsockets:
    """Called directly; the same by a real client is below."""

    CONNECT: ClassVar = {"type": "websocket.connect"}

    @staticmethod
    async def echo(scope: Any, receive: Any, send: Any) -> None:
        assert (await receive())["type"] == "websocket.connect"
        await send({"type": "websocket.accept", "headers": [(b"x-own", b"1")]})
        while (message := await receive())["type"] == "websocket.receive":
            await send({"type": "websocket.send", "text": message["text"]})

    def test_accepted_with_headers(self) -> None:
        app = RateLimitMiddleware(self.echo, "1/hour", clock=clock())
        sent = called(app, ws_scope(), self.CONNECT)
        names = [name for name, _ in sent[0]["headers"]]
        assert names == [b"x-own", b"ratelimit-policy", b"ratelimit"]

    def test_refused_before_it_is_accepted(self) -> None:
        app = RateLimitMiddleware(self.echo, "1/hour", clock=clock())
        called(app, ws_scope(), self.CONNECT)
        (closed,) = called(app, ws_scope(), self.CONNECT)
        assert (closed["type"], closed["code"]) == ("websocket.close", 1008)
        extensions: dict[str, Any] = {"websocket.http.response": {}}
        start, body = called(app, ws_scope(extensions=extensions), self.CONNECT)
        assert (start["type"], start["status"]) == ("websocket.http.response.start", 429)
        assert b"retry-after" in dict(start["headers"])
        assert body["type"] == "websocket.http.response.body"
        assert b"quota-exceeded" in body["body"]

    @pytest.mark.parametrize("way", ["left", "closed", "failed", "denied", "answered"])
    def test_a_place_comes_back(self, way: str) -> None:
        async def app(scope: Any, receive: Any, send: Any) -> None:
            await receive()
            if way == "answered":
                await send({"type": "websocket.http.response.start", "status": 404, "headers": []})
                await send({"type": "websocket.http.response.body", "body": b""})
                return
            if way != "denied":
                await send({"type": "websocket.accept"})
            if way == "failed":
                raise ZeroDivisionError
            if way in ("closed", "denied"):
                await send({"type": "websocket.close"})
                assert (await limited.gate.check(Facts())).allowed

        limited = RateLimitMiddleware(app, rules=rules_text(ONE))
        try:
            called(limited, ws_scope(), self.CONNECT)
        except ZeroDivisionError:
            assert way == "failed"
        assert asyncio.run(limited.gate.check(Facts())).allowed

    @pytest.mark.parametrize(("way", "left"), [("accepted", True), ("denied", False)])
    def test_a_handshake_that_is_denied_is_a_failure(self, way: str, left: bool) -> None:
        async def app(scope: Any, receive: Any, send: Any) -> None:
            await send({"type": f"websocket.{'accept' if way == 'accepted' else 'close'}"})

        rule = '{"name": "guess", "limit": "1/hour", "count": "failures"}'
        limited = RateLimitMiddleware(app, rules=rules_text(rule), clock=clock())
        called(limited, ws_scope())
        assert asyncio.run(limited.gate.check(Facts())).allowed is left

    def test_a_real_client(self, served: Served) -> None:
        websockets = pytest.importorskip("websockets.sync.client", reason="needs websockets")
        denied = pytest.importorskip("websockets.exceptions").InvalidStatus
        served.app = RateLimitMiddleware(self.echo, rules=rules_text(ONE))
        url = f"ws://127.0.0.1:{served.port}/"
        logging.getLogger("websockets").setLevel(logging.CRITICAL)
        with websockets.connect(url) as first:
            assert first.response.headers["RateLimit"] == '"one";r=0'
            first.send("hi")
            assert first.recv() == "hi"
            with pytest.raises(denied) as refused:
                websockets.connect(url)
            assert refused.value.response.status_code == 429
            assert b"quota-exceeded" in refused.value.response.body

        def again() -> bool:
            try:
                with websockets.connect(url):
                    return True
            except denied:
                return False

        until(again, what="the place did not come back")
