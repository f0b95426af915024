"""aiohttp servers: the middleware and the decorator, on real sockets."""

from __future__ import annotations

import asyncio
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from aiohttp_tools import app_of, gate_of, got, hello, runs, serving

from headgate import ManualClock
from headgate.integrations.aiohttp_server import limited, rate_limit
from servers import Server

BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"


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
async def test_decorated_handlers_count_apart_on_one_store() -> None:
    with Server() as redis:

        @limited("1/minute", store=f"{redis.url}?budget=30s")
        async def one(request: web.Request) -> web.Response:
            return web.Response()

        @limited("1/minute", store=f"{redis.url}?budget=30s")
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
