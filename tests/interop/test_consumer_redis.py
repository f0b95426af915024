"""Paced messages of a real broker: Redis streams with a consumer group in several processes."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis.asyncio

from headgate import AsyncLimiter
from headgate.integrations.consumer import paced
from servers import Server

STREAM, GROUP = "orders", "workers"
HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def running() -> Iterator[Server]:
    with Server() as server:
        yield server


@pytest.fixture
def server(running: Server) -> Server:
    with running.client() as client:
        client.flushall()
        client.xgroup_create(STREAM, GROUP, "0", mkstream=True)
        for number in range(60):
            client.xadd(STREAM, {"number": number})
    return running


def consume(server: Server, limit: str, wait: str, processes: int = 3) -> list[int]:
    """How many messages each of several processes has handled."""
    path = os.pathsep.join([str(HERE), str(HERE.parents[1] / "src")])
    started = [
        subprocess.Popen(
            [sys.executable, str(HERE / "stream_worker.py"), server.url, f"c{place}", limit, wait],
            env={**os.environ, "PYTHONPATH": path},
            stdout=subprocess.PIPE,
            text=True,
        )
        for place in range(processes)
    ]
    return [int(process.communicate(timeout=60)[0]) for process in started]


def group_of(server: Server) -> Any:
    with server.client(decode_responses=True) as client:
        return client.xinfo_groups(STREAM)[0]


def test_processes_share_a_rate(server: Server) -> None:
    assert sum(consume(server, "20/30d fixed-window", "0")) == 20
    # Nobody has fetched what it was not allowed to handle.
    group = group_of(server)
    assert group["pending"] == 0
    with server.client() as client:
        assert len(client.xrange(STREAM, f"({group['last-delivered-id']}")) == 40


def test_processes_share_permits(server: Server) -> None:
    assert sum(consume(server, "2 concurrent", "")) == 60
    assert group_of(server)["pending"] == 0
    with server.client() as client:
        inside = [int(count) for count in client.lrange("inside", 0, -1)]
    assert len(inside) == 60
    assert max(inside) <= 2


async def messages_of(client: Any) -> AsyncIterator[Any]:
    while True:
        for _, found in await client.xreadgroup(GROUP, "task", {STREAM: ">"}, count=1, block=5000):
            for message in found:
                yield message


def test_a_task_that_is_cancelled_gives_back(server: Server) -> None:
    async def main() -> None:
        client = redis.asyncio.Redis.from_url(server.url)
        limiter = AsyncLimiter("1 concurrent", store=f"{server.url}?budget=10s")
        seen = asyncio.Event()

        async def work() -> None:
            async with paced(messages_of(client), limiter) as messages:
                async for _ in messages:
                    seen.set()
                    await asyncio.Event().wait()

        task = asyncio.create_task(work())
        await seen.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        async with limiter.hold(timeout=5):  # long before its lease would end
            pass
        assert group_of(server)["pending"] == 1  # one was fetched, and it is still the group's
        await limiter.close()
        await client.aclose()

    asyncio.run(main())
