"""aiohttp's client with limits, against a real server: what is sent, and what is held."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import aiohttp
import pytest
from outgoing_tools import START, Provider, eventually, walking

from headgate import AsyncGate, AsyncLimiter, LimitExceeded, ManualClock, Refused
from headgate.integrations.aiohttp_client import AskedToWait, RateLimitMiddleware
from headgate.integrations.meter import Reply
from servers import Server, free_port


@pytest.fixture(scope="module")
def redis() -> Iterator[Server]:
    with Server() as server:
        yield server


@pytest.fixture
def provider() -> Iterator[Provider]:
    with Provider() as started:
        yield started


Session = aiohttp.ClientSession
Main = Callable[[Session, RateLimitMiddleware], Awaitable[None]]


def run(provider: Provider, main: Main, *limits: str, **options: Any) -> None:
    """Run something in a session at the provider's."""

    async def whole() -> None:
        middleware = RateLimitMiddleware(*limits, **{"wait": 0, **options})
        async with Session(provider.url, middlewares=(middleware,)) as session:
            await main(session, middleware)
        await middleware.close()

    asyncio.run(whole())


async def get(session: Session, path: str, **options: Any) -> str:
    async with session.get(path, **options) as response:
        return await response.text()


def test_five_lines(provider: Provider) -> None:
    async def main(session: Session, _: Any) -> None:
        assert [await get(session, "/ok") for _ in range(2)] == ["ok", "ok"]
        with pytest.raises(LimitExceeded) as refused:
            await get(session, "/ok")
        assert refused.value.key == f"127.0.0.1:{provider.port}"

    run(provider, main, "2/minute first-hit")
    assert provider.calls == ["/ok"] * 2


def test_a_call_waits_for_its_turn(provider: Provider) -> None:
    clock = ManualClock(START)

    async def main(session: Session, _: Any) -> None:
        with walking(clock):
            for _ in range(3):
                await get(session, "/ok")

    run(provider, main, "1/second even", wait=None, clock=clock)
    assert clock.now() == START + 2


def test_the_server_is_listened_to(provider: Provider) -> None:
    clock = ManualClock(START)

    async def main(session: Session, _: Any) -> None:
        await get(session, "/say/503?Retry-After=7")
        with walking(clock):
            await get(session, "/ok")
        assert clock.now() == START + 7
        await get(session, "/say/200?RateLimit=limit%3D5,remaining%3D0,reset%3D600")
        with pytest.raises(AskedToWait, match="RateLimit: limit=5"):
            await get(session, "/ok")

    run(provider, main, wait=10, jitter=0, clock=clock)
    assert provider.calls == ["/say/503", "/ok", "/say/200"]


def test_every_hop_counts(provider: Provider) -> None:
    async def main(session: Session, _: Any) -> None:
        assert await get(session, "/away") == "ok"
        with pytest.raises(LimitExceeded):
            await get(session, "/away")

    run(provider, main, "1 concurrent", "3/minute first-hit")
    assert provider.calls == ["/away", "/ok", "/away"]


@pytest.mark.parametrize("on_server", [False, True])
def test_a_permit_is_held_until_the_body_ends(
    provider: Provider, redis: Server, on_server: bool
) -> None:
    async def main(session: Session, _: Any) -> None:
        async with session.get("/slow") as response:
            assert await response.content.readany() == b"first"
            with pytest.raises(LimitExceeded):
                await get(session, "/ok")
            provider.go.set()
            assert await response.content.read() == b"second"
            await get(session, "/ok")  # read to its end, though not left yet
        provider.go.clear()
        async with session.get("/slow"):
            pass  # left, though not read
        for path in ("/empty", "/ok", "/gzip", "/say/500", "/usage"):
            await get(session, path)
            async with session.head(path):
                pass
            (await session.get(path)).release()
            (await session.get(path)).close()
        await get(session, "/ok")

    store = f"{redis.url}?budget=10s" if on_server else None
    run(provider, main, "1 concurrent", store=store)


def test_a_broken_call_gives_back(provider: Provider) -> None:
    async def main(session: Session, _: Any) -> None:
        with pytest.raises(aiohttp.ClientPayloadError):
            await get(session, "/broken")
        with pytest.raises(aiohttp.ClientConnectorError):
            await get(session, f"http://127.0.0.1:{free_port()}/")
        with pytest.raises(TimeoutError):
            await get(session, "/slow", timeout=aiohttp.ClientTimeout(total=0.05))
        await get(session, "/ok")

    run(provider, main, "1 concurrent")


@pytest.mark.parametrize("on_server", [False, True])
def test_cancelled_tasks_leak_nothing(provider: Provider, redis: Server, on_server: bool) -> None:
    async def whole() -> None:
        store = f"{redis.url}?budget=10s" if on_server else None
        limiter = AsyncLimiter("3 concurrent", name="cancelled", store=store)

        async def main() -> None:
            middleware = RateLimitMiddleware(limiter=limiter, wait=10, key="host")
            async with Session(provider.url, middlewares=(middleware,)) as session:
                for delay in (0.0, 0.001, 0.005, 0.02):
                    tasks = [asyncio.create_task(get(session, "/slow")) for _ in range(8)]
                    await asyncio.sleep(delay)
                    for task in tasks:
                        task.cancel()
                    await asyncio.gather(*tasks, return_exceptions=True)
                provider.go.set()
                await asyncio.gather(*(get(session, "/ok") for _ in range(9)))

        await main()
        for _ in range(100):
            if (await limiter.peek("127.0.0.1")).remaining == 3:
                break
            await asyncio.sleep(0.02)
        assert (await limiter.peek("127.0.0.1")).remaining == 3
        await limiter.close()

    asyncio.run(whole())
    eventually(lambda: provider.inside == 0)


def test_a_gate(provider: Provider) -> None:
    rules = """
    {"version": 1, "rules": [
      {"name": "guess", "match": {"method": "POST", "path": "/say/*", "host": "127.0.0.1",
       "header": {"x-tenant": "blue"}}, "key": ["user"], "limit": "1/minute first-hit",
       "count": "failures"}]}
    """

    async def whole() -> None:
        async with AsyncGate(rules) as gate:
            middleware = RateLimitMiddleware(gate=gate, wait=0, user=lambda request: "ann")
            session = Session(provider.url, middlewares=(middleware,), headers={"X-Tenant": "blue"})
            async with session:
                for _ in range(3):
                    (await session.post("/say/200")).release()
                (await session.post("/say/500")).release()
                with pytest.raises(Refused, match="guess"):
                    await session.post("/say//%32%300/")

    asyncio.run(whole())


def test_metered(provider: Provider) -> None:
    def total_tokens(reply: Reply) -> int:
        tokens: int = reply.json()["usage"]["total_tokens"]
        return tokens

    async def main(session: Session, middleware: RateLimitMiddleware) -> None:
        async def left() -> Any:
            return (await middleware.outgoing.limiter.peek("127.0.0.1")).remaining

        for path, expected in (("/usage", 993), ("/gzip", 986), ("/say/500", 986)):
            async with session.post(path, data=b"x" * 500) as response:
                assert await response.read()
            assert await left() == expected
        with pytest.raises(aiohttp.ClientConnectorError):
            await session.post(f"http://127.0.0.1:{free_port()}/", data=b"x" * 500)
        assert await left() == 986

    run(
        provider, main, "1000/hour first-hit", key="host",
        cost=lambda request: int(request.headers["Content-Length"]), settle=total_tokens,
    )  # fmt: skip
