"""Mistakes seen in well-meant limiters: waiting, concurrency and errors, on a server."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from headgate import AsyncLimiter, Limiter, LimitExceeded
from headgate.errors import StoreUnavailable
from headgate.stores.redis import RedisStore
from servers import Server, until


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server() as started:
        yield started


@pytest.fixture
def store(server: Server) -> Iterator[RedisStore]:
    with server.client() as client:
        client.flushall()
    made = RedisStore(server.url, budget=30)
    yield made
    made.close()


def test_a_waiting_key_does_not_block_others(store: RedisStore) -> None:
    limiter = Limiter("1 concurrent", store=store)
    go = threading.Event()

    def waits() -> None:
        with limiter.hold("k", timeout=60):
            go.wait()

    with limiter.hold("k"):
        waiting = threading.Thread(target=waits)
        waiting.start()
        with limiter.hold("other", timeout=60):
            assert waiting.is_alive()
    go.set()
    waiting.join()


def test_who_cannot_pass_in_time_is_told_at_once(store: RedisStore) -> None:
    limiter = Limiter("1/hour", store=store)
    assert limiter.hit("k")
    start = time.monotonic()
    with pytest.raises(LimitExceeded):
        limiter.wait("k", timeout=60)
    assert time.monotonic() - start < 30


def test_an_interrupted_wait_keeps_no_permit(store: RedisStore) -> None:
    async def main() -> None:
        limiter = AsyncLimiter("1 concurrent", store=store)
        async with limiter.hold("k"):
            tasks = [asyncio.create_task(hold(limiter)) for _ in range(5)]
            await asyncio.sleep(0.1)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        async with limiter.hold("k", timeout=60):
            pass
        await store.close_async()

    asyncio.run(main())


def test_of_a_hundred_guesses_at_once_three_are_made(store: RedisStore) -> None:
    async def main() -> int:
        limiter = AsyncLimiter("3/30d fixed-window", store=store)
        made = 0

        async def guess() -> None:
            nonlocal made
            async with limiter.attempt("login") as attempt:
                made += 1
                await asyncio.sleep(0.05)
                attempt.fail()

        ends = await asyncio.gather(*(guess() for _ in range(100)), return_exceptions=True)
        assert sum(isinstance(end, LimitExceeded) for end in ends) == 97
        await store.close_async()
        return made

    assert asyncio.run(main()) == 3


def test_a_guess_that_was_right_gives_its_place_back(store: RedisStore) -> None:
    limiter = Limiter("3/30d fixed-window", store=store)
    for _ in range(10):
        with limiter.attempt("login"):
            pass
    assert limiter.peek("login").remaining == 3


@pytest.mark.parametrize("hurt", [Server.kill, Server.stop], ids=["killed", "stopped"])
def test_an_error_is_neither_a_refusal_nor_a_stall(hurt: Callable[[Server], None]) -> None:
    with Server() as server:
        store = RedisStore(server.url, budget=0.2)
        limiter = Limiter("5/hour", store=store)
        until(lambda: answered(limiter))
        hurt(server)
        start = time.monotonic()
        for _ in range(20):
            with pytest.raises(StoreUnavailable):
                limiter.hit("k")
        assert time.monotonic() - start < 30  # far less than twenty of anybody's time-outs
        store.close()


def answered(limiter: Limiter) -> bool:
    try:
        limiter.hit("k")
    except StoreUnavailable:
        return False
    return True


async def hold(limiter: AsyncLimiter) -> None:
    async with limiter.hold("k", timeout=30):
        pass
