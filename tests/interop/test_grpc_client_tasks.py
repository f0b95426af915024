"""gRPC clients of tasks: limits, permits until a call ends, gates and meters."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import grpc
import pytest
from grpc_client_tools import BLUE, KINDS, RULES, Provider, every_kind
from outgoing_tools import START

from headgate import AsyncGate, AsyncLimiter, LimitExceeded, ManualClock, Refused
from headgate.integrations.grpc_client import (
    AskedToWait,
    AsyncRateLimitInterceptors,
)
from servers import Server


@pytest.fixture
def provider() -> Iterator[Provider]:
    started = Provider()
    yield started
    started.close()


@pytest.fixture(scope="module")
def redis() -> Iterator[Server]:
    with Server() as server:
        yield server


class Tasks:
    """The same for tasks."""

    def __init__(self, provider: Provider, *limits: str, **options: Any) -> None:
        self.interceptors = AsyncRateLimitInterceptors(*limits, **{"wait": 0, **options})
        self.channel = grpc.aio.insecure_channel(provider.target, interceptors=self.interceptors)

    def start(self, kind: str, message: str = "ok", **options: Any) -> Any:
        given = message.encode()

        async def several() -> AsyncIterator[bytes]:
            yield given

        method = getattr(self.channel, kind)(f"/provider.Api/{kind}")
        return method(several() if kind.startswith("stream") else given, **options)

    async def call(self, kind: str, message: str = "ok", **options: Any) -> Any:
        call = self.start(kind, message, **options)
        return await ended(kind, call)

    async def __aenter__(self) -> Tasks:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.channel.close()
        await self.interceptors.close()


async def ended(kind: str, call: Any) -> Any:
    return await call if kind.endswith("unary") else [reply async for reply in call][-1]


@every_kind
@pytest.mark.parametrize("far", [False, True])
def test_tasks(provider: Provider, redis: Server, kind: str, far: bool) -> None:
    async def main() -> None:
        store = f"{redis.url}?budget=10s" if far else None
        name = f"tasks {kind}"
        async with Tasks(
            provider, "1 concurrent", "3/hour first-hit", store=store, name=name
        ) as client:
            for _ in range(3):  # what one gives back the next one has
                assert await client.call(kind) == b"done"
            with pytest.raises(LimitExceeded):
                await client.call(kind)

    asyncio.run(main())
    assert provider.calls == [kind] * 3


@every_kind
def test_tasks_hold_until_the_call_ends(provider: Provider, kind: str) -> None:
    async def main() -> None:
        async with Tasks(provider, "1 concurrent") as client:
            outgoing = client.interceptors.outgoing

            async def until(free: bool) -> None:
                for _ in range(10_000):
                    if bool(await outgoing.limiter.peek("")) is free:
                        return
                    await asyncio.sleep(0.005)
                raise AssertionError("it is still held" if free else "it was not taken")

            for ending in ("read", "cancelled", "late", "failed"):
                provider.go.clear()
                timeout = 0.05 if ending == "late" else None
                message = "exhausted" if ending == "failed" else "slow"
                call = client.start(kind, message, timeout=timeout)
                if ending in ("read", "cancelled"):
                    await until(free=False)
                    with pytest.raises(LimitExceeded):
                        await client.call(kind)
                if ending == "read":
                    provider.go.set()
                    assert await ended(kind, call) == b"done"
                elif ending == "cancelled":
                    call.cancel()
                else:
                    with pytest.raises(grpc.RpcError):
                        await ended(kind, call)
                await until(free=True)
                provider.go.set()
            assert await client.call(kind) == b"done"

    asyncio.run(main())


def test_tasks_listen_to_the_server(provider: Provider) -> None:
    async def main() -> None:
        clock = ManualClock(START)
        async with Tasks(provider, jitter=0, clock=clock) as client:
            with pytest.raises(grpc.RpcError):
                await client.call("unary_unary", "exhausted retry-after=7")
            with pytest.raises(AskedToWait):
                await client.call("stream_stream")  # they count together
            clock.advance(7)
            await client.call("stream_stream")

    asyncio.run(main())


@pytest.mark.parametrize("far", [False, True])
def test_cancelled_tasks_leak_nothing(provider: Provider, redis: Server, far: bool) -> None:
    async def main() -> None:
        store = f"{redis.url}?budget=10s" if far else None
        limiter = AsyncLimiter("3 concurrent", name="cancelled", store=store)
        async with Tasks(provider, limiter=limiter, wait=10) as client:
            for delay in (0.0, 0.001, 0.005, 0.02):
                # grpc.aio itself leaves a stream open whose reader is cancelled just as it begins,
                # until the deadline.
                tasks = [
                    asyncio.create_task(client.call(kind, "slow", timeout=0.5))
                    for kind in KINDS
                    for _ in "12"
                ]
                await asyncio.sleep(delay)
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
            provider.go.set()
            await asyncio.gather(*(client.call(kind) for kind in KINDS for _ in "12"))
            for _ in range(3000):
                if (await limiter.peek("")).remaining == 3:
                    break
                await asyncio.sleep(0.02)
            assert (await limiter.peek("")).remaining == 3
        await limiter.close()

    asyncio.run(main())


def test_a_gate_and_a_meter_for_tasks(provider: Provider) -> None:
    async def main() -> None:
        gate = AsyncGate(RULES)
        async with Tasks(
            provider, gate=gate, resource="api", host="api.example",
            failed=lambda code: code is grpc.StatusCode.OK,
        ) as client:  # fmt: skip
            await client.call("unary_unary", metadata=BLUE)
            with pytest.raises(Refused):
                await client.call("unary_unary", metadata=BLUE)
        await gate.close()
        async with Tasks(provider, "1000/hour first-hit", cost=100, settle=len) as client:
            limiter = client.interceptors.outgoing.limiter
            await client.call("unary_unary")
            await client.call("unary_stream")
            while client.interceptors.outgoing.leaving:
                await asyncio.sleep(0.001)
            assert (await limiter.peek("")).remaining == 1000 - 4 - 100

    asyncio.run(main())
