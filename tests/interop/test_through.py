"""`through`: what is entered inside of an HTTP or gRPC call knows by which call it came in."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import aiohttp_tools
import pytest
import wsgi_tools
from aiohttp import web
from asgi_tools import Served, called, http_scope
from fastapi import Depends, FastAPI
from fastapi.responses import StreamingResponse
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.responses import StreamingResponse as Streaming
from starlette.routing import Route
from through_tools import ORIGIN, RULES, WIDE, asking, async_blocks, blocks, nothing, seen

from headgate import AsyncGate, Gate, Refused
from headgate.gating import chain
from headgate.integrations import aiohttp_server, asgi, fastapi, starlette, wsgi


@pytest.fixture(autouse=True)
def gate(monkeypatch: pytest.MonkeyPatch) -> Gate:
    return asking(monkeypatch)


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    server = Served()
    yield server
    server.close()


# -- rules


def test_only_rules_that_ask_for_it_have_it_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    def wants(match: str, **more: Any) -> bool:
        monkeypatch.setattr(chain, "wanted", False)
        rule = {"name": "x", "match": {match: "/db"}, "limit": "1/hour", **more}
        Gate(json.dumps({"version": 1, "rules": [rule]}))
        return chain.wanted

    assert wants("through")
    assert not wants("resource")
    assert wants("resource", key=["origin"])
    assert not wants("path", key=["origin"])
    assert not wants("origin")


def test_a_rule_holds_for_what_came_through(gate: Gate) -> None:
    def app(environ: Any, start: Any) -> list[bytes]:
        try:
            with gate.enter("db"):
                status = "200 OK"
        except Refused:
            status = "429 Too Many Requests"
        start(status, [])
        return [b"done"]

    with wsgi_tools.serving(wsgi.RateLimitMiddleware(app, WIDE)) as client:
        assert client.statuses(3, "/b") == [200, 200, 200]
        assert client.statuses(3, "/a") == [200, 429, 429]
        assert client.statuses(1, "/b") == [200]


# -- tasks


async def told(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    for _ in range(2):
        await asyncio.sleep(0)
        await send({"type": "http.response.body", "body": seen().encode(), "more_body": True})
    await send({"type": "http.response.body", "body": b""})


@pytest.mark.parametrize("limit", [WIDE, "5 concurrent"])
def test_asgi(limit: str) -> None:
    app = asgi.RateLimitMiddleware(told, limit, origin=lambda scope: "batch")

    async def main() -> None:  # one task for several calls, as a client in a test may be
        for way in ("/a", "/b"):
            sent: list[Any] = []

            async def send(message: Any, sent: list[Any] = sent) -> None:
                sent.append(message)

            await app(http_scope(way), None, send)  # type: ignore[arg-type] # it is not asked
            assert [message["body"] for message in sent[1:3]] == [f"{way} (batch)".encode()] * 2
            assert nothing()
        with pytest.raises(ZeroDivisionError):
            await asgi.RateLimitMiddleware(broken, limit)(http_scope(), None, send)  # type: ignore[arg-type] # as above
        assert nothing()

    asyncio.run(main())


async def broken(scope: Any, receive: Any, send: Any) -> None:
    raise ZeroDivisionError


def test_nothing_is_noted_where_nobody_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chain, "wanted", False)
    sent = called(asgi.RateLimitMiddleware(told, WIDE), http_scope("/a"))
    assert sent[1]["body"] == b"()"


def test_tasks_side_by_side_see_their_own() -> None:
    app = asgi.RateLimitMiddleware(told, WIDE)

    async def call(way: str) -> None:
        sent: list[Any] = []

        async def send(message: Any) -> None:
            await asyncio.sleep(0)
            sent.append(message)

        await app(http_scope(way), None, send)  # type: ignore[arg-type] # it is not asked
        assert {message["body"] for message in sent[1:3]} == {f"{way} ()".encode()}

    async def main() -> None:
        await asyncio.gather(*(call(f"/{number}") for number in range(20)))
        assert nothing()

    asyncio.run(main())


def test_starlette(served: Served) -> None:
    @starlette.limited(WIDE)
    async def one(request: Any) -> Any:
        return PlainTextResponse(seen())

    @starlette.limited(WIDE)
    def thread(request: Any) -> Any:
        return PlainTextResponse(seen())

    @starlette.limited(WIDE)
    async def stream(request: Any) -> Any:
        return Streaming(async_blocks())

    routes = [Route(f"/{f.__name__}/{{number}}", f) for f in (one, thread, stream)]
    app = asgi.RateLimitMiddleware(Starlette(routes=routes), WIDE, origin=lambda scope: "batch")
    with served.client(app) as client:
        for name in ("one", "thread", "stream", "one"):
            # Of the middleware, and of the decorator, which knows the route.
            assert client.get(f"/{name}/7").text == f"/{name}/7 /{name}/{{number}} (batch)"


@pytest.mark.parametrize("installed", [False, True])
def test_fastapi(installed: bool, served: Served) -> None:
    app = FastAPI()
    if installed:
        fastapi.install(app)
    limit = Depends(fastapi.RateLimit(WIDE, origin=lambda request: "batch"))

    @app.get("/one/{number}", dependencies=[limit])
    async def one(number: int) -> str:
        return seen()

    @app.get("/thread/{number}", dependencies=[limit])
    def thread(number: int) -> str:
        return seen()

    @app.get("/made/{number}")
    @fastapi.limited(WIDE)
    async def made(number: int) -> str:
        return seen()

    @app.get("/stream/{number}")
    @fastapi.limited(WIDE)
    async def stream(number: int) -> StreamingResponse:
        return StreamingResponse(async_blocks())

    with served.client(app) as client:
        assert client.get("/one/7").json() == "/one/{number} (batch)"
        assert client.get("/thread/7").json() == "/thread/{number} (batch)"
        assert client.get("/made/7").json() == "/made/{number} ()"
        assert client.get("/stream/7").text == "/stream/{number} ()"

    async def main() -> None:  # one task for several calls
        for _ in range(2):
            sent: list[Any] = []

            async def send(message: Any, sent: list[Any] = sent) -> None:
                sent.append(message)

            scope = http_scope("/one/7", query_string=b"", app=app)
            await app(scope, None, send)  # type: ignore[arg-type] # it is not asked
            assert b'"/one/{number} (batch)"' in [message.get("body") for message in sent]
            assert nothing()

    asyncio.run(main())


@pytest.mark.parametrize("limit", [WIDE, "5 concurrent"])
def test_aiohttp(limit: str) -> None:
    async def one(request: web.Request) -> web.Response:
        return web.Response(text=seen())

    async def stream(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(seen().encode())
        return response

    @aiohttp_tools.runs
    async def main() -> None:
        app = aiohttp_tools.app_of(
            ("/one/{number}", one), ("/stream/{number}", stream), ("/exempt", one)
        )
        aiohttp_server.rate_limit(app, limit, **ORIGIN)
        async with aiohttp_tools.serving(app) as client:
            for name in ("one", "stream", "one"):  # on one connection, of one task
                async with client.get(f"/{name}/7") as answer:
                    assert await answer.text() == f"/{name}/{{number}} (batch)"

    main()


# -- entries inside of it


def test_entries_add_themselves() -> None:
    gate = AsyncGate(RULES)
    found: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        async with gate.enter("shop"), gate.enter("db", origin="other"):
            found.append(seen())
        found.append(seen())
        await told(scope, receive, send)

    called(asgi.RateLimitMiddleware(app, WIDE, origin=lambda scope: "batch"), http_scope("/a"))
    assert found == ["/a shop db (other)", "/a (batch)"]


def test_blocks_that_nobody_takes_note_nothing() -> None:
    noted = chain.Around(("/a",))
    made = chain.each(noted, blocks())
    next(made)
    assert nothing()
    del made
    assert nothing()

    async def main() -> None:
        rest = chain.each_soon(noted, async_blocks())
        await anext(rest)
        assert nothing()
        assert [block async for block in rest] == [b"/a ()"]

    asyncio.run(main())
