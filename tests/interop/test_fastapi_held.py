"""FastAPI: which calls count as failures, and until when a place is held."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from asgi_tools import Served, called, clock, codes, rules_text, ws_scope
from fastapi import Depends, FastAPI, HTTPException, Response, WebSocket
from fastapi.responses import JSONResponse, StreamingResponse

from headgate.integrations.fastapi import RateLimit, install, limited
from servers import until

ONE = rules_text('{"name": "one", "limit": "1 concurrent"}')
GUESS = rules_text('{"name": "guess", "key": ["ip"], "limit": "1/hour", "count": "failures"}')


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    server = Served()
    yield server
    server.close()


class TestFailuresAndPlaces:
    @pytest.mark.parametrize("installed", [True, False])
    @pytest.mark.parametrize("way", ["dependency", "decorator"])
    @pytest.mark.parametrize("kind", ["response", "raise", "set"])
    def test_only_failures_count(
        self, served: Served, way: str, installed: bool, kind: str
    ) -> None:
        for status in (200, 401):
            app = FastAPI()
            if installed:
                install(app)
            words: Any = {"rules": GUESS, "clock": clock()}
            if way == "decorator":
                app.get("/")(limited(**words)(_endpoint(kind, status)))
            else:
                limit = Depends(RateLimit(**words))
                app.get("/", dependencies=[limit])(_endpoint(kind, status))
            with served.client(app) as client:
                found = codes(client, "/", 3)
            if (status, way, kind) == (200, "dependency", "response") and not installed:
                assert found == [200, 429, 429]  # what is not seen is not taken for a success
            else:
                assert found == ([200] * 3 if status == 200 else [401, 429, 429])

    @pytest.mark.parametrize("installed", [True, False])
    @pytest.mark.parametrize("way", ["dependency", "decorator"])
    def test_places_are_held_until_the_body_ends(
        self, served: Served, way: str, installed: bool
    ) -> None:
        go_on = threading.Event()

        async def pieces() -> AsyncIterator[bytes]:
            yield b"piece"
            while not go_on.is_set():
                await asyncio.sleep(0.005)
            yield b"end"

        async def stream() -> StreamingResponse:
            return StreamingResponse(pieces())

        app = FastAPI()
        if installed:
            install(app)
        if way == "decorator":
            app.get("/")(limited(rules=ONE)(stream))
        else:
            app.get("/", dependencies=[Depends(RateLimit(rules=ONE))])(stream)
        with served.client(app) as client:
            with client.stream("GET", "/") as first:
                read = first.iter_bytes()
                assert next(read) == b"piece"
                assert client.get("/").status_code == 429
                go_on.set()
                assert b"".join(read) == b"end"
            until(lambda: client.get("/").status_code == 200)
            go_on.clear()
            with client.stream("GET", "/") as second:
                assert second.status_code == 200
            until(lambda: _streams(client), what="the place did not come back")
            go_on.set()

    @pytest.mark.parametrize("way", ["dependency", "decorator"])
    @pytest.mark.parametrize("error", [ZeroDivisionError(), HTTPException(404)])
    def test_errors(self, served: Served, way: str, error: Exception) -> None:
        app = FastAPI()

        def broken() -> None:
            raise error

        if way == "decorator":
            app.get("/")(limited(rules=ONE)(broken))
        else:
            app.get("/", dependencies=[Depends(RateLimit(rules=ONE))])(broken)
        with served.client(app) as client:
            # The server ends a connection after an error that nobody handled.
            found = codes(client, "/", 3, headers={"connection": "close"})
        assert len(set(found)) == 1


class TestWithoutInstall:
    """What a dependency sees of a response by itself."""

    @pytest.mark.parametrize(
        ("route", "found"),
        [
            ({}, [200, 200, 200]),
            ({"status_code": 201}, [201, 201, 201]),
            ({"status_code": 503}, [503, 429, 429]),
            ({"response_model": list[int]}, [500, 429, 429]),  # which the value is not
            ({"response_class": JSONResponse}, [200, 200, 200]),
        ],
    )
    def test_by_the_route(self, served: Served, route: Any, found: list[int]) -> None:
        app = FastAPI()
        limit = Depends(RateLimit(rules=GUESS, clock=clock()))

        @app.get("/", dependencies=[limit], **route)
        async def login() -> Any:
            return {"who": "anna"}

        with served.client(app) as client:
            assert codes(client, "/", 3, headers={"connection": "close"}) == found

    @pytest.mark.parametrize("fails", [False, True])
    def test_websockets(self, fails: bool) -> None:
        app = FastAPI()
        limit = RateLimit(rules=GUESS, clock=clock())

        @app.websocket("/", dependencies=[Depends(limit)])
        async def login(socket: WebSocket) -> None:
            await socket.accept()
            if fails:
                raise ZeroDivisionError
            await socket.close()

        def let_in() -> bool:
            scope = ws_scope("/", query_string=b"", app=app)
            try:
                sent = called(app, scope, {"type": "websocket.connect"})
            except ZeroDivisionError:
                return True
            return bool(sent[0]["type"] == "websocket.accept")

        assert [let_in() for _ in range(3)] == [True, not fails, not fails]


def _endpoint(kind: str, status: int) -> Any:
    """An endpoint that answers with a status, in one of three ways."""

    async def login(response: Response) -> Any:
        if kind == "raise" and status >= 400:
            raise HTTPException(status)
        if kind == "response":
            return JSONResponse({}, status_code=status)
        response.status_code = status
        return {}

    return login


def _streams(client: Any) -> bool:
    with client.stream("GET", "/") as answer:
        return bool(answer.status_code == 200)
