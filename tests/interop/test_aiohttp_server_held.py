"""aiohttp servers: what a call holds, and until when it holds it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp_tools import app_of, gate_of, got, runs, serving, until
from held_tools import noted_ends

from headgate.integrations.aiohttp_server import limited, rate_limit, tell


@pytest.fixture
def ends(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    return noted_ends(monkeypatch)


def one_place(*routes: tuple[str, Any], **more: Any) -> web.Application:
    """An application that answers one call at a time."""
    app = app_of(*routes)
    rate_limit(app, gate=gate_of({"limit": "1 concurrent"}), **more)
    return app


@runs
async def test_a_place_comes_back_after_each_end(ends: list[str]) -> None:
    async def broken(request: web.Request) -> web.Response:
        raise ZeroDivisionError

    async def away(request: web.Request) -> web.Response:
        raise web.HTTPFound("/")

    async def nothing(request: web.Request) -> None:
        return None

    async def bytes_then_broken(request: web.Request) -> web.Response:
        async def content() -> AsyncIterator[bytes]:
            yield b"x"
            raise ZeroDivisionError

        return web.Response(body=content())

    routes = (("/broken", broken), ("/away", away), ("/nothing", nothing))
    async with serving(one_place(*routes, ("/half", bytes_then_broken))) as client:
        assert await got(client) == 200
        assert await got(client, "/broken") == 500
        assert await got(client, "/away", allow_redirects=False) == 302
        assert await got(client, "/nothing") == 500
        with contextlib.suppress(aiohttp.ClientError):
            await got(client, "/half")
        assert await got(client) == 200
    assert ends == ["success", "failure", "success", "failure", "failure", "success"]


@runs
async def test_a_place_is_held_while_the_handler_runs(ends: list[str]) -> None:
    entered, go = asyncio.Event(), asyncio.Event()

    async def slow(request: web.Request) -> web.Response:
        entered.set()
        await go.wait()
        return web.Response()

    async with serving(one_place(("/slow", slow))) as client:
        slowly = asyncio.create_task(got(client, "/slow"))
        await entered.wait()
        assert await got(client) == 429
        assert not ends
        go.set()
        assert await slowly == 200
        assert await got(client) == 200
    assert ends == ["success", "success"]


async def streamed(request: web.Request, content: AsyncIterator[bytes]) -> web.StreamResponse:
    """A response that the handler itself sends."""
    response = web.StreamResponse()
    await response.prepare(request)
    async for data in content:
        await response.write(data)
    return response


async def as_a_body(request: web.Request, content: AsyncIterator[bytes]) -> web.StreamResponse:
    """A response that is sent after the handler has returned."""
    return web.Response(body=content)


@pytest.mark.parametrize("send", [streamed, as_a_body])
@runs
async def test_a_place_is_held_until_a_stream_ends(send: Any, ends: list[str]) -> None:
    go = asyncio.Event()

    async def stream(request: web.Request) -> web.StreamResponse:
        async def content() -> AsyncIterator[bytes]:
            yield b"first"
            await go.wait()
            yield b"last"

        response: web.StreamResponse = await send(request, content())
        return response

    async with serving(one_place(("/stream", stream))) as client:
        async with client.get("/stream") as answer:
            assert "RateLimit" in answer.headers
            assert await answer.content.readexactly(5) == b"first"
            assert await got(client) == 429
            assert not ends
            go.set()
            assert await answer.read() == b"last"
        assert await got(client) == 200
    assert ends == ["success", "success"]


@pytest.mark.parametrize("send", [streamed, as_a_body])
@pytest.mark.parametrize("cancels", [False, True])
@runs
async def test_a_client_that_leaves_a_stream(send: Any, cancels: bool, ends: list[str]) -> None:
    async def stream(request: web.Request) -> web.StreamResponse:
        async def content() -> AsyncIterator[bytes]:
            while True:
                yield b"x" * 1000
                await asyncio.sleep(0.001)

        response: web.StreamResponse = await send(request, content())
        return response

    app = one_place(("/stream", stream))
    async with serving(app, handler_cancellation=cancels) as client:
        async with client.get("/stream") as answer:
            await answer.content.readexactly(5)
            assert await got(client) == 429
            answer.close()
        await until(lambda: ends)
        assert await got(client) == 200
    assert len(ends) == 2


@runs
async def test_a_client_that_leaves_before_the_answer(ends: list[str]) -> None:
    entered = asyncio.Event()

    async def stuck(request: web.Request) -> web.Response:
        entered.set()
        await asyncio.sleep(3600)
        return web.Response()

    async with serving(one_place(("/stuck", stuck)), handler_cancellation=True) as client:
        leaving = asyncio.create_task(got(client, "/stuck"))
        await entered.wait()
        leaving.cancel()
        await until(lambda: ends)
        assert await got(client) == 200
    assert ends == ["ignored", "success"]


@runs
async def test_a_websocket(ends: list[str]) -> None:
    async def echo(request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        async for message in socket:
            await socket.send_str(message.data)
        return socket

    async with serving(one_place(("/ws", echo))) as client:
        async with client.ws_connect("/ws") as socket:
            assert socket._response.headers["RateLimit"] == '"rule0";r=0'
            await socket.send_str("hello")
            assert await socket.receive_str() == "hello"
            assert await got(client) == 429
            with pytest.raises(aiohttp.WSServerHandshakeError, match="429"):
                await client.ws_connect("/ws")
            assert not ends
        await until(lambda: ends)
        assert await got(client) == 200
    assert ends == ["success", "success"]


@runs
async def test_the_decorator_inside_the_middleware(ends: list[str]) -> None:
    @limited("1 concurrent", key=())
    async def stream(request: web.Request) -> web.StreamResponse:
        async def content() -> AsyncIterator[bytes]:
            yield b"x"
            yield b"y"

        return await streamed(request, content())

    app, inner = web.Application(), app_of(("/stream", stream))
    inner.on_response_prepare.append(tell)
    app.add_subapp("/inner/", inner)
    app.router.add_get("/stream", stream)
    rate_limit(app, "3/minute")
    async with serving(app) as client:
        for path in ("/stream", "/inner/stream"):
            async with client.get(path) as answer:
                assert await answer.read() == b"xy"
                told = answer.headers.getall("RateLimit-Policy")
                assert told == ['"default";q=3;w=60', '"stream";q=1;qu="concurrent-requests"']
    assert ends == ["success", "success"]
