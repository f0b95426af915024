"""httpx with limits, against a real server: what is sent, what is held, and for how long."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import textwrap
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from outgoing_tools import START, Provider, eventually, walking

from headgate import AsyncLimiter, Gate, Limiter, LimitExceeded, ManualClock, Refused
from headgate.integrations.httpx import AskedToWait, AsyncRateLimitTransport, RateLimitTransport
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


def client_of(provider: Provider, *limits: str, **options: Any) -> httpx.Client:
    transport = RateLimitTransport(httpx.HTTPTransport(), *limits, **{"wait": 0, **options})
    return httpx.Client(transport=transport, base_url=provider.url)


def async_client_of(provider: Provider, *limits: str, **options: Any) -> httpx.AsyncClient:
    inner = httpx.AsyncHTTPTransport()
    transport = AsyncRateLimitTransport(inner, *limits, **{"wait": 0, **options})
    return httpx.AsyncClient(transport=transport, base_url=provider.url)


def outgoing_of(client: Any) -> Any:
    return client._transport.outgoing


def total_tokens(reply: Reply) -> int:
    tokens: int = reply.json()["usage"]["total_tokens"]
    return tokens


# -- plain functions


def test_five_lines(provider: Provider) -> None:
    with client_of(provider, "2/minute first-hit") as client:
        assert [client.get("/ok").text for _ in range(2)] == ["ok", "ok"]
        with pytest.raises(LimitExceeded) as refused:
            client.get("/ok")
    assert refused.value.key == f"127.0.0.1:{provider.port}"
    assert provider.calls == ["/ok"] * 2  # the third was never sent


def test_a_call_waits_for_its_turn(provider: Provider) -> None:
    clock = ManualClock(START)
    with client_of(provider, "1/second even", wait=None, clock=clock) as client, walking(clock):
        for _ in range(3):
            client.get("/ok")
    assert clock.now() == START + 2


def test_the_server_is_listened_to(provider: Provider) -> None:
    clock = ManualClock(START)
    with client_of(provider, wait=10, jitter=0, clock=clock) as client:
        assert client.get("/say/429", params={"Retry-After": "7"}).status_code == 429
        with walking(clock):
            client.get("/ok")
        assert clock.now() == START + 7
        client.get("/say/200", params={"RateLimit": '"day";r=0;t=600, "burst";r=5;t=1'})
        with pytest.raises(AskedToWait, match="RateLimit: "):
            client.get("/ok")
    assert provider.calls == ["/say/429", "/ok", "/say/200"]


def test_every_hop_counts(provider: Provider) -> None:
    with client_of(provider, "3/minute first-hit") as client:
        client.get("/away", follow_redirects=True)
        with pytest.raises(LimitExceeded):
            client.get("/away", follow_redirects=True)
    assert provider.calls == ["/away", "/ok", "/away"]


def test_a_permit_is_held_until_the_body_ends(provider: Provider) -> None:
    with client_of(provider, "1 concurrent") as client:
        with client.stream("GET", "/slow") as response:
            pieces = response.iter_raw()
            assert next(pieces) == b"first"
            with pytest.raises(LimitExceeded):
                client.get("/ok")
            provider.go.set()
            assert list(pieces) == [b"second"]
            client.get("/ok")  # read to its end, though not left yet
        provider.go.clear()
        with client.stream("GET", "/slow"):
            pass  # closed, though not read
        for path in ("/empty", "/ok", "/gzip", "/say/500"):
            client.get(path)
            client.head(path)


def test_a_broken_call_gives_back(provider: Provider) -> None:
    with client_of(provider, "1 concurrent") as client:
        with pytest.raises(httpx.RemoteProtocolError):
            client.get("/broken")
        with pytest.raises(httpx.ConnectError):
            client.get(f"http://127.0.0.1:{free_port()}/")
        with pytest.raises(httpx.ReadTimeout):
            client.get("/slow", timeout=0.05)
        client.get("/ok")


def test_a_response_that_is_dropped_gives_back(provider: Provider) -> None:
    with client_of(provider, "1 concurrent") as client:
        response = client.send(client.build_request("GET", "/slow"), stream=True)
        with pytest.raises(LimitExceeded):
            client.get("/ok")
        del response
        gc.collect()
        client.get("/ok")


def test_threads_never_exceed(provider: Provider) -> None:
    with client_of(provider, "3 concurrent", wait=30) as client:
        threads = [threading.Thread(target=client.get, args=("/ok",)) for _ in range(24)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(provider.calls) == 24
    assert provider.most <= 3


def test_a_limiter_and_a_gate(provider: Provider) -> None:
    limiter = Limiter("1/minute first-hit", name="shared")
    with (
        client_of(provider, limiter=limiter) as client,
        client_of(provider, limiter=limiter) as other,
    ):
        client.get("/ok")
        with pytest.raises(LimitExceeded):
            other.get("/ok")
    rules = """
    {"version": 1, "rules": [
      {"name": "guess", "match": {"method": "POST", "path": "/say/*", "host": "127.0.0.1",
       "header": {"x-tenant": "blue"}, "origin": "shop"}, "limit": "1/minute first-hit",
       "count": "failures"}]}
    """
    clock = ManualClock(START)
    with client_of(provider, gate=Gate(rules, clock=clock), origin="shop") as client:
        client.headers["X-Tenant"] = "blue"
        for _ in range(3):
            client.post("/say/200")
        client.get("/say/500")
        client.post("/say/500")
        with pytest.raises(Refused, match="guess"):
            client.post("/say//%32%300/")
        clock.advance(60)
        client.post("/say/200")
    own = client_of(provider, rules=rules, origin="shop", failed=lambda response: True)
    with own as client:
        client.headers["X-Tenant"] = "blue"
        client.post("/say/200")
        with pytest.raises(Refused, match="guess"):
            client.post("/say/200")


@pytest.mark.parametrize("path", ["/usage", "/gzip"])
def test_metered(provider: Provider, path: str) -> None:
    with client_of(
        provider, "1000/hour first-hit", key="host",
        cost=lambda request: len(request.content), settle=total_tokens,
    ) as client:  # fmt: skip
        limiter = outgoing_of(client).limiter

        def left() -> Any:
            return limiter.peek("127.0.0.1").remaining

        assert client.post(path, content=b"x" * 500).json()["usage"]
        assert left() == 993
        with client.stream("POST", path, content=b"x" * 500) as response:
            assert left() == 493
            assert b"".join(response.iter_raw())
        assert left() == 986
        client.post("/say/500", content=b"x" * 500)
        assert left() == 986
        with pytest.raises(httpx.ConnectError):
            client.post(f"http://127.0.0.1:{free_port()}/", content=b"x" * 500)
        assert left() == 986
        with pytest.raises(LimitExceeded):
            client.post(path, content=b"x" * 987)


def test_transports_stand_on_each_other(provider: Provider) -> None:
    tokens = RateLimitTransport(
        httpx.HTTPTransport(), "10/hour first-hit", wait=0, cost=8, settle=total_tokens
    )
    both = RateLimitTransport(tokens, "1 concurrent", wait=0)
    with httpx.Client(transport=both, base_url=provider.url) as client:
        client.get("/usage")
        with pytest.raises(LimitExceeded):  # 3 are left of 10
            client.get("/usage")
        with pytest.raises(LimitExceeded, match="10/hour"):  # and the permit came back
            client.get("/usage")


def test_a_response_that_came_whole() -> None:
    inner = httpx.MockTransport(lambda request: httpx.Response(200, content=b'{"used": 3}'))
    with httpx.Client(transport=RateLimitTransport(inner, "1 concurrent", wait=0)) as client:
        for _ in range(2):
            assert client.get("http://api.example/").json() == {"used": 3}

    async def main() -> None:
        transport = AsyncRateLimitTransport(
            inner, "10/hour first-hit", wait=0, cost=8, settle=lambda reply: reply.json()["used"]
        )
        async with httpx.AsyncClient(transport=transport) as client:
            await client.get("http://api.example/")
            assert (await transport.outgoing.limiter.peek("api.example")).remaining == 7

    asyncio.run(main())


def test_a_store_that_is_down(provider: Provider) -> None:
    nowhere = f"redis://127.0.0.1:{free_port()}/0"
    for limiter, allowed in (
        (Limiter("1/hour first-hit", store=nowhere, on_error="allow"), True),
        (Limiter("1/hour first-hit", store=nowhere, on_error="deny"), False),
    ):
        with client_of(provider, limiter=limiter) as client:
            if allowed:
                assert [client.get("/ok").status_code for _ in range(3)] == [200] * 3
            else:
                with pytest.raises(LimitExceeded):
                    client.get("/ok")
        limiter.close()


# -- many processes


def test_processes_share_one_quota(provider: Provider, redis: Server) -> None:
    program = textwrap.dedent("""
        import sys, httpx
        from headgate import LimitExceeded
        from headgate.integrations.httpx import RateLimitTransport
        url, store = sys.argv[1:]
        transport = RateLimitTransport(
            httpx.HTTPTransport(), "2 concurrent", "20/minute first-hit",
            store=store, wait=5,
        )
        with httpx.Client(transport=transport, base_url=url) as client:
            for _ in range(15):
                try:
                    client.get("/ok")
                except LimitExceeded:
                    pass
    """)
    source = Path(__file__).parents[2] / "src"
    store = f"{redis.url}?budget=10s"
    command = [sys.executable, "-c", program, provider.url, store]
    running = [
        subprocess.Popen(command, env={"PYTHONPATH": str(source)}, stderr=subprocess.PIPE)
        for _ in range(2)
    ]
    for process in running:
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 0, errors.decode()
    assert len(provider.calls) == 20  # all of the quota, and not one more
    assert provider.most <= 2


# -- tasks


def test_tasks(provider: Provider) -> None:
    async def main() -> None:
        clock = ManualClock(START)
        async with async_client_of(provider, "2/minute first-hit", clock=clock, jitter=0) as client:
            for _ in range(2):
                assert (await client.get("/ok")).text == "ok"
            with pytest.raises(LimitExceeded):
                await client.get("/ok")
            clock.advance(60)
            await client.get("/say/503", params={"Retry-After": "5"})
            with pytest.raises(AskedToWait):
                await client.get("/ok")
            clock.advance(5)
            await client.get("/ok")

    asyncio.run(main())
    assert len(provider.calls) == 4


def test_tasks_hold_until_the_body_ends(provider: Provider) -> None:
    async def main() -> None:
        async with async_client_of(provider, "1 concurrent") as client:
            async with client.stream("GET", "/slow") as response:
                pieces: AsyncIterator[bytes] = response.aiter_raw()
                assert await anext(pieces) == b"first"
                with pytest.raises(LimitExceeded):
                    await client.get("/ok")
                provider.go.set()
                assert [piece async for piece in pieces] == [b"second"]
                await client.get("/ok")
            with pytest.raises(httpx.RemoteProtocolError):
                await client.get("/broken")
            with pytest.raises(httpx.ConnectError):
                await client.get(f"http://127.0.0.1:{free_port()}/")
            await client.get("/ok")

    asyncio.run(main())


@pytest.mark.parametrize("far", [False, True])
def test_cancelled_tasks_leak_nothing(provider: Provider, redis: Server, far: bool) -> None:
    async def main() -> None:
        store = f"{redis.url}?budget=10s" if far else None
        limiter = AsyncLimiter("3 concurrent", name="cancelled", store=store)
        async with async_client_of(provider, limiter=limiter, wait=10, key="host") as client:
            for delay in (0.0, 0.001, 0.005, 0.02):
                tasks = [asyncio.create_task(client.get("/slow")) for _ in range(8)]
                await asyncio.sleep(delay)
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
            provider.go.set()
            await asyncio.gather(*(client.get("/ok") for _ in range(9)))
            for _ in range(100):
                if (await limiter.peek("127.0.0.1")).remaining == 3:
                    break
                await asyncio.sleep(0.02)
            assert (await limiter.peek("127.0.0.1")).remaining == 3
        await limiter.close()

    asyncio.run(main())
    eventually(lambda: provider.inside == 0)


def test_metered_tasks_on_a_server(provider: Provider, redis: Server) -> None:
    async def main() -> None:
        async with async_client_of(
            provider, "1000/hour first-hit", store=f"{redis.url}?budget=10s", name="metered",
            cost=500, settle=total_tokens,
        ) as client:  # fmt: skip
            limiter = outgoing_of(client).limiter
            await client.get("/usage")
            key = f"127.0.0.1:{provider.port}"
            assert (await limiter.peek(key)).remaining == 993
            async with client.stream("GET", "/slow") as response:
                await response.aclose()
            assert (await limiter.peek(key)).remaining == 493  # nobody knows, so it stays

    asyncio.run(main())
