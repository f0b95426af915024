"""Stores by URL and by client, as a user opens them, with all that stands in front."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import Any

import pytest

import headgate
from headgate import AsyncLimiter, Limiter
from headgate.errors import StoreError
from headgate.stores.redis import open_redis
from servers import Server

LONG = 30.0
"""A budget for calls that are to succeed, however busy the machine is."""


def test_by_url(server: Server) -> None:
    for number, url in enumerate((server.url, server.unix_url, "valkey" + server.url[5:])):
        with Limiter("2/minute", store=url + "?budget=30s", name=f"url{number}") as limiter:
            assert [bool(limiter.hit("k")) for _ in range(3)] == [True, True, False]


def test_limiters_of_one_url_share_what_is_used(server: Server) -> None:
    url = server.url + "?budget=30s&cache=no"
    with (
        Limiter("2/minute", store=url, name="s") as one,
        Limiter("2/minute", store=url, name="s") as two,
    ):
        assert one.hit("k")
        assert two.hit("k")
        assert not one.hit("k")


@pytest.mark.parametrize("package", ["redis", "valkey"])
def test_by_client(package: str, server: Server) -> None:
    made = __import__(package)
    client = (made.Redis if package == "redis" else made.Valkey)(port=server.port)
    store = open_redis(client, budget=LONG)
    patient = Limiter("2/minute", store=store, name=package)
    assert [bool(patient.hit("k")) for _ in range(3)] == [True, True, False]
    store.close()
    with Limiter("2/minute", store=client, name=f"{package}, hasty") as limiter:
        assert limiter.hit("k")
    with pytest.raises(StoreError, match="closed"):
        limiter.hit("k")
    assert client.ping()  # the client is left as it was
    client.close()


def test_by_a_client_of_the_users_own_kind(server: Server) -> None:
    import redis

    class Mine(redis.Redis):
        pass

    mine = Mine(port=server.port)
    with Limiter("2/minute", store=mine, name="mine") as limiter:
        assert limiter.hit("k")
    mine.close()


def test_by_async_client(server: Server) -> None:
    async def main() -> list[bool]:
        import redis.asyncio

        client: Any = redis.asyncio.Redis(port=server.port)
        async with AsyncLimiter("2/minute", store=client, name="hasty") as limiter:
            assert await limiter.hit("k")
        store = open_redis(client, budget=LONG)
        patient = AsyncLimiter("2/minute", store=store, name="aclient")
        found = [bool(await patient.hit("k")) for _ in range(3)]
        await store.close_async()
        await client.aclose()
        return found

    assert asyncio.run(main()) == [True, True, False]


def test_bad_addresses_say_what_is_wrong() -> None:
    with pytest.raises(StoreError, match=r"no option 'buget'; known are budget"):
        Limiter("1/minute", store="redis://localhost?buget=3")
    with pytest.raises(StoreError, match="known are memory://"):
        Limiter("1/minute", store="mongo://localhost")
    with pytest.raises(TypeError, match="a client of redis-py, not object"):
        Limiter("1/minute", store=object())


def test_importing_headgate_imports_no_client() -> None:
    probe = "import sys, headgate; print('redis' in sys.modules, 'valkey' in sys.modules)"
    out = subprocess.run([sys.executable, "-c", probe], check=True, capture_output=True, text=True)
    assert out.stdout.split() == ["False", "False"]


def test_without_a_server_a_limiter_still_answers() -> None:
    with Limiter("2/minute", store="redis://127.0.0.1:1/0", on_error="allow") as limiter:
        decision = limiter.hit("k")
        assert (decision.allowed, decision.degraded) == (True, True)
    with Limiter("2/minute", store="redis://127.0.0.1:1/0", on_error="deny") as limiter:
        assert not limiter.hit("k")
    with Limiter("4/minute", store="redis://127.0.0.1:1/0?nodes=2") as limiter:
        decisions = [limiter.hit("k") for _ in range(3)]
        assert [bool(decision) for decision in decisions] == [True, True, False]
        assert all(decision.degraded for decision in decisions)
    assert isinstance(headgate.errors.StoreUnavailable("x"), StoreError)
