"""aiohttp servers: stores that die, places on a Redis server, rules that change."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp_tools import app_of, got, rules, runs, serving, until
from held_tools import noted_ends

from headgate import AsyncGate, Facts, ManualClock
from headgate.integrations.aiohttp_server import rate_limit
from headgate.rules.sources import FileSource
from servers import Server, free_port


@pytest.fixture
def ends(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    return noted_ends(monkeypatch)


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
        rate_limit(app, rules=said, store=f"{redis.url}?budget=30s")
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
