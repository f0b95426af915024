"""aiohttp servers: the middleware and the decorator, on real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec

import aiohttp
import pytest
from aiohttp import web

from headgate import AsyncGate, Facts, ManualClock
from headgate.gate import AsyncPermit
from headgate.integrations.aiohttp_server import limited, rate_limit, tell
from headgate.rules.sources import FileSource
from servers import Server, free_port

P = ParamSpec("P")
BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"


def runs(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """A test that is a task."""

    @wraps(test)
    def ran(*args: P.args, **words: P.kwargs) -> None:
        asyncio.run(asyncio.wait_for(test(*args, **words), 20))

    return ran


async def hello(request: web.Request) -> web.Response:
    return web.Response(text="hello")


def app_of(*routes: tuple[str, Any]) -> web.Application:
    """An application that says hello everywhere else."""
    app = web.Application()
    for path, handler in routes:
        app.router.add_route("*", path, handler)
    app.router.add_route("*", "/{rest:.*}", hello)
    return app


@contextlib.asynccontextmanager
async def serving(app: web.Application, **more: Any) -> AsyncIterator[aiohttp.ClientSession]:
    """An application on a port of its own, and a client of it."""
    runner = web.AppRunner(app, access_log=None, **more)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    base = "http://{}:{}".format(*runner.addresses[0][:2])
    try:
        async with aiohttp.ClientSession(base) as client:
            yield client
    finally:
        await runner.cleanup()


async def got(client: aiohttp.ClientSession, path: str = "/", **more: Any) -> int:
    """The status of a call whose body has been read."""
    async with client.request(more.pop("method", "GET"), path, **more) as answer:
        await answer.read()
        return answer.status


async def until(true: Callable[[], object]) -> None:
    """Let other tasks run until something is true."""
    for _ in range(1000):
        if true():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("it did not happen")


def rules(*given: dict[str, Any]) -> str:
    """A rules file, as text."""
    named = [{"name": f"rule{place}", **rule} for place, rule in enumerate(given)]
    return json.dumps({"version": 1, "rules": named})


def gate_of(*given: dict[str, Any], **more: Any) -> AsyncGate:
    """A gate whose clock stands still."""
    return AsyncGate(rules(*given), clock=ManualClock(1_000_000), **more)


# -- what is said


@runs
async def test_five_lines() -> None:
    app = app_of()
    rate_limit(app, "2/minute fixed-window", clock=ManualClock(960))
    async with serving(app) as client:
        async with client.get("/") as answer:
            assert await answer.text() == "hello"
            assert answer.headers["RateLimit-Policy"] == '"default";q=2;w=60'
            assert answer.headers["RateLimit"] == '"default";r=1;t=60'
            assert "Retry-After" not in answer.headers
        assert await got(client) == 200
        async with client.get("/") as answer:
            assert answer.status == 429
            assert answer.headers["Retry-After"] == "60"
            assert answer.headers["RateLimit"] == '"default";r=0;t=60'
            assert answer.content_type == "application/problem+json"
            told = await answer.json(content_type=None)
            assert told["status"] == 429
            assert told["violated-policies"] == ["default"]
        async with client.get("/", headers={"Accept": BROWSER}) as answer:
            assert answer.content_type == "text/html"
            assert "<h1>Too many requests</h1>" in await answer.text()
        async with client.head("/") as answer:
            assert (answer.status, answer.headers["Retry-After"]) == (429, "60")


@runs
async def test_a_refused_call_does_not_reach_the_handler() -> None:
    calls: list[str] = []

    async def handler(request: web.Request) -> web.Response:
        calls.append(await request.text())
        return web.Response()

    app = app_of(("/in", handler))
    rate_limit(app, "1/minute")
    async with serving(app) as client:
        assert await got(client, "/in", method="POST", data=b"x") == 200
        assert await got(client, "/in", method="POST", data=b"y" * 300_000) == 429
        assert await got(client, "/in", method="POST", data=b"z") == 429
    assert calls == ["x"]


@runs
async def test_errors_tell_of_their_limits_too() -> None:
    async def broken(request: web.Request) -> web.Response:
        raise ZeroDivisionError

    async def missing(request: web.Request) -> web.Response:
        raise web.HTTPNotFound

    app = app_of(("/broken", broken), ("/missing", missing))
    rate_limit(app, "9/minute")
    async with serving(app) as client:
        for path, status in (("/broken", 500), ("/missing", 404)):
            async with client.get(path) as answer:
                assert answer.status == status
                assert len(answer.headers.getall("RateLimit")) == 1


@runs
async def test_what_a_rule_says_of_refusals(tmp_path: Path) -> None:
    page = tmp_path / "sorry.html"
    page.write_text("<p>sorry", encoding="utf-8")
    never = {"limit": "1/day"}
    gate = gate_of(
        {"match": {"path": "/busy"}, "status": 503, **never},
        {"match": {"path": "/away"}, "otherwise": {"redirect": "/queue"}, **never},
        {"match": {"path": "/page"}, "otherwise": {"page": str(page)}, **never},
        {"match": {"path": "/data"}, "otherwise": {"data": {"items": []}}, **never},
        {"match": {"path": "/call"}, "otherwise": {"function": "shop:cached"}, **never},
        {"match": {"path": "/deny"}, "deny": {"networks": "127.0.0.0/8"}, **never},
        functions={"shop:cached": lambda facts: {"path": facts.path}},
    )
    app = app_of()
    assert rate_limit(app, gate=gate) is gate
    async with serving(app) as client:
        assert await got(client, "/deny") == 403
        for path in ("/busy", "/away", "/page", "/data", "/call"):
            assert await got(client, path) == 200
        assert await got(client, "/busy") == 503
        async with client.get("/away", allow_redirects=False) as answer:
            assert (answer.status, answer.headers["Location"]) == (303, "/queue")
        async with client.get("/page") as answer:
            assert (answer.status, await answer.text()) == (429, "<p>sorry")
        async with client.get("/data") as answer:
            assert (answer.status, await answer.json()) == (200, {"items": []})
        async with client.get("/call") as answer:
            assert (answer.status, await answer.json()) == (200, {"path": "/call"})


@runs
async def test_a_body_of_ones_own() -> None:
    app = app_of()
    rate_limit(app, "1/minute", body=lambda verdict, accept: (420, "text/plain", "calm down"))
    async with serving(app) as client:
        assert await got(client) == 200
        async with client.get("/") as answer:
            assert (answer.status, await answer.text()) == (420, "calm down")
            assert "Retry-After" in answer.headers


@runs
async def test_headers_that_cannot_be_written_break_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    app = app_of()
    rate_limit(app, "1/minute")
    monkeypatch.setattr("headgate.verdict.Verdict.headers", lambda *_: 1 / 0)
    async with serving(app) as client:
        assert await got(client) == 200


# -- who calls, and what for


@runs
async def test_keys() -> None:
    gate = gate_of(
        {"match": {"path": "/orders/**"}, "key": ["param:id"], "limit": "1/day"},
        {"match": {"path": "/by-route/**"}, "key": ["route"], "limit": "1/day"},
        {"match": {"path": "/login", "host": "127.0.0.1"}, "key": ["user"], "limit": "1/day"},
        {"match": {"path": "/size"}, "limit": "10/day", "cost": {"size": 1}},
        {"match": {"header": {"x-tenant": "a, b"}}, "limit": "1/day"},
    )
    app = app_of(("/orders/{id}", hello), ("/by-route/{x}", hello))
    rate_limit(app, gate=gate, user=lambda request: request.query.get("user"))
    async with serving(app) as client:
        assert [await got(client, f"/orders/{n}") for n in (1, 2, 1)] == [200, 200, 429]
        assert [await got(client, f"/by-route/{n}") for n in (1, 2)] == [200, 429]
        calls = ("/login?user=ann", "/login?user=ann", "/login?user=bob", "/login", "/login")
        assert [await got(client, path) for path in calls] == [200, 429, 200, 200, 200]
        sizes = [await got(client, "/size", method="POST", data=b"x" * n) for n in (6, 6, 4)]
        assert sizes == [200, 429, 200]
        twice = [("X-Tenant", "a"), ("X-Tenant", "b")]
        assert [await got(client, headers=twice) for _ in "12"] == [200, 429]


@runs
async def test_spellings_of_a_path() -> None:
    app = app_of()
    rate_limit(app, gate=gate_of({"match": {"path": "/login"}, "limit": "1/day"}))
    async with serving(app) as client:
        assert await got(client, "/login") == 200
        base = client._base_url
        assert base is not None
        for target in ("//login", "/%6Cogin/", "/a/../login?x", "http://x/login", "/login;v=1"):
            reader, writer = await asyncio.open_connection(base.host, base.port)
            writer.write(f"GET {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
            status = int((await reader.read()).split()[1])
            writer.close()
            assert status == (200 if ";" in target else 429), target


@runs
async def test_addresses() -> None:
    async def statuses(client: aiohttp.ClientSession) -> list[int]:
        spoofs = ("192.0.2.1", "192.0.2.2")
        return [await got(client, headers={"X-Forwarded-For": ip}) for ip in spoofs]

    for trusted, expected in ((None, [200, 429]), ("loopback", [200, 200])):
        app = app_of()
        rate_limit(app, "1/day", trusted=trusted)
        async with serving(app) as client:
            assert await statuses(client) == expected


@runs
async def test_a_unix_socket(tmp_path: Path) -> None:
    path = str(tmp_path / "sock")
    app = app_of()
    gate = gate_of({"key": ["ip"], "limit": "1/day"})
    seen: list[str] = []
    gate.on_verdict.append(lambda facts, verdict: seen.append(facts.ip))
    rate_limit(app, gate=gate)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.UnixSite(runner, path).start()
    connector = aiohttp.UnixConnector(path)
    async with aiohttp.ClientSession("http://localhost", connector=connector) as client:
        assert [await got(client) for _ in "12"] == [200, 429]
    await runner.cleanup()
    assert seen == ["unix", "unix"]


@runs
async def test_exempt_and_shadow() -> None:
    gate = gate_of(
        {"match": {"path": "/health"}, "exempt": True},
        {"match": {"path": "/try"}, "limit": "1/day", "shadow": True},
        {"match": {"path": "/health"}, "limit": "1/day"},
    )
    app = app_of()
    rate_limit(app, gate=gate)
    async with serving(app) as client:
        assert [await got(client, "/health") for _ in "123"] == [200] * 3
        assert [await got(client, "/try") for _ in "123"] == [200] * 3
        async with client.get("/try") as answer:
            assert "RateLimit" not in answer.headers


@runs
async def test_only_failures_count() -> None:
    async def login(request: web.Request) -> web.Response:
        if request.query["password"] == "right":
            return web.Response()
        if request.query["password"] == "soft":
            return web.json_response({"ok": False})
        raise web.HTTPUnauthorized

    def soft(response: web.StreamResponse) -> bool:
        return response.content_type == "application/json"

    for failed, word, status in ((None, "wrong", 401), (soft, "soft", 200)):
        app = app_of(("/login", login))
        gate = gate_of({"limit": "2/day", "count": "failures"})
        rate_limit(app, gate=gate, failed=failed)
        async with serving(app) as client:
            right, wrong = "/login?password=right", f"/login?password={word}"
            assert [await got(client, right) for _ in range(5)] == [200] * 5
            assert [await got(client, wrong) for _ in "123"] == [status, status, 429]
            assert await got(client, right) == 429


# -- what is held, and until when


@pytest.fixture
def ends(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """How calls ended: each time that something held was given back."""
    found: list[str] = []
    release = AsyncPermit.release

    async def noted(permit: AsyncPermit, outcome: str = "success") -> bool:
        if permit:
            found.append(outcome)
        return await release(permit, outcome)

    monkeypatch.setattr(AsyncPermit, "release", noted)
    return found


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


# -- the decorator


@runs
async def test_the_decorator() -> None:
    @limited("1/minute")
    async def login(request: web.Request) -> web.Response:
        return web.Response(text="in")

    @limited("1/minute")
    async def missing(request: web.Request) -> web.Response:
        raise web.HTTPNotFound

    class Orders(web.View):
        @limited("1/minute", key="param:id")
        async def get(self) -> web.Response:
            return web.Response(text=self.request.match_info["id"])

    class Shop:
        @limited("1/minute")
        async def buy(self, request: web.Request) -> web.Response:
            return web.Response(text="bought")

    routes = (("/login", login), ("/missing", missing), ("/orders/{id}", Orders))
    async with serving(app_of(*routes, ("/buy", Shop().buy))) as client:
        async with client.get("/login") as answer:
            assert await answer.text() == "in"
            assert answer.headers.getall("RateLimit-Policy") == ['"login";q=1;w=60']
        async with client.get("/login") as answer:
            assert answer.status == 429
            assert answer.headers.getall("RateLimit-Policy") == ['"login";q=1;w=60']
        async with client.get("/missing") as answer:
            assert answer.status == 404
            assert answer.headers.getall("RateLimit-Policy") == ['"missing";q=1;w=60']
        assert await got(client, "/missing") == 429
        assert [await got(client, f"/orders/{n}") for n in (1, 2, 2)] == [200, 200, 429]
        assert [await got(client, "/buy") for _ in "12"] == [200, 429]
        assert [await got(client) for _ in "123"] == [200] * 3


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


@runs
async def test_decorated_handlers_count_apart_on_one_store() -> None:
    with Server() as redis:

        @limited("1/minute", store=redis.url)
        async def one(request: web.Request) -> web.Response:
            return web.Response()

        @limited("1/minute", store=redis.url)
        async def two(request: web.Request) -> web.Response:
            return web.Response()

        async with serving(app_of(("/one", one), ("/two", two))) as client:
            found = [await got(client, path) for path in ("/one", "/two", "/one", "/two")]
            assert found == [200, 200, 429, 429]


def test_what_is_given_must_fit() -> None:
    with pytest.raises(TypeError, match="one of the three"):
        rate_limit(web.Application())
    with pytest.raises(TypeError, match="one of the three"):
        limited("1/minute", rules="rules.yaml")(hello)
    with pytest.raises(TypeError, match="belong to the gate"):
        limited(gate=gate_of({"limit": "1/day"}), store="redis://x")(hello)
    limited(gate=gate_of({"limit": "1/day"}))(hello)


# -- the store and the rules


@pytest.mark.parametrize(("on_error", "status"), [("allow", 200), ("deny", 429)])
@runs
async def test_a_dead_store(on_error: str, status: int) -> None:
    app = app_of()
    said = rules({"key": ["ip"], "limits": ["5/minute", "3 concurrent"], "on_error": on_error})
    rate_limit(app, rules=said, store=f"redis://127.0.0.1:{free_port()}/0")
    async with serving(app) as client:
        assert [await got(client) for _ in range(9)] == [status] * 9


@runs
async def test_a_store_that_dies_in_the_middle_of_a_call(ends: list[str]) -> None:
    with Server() as redis:

        async def kill(request: web.Request) -> web.Response:
            redis.kill()
            return web.Response(text="served")

        app = app_of(("/kill", kill))
        said = rules({"limit": "1 concurrent", "on_error": "allow"})
        rate_limit(app, rules=said, store=redis.url)
        async with serving(app) as client:
            assert await got(client) == 200
            async with client.get("/kill") as answer:
                assert (answer.status, await answer.text()) == (200, "served")
            assert await got(client) == 200
        assert ends[:2] == ["success", "success"]


@runs
async def test_places_on_a_redis_server() -> None:
    with Server() as redis, redis.client() as keys:

        def held() -> bool:
            return bool(keys.dbsize() > before)

        async def look(request: web.Request) -> web.Response:
            assert held()
            return web.Response()

        app = app_of(("/look", look))
        gate = rate_limit(app, "2 concurrent", store=f"{redis.url}?budget=5s")
        await (await gate.check(Facts(ip="127.0.0.2"))).permit.release()
        before = keys.dbsize()  # what the store keeps for itself
        async with serving(app) as client:
            for _ in range(3):
                async with asyncio.TaskGroup() as group:
                    pair = [group.create_task(got(client, "/look")) for _ in "12"]
                assert [one.result() for one in pair] == [200, 200]
                await until(lambda: not held())


@runs
async def test_rules_that_change(tmp_path: Path) -> None:
    path = tmp_path / "rules.json"
    path.write_text(rules({"limit": "1/day"}), encoding="utf-8")
    app = app_of()
    gate = AsyncGate(FileSource(path), clock=ManualClock(1_000_000))
    rate_limit(app, gate=gate)
    async with serving(app) as client:
        assert [await got(client) for _ in "12"] == [200, 429]
        path.write_text(rules({"limit": "3/day"}), encoding="utf-8")
        await until(lambda: gate.status()["updates"] == 2)
        assert [await got(client) for _ in "123"] == [200, 200, 429]
        path.write_text("{", encoding="utf-8")
        await until(lambda: gate.status()["last_error"])
        assert await got(client) == 429
        gate.reload(rules({"limit": "4/day"}))
        assert [await got(client) for _ in "12"] == [200, 429]
    await gate.close()
