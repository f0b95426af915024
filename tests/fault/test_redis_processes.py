"""Processes on a server that fork, die with permits in hand, or cancel what they asked for."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from headgate import AsyncLimiter, Limiter
from headgate.callers import errands_done
from headgate.errors import LimitExceeded
from headgate.stores.redis import RedisStore
from headgate.stores.redis.link import Command
from servers import Server

from .support import FORM, environment, forked
from .support_redis import SCALE
from .support_redis_holder import LIMITS

LONG = 30.0
"""A budget for calls that are to succeed, however busy the machine is."""
TTL = 3.0
NOISE = 20.0
"""Seconds that a busy machine may take for what takes none."""


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server() as started:
        yield started


@pytest.fixture
def store(server: Server) -> Iterator[RedisStore]:
    with server.client() as client:
        client.flushall()
    made = RedisStore(server.url, budget=LONG, connect_timeout=LONG)
    yield made
    made.close()


# -- forks


def connection_of(store: RedisStore) -> int:
    """The number that the server gave to this thread's connection."""

    def asking() -> Any:
        return (yield [Command((b"CLIENT", b"ID"))])

    (number,) = store.link.run(asking())
    return int(number)


async def connection_of_loop(store: RedisStore) -> int:
    """The number that the server gave to this loop's connection."""

    def asking() -> Any:
        return (yield [Command((b"CLIENT", b"ID"))])

    (number,) = await store.alink.run(asking())
    return int(number)


def within(seconds: int, call: Callable[[], None]) -> Callable[[], None]:
    """A call that ends its process if it takes too long."""

    def limited() -> None:
        signal.alarm(seconds)
        call()

    return limited


def join(*pids: int) -> None:
    assert [os.waitpid(pid, 0)[1] for pid in pids] == [0] * len(pids)


def test_a_fork_has_connections_of_its_own(store: RedisStore) -> None:
    limiter = Limiter("100/30d fixed-window", "200/30d gcra", store=store)
    limiter.hit("k")
    parents = connection_of(store)

    def child() -> None:
        assert connection_of(store) != parents
        for _ in range(10):
            assert limiter.hit("k")
        assert len(limiter.hit_many(["k", "k"])) == 2

    pids = [forked(within(60, child)) for _ in range(4)]
    for _ in range(10):
        assert limiter.hit("k")
    join(*pids)
    assert connection_of(store) == parents
    assert [part.remaining for part in limiter.peek("k").parts] == [41, 141]


def test_a_fork_of_a_fork(store: RedisStore) -> None:
    limiter = Limiter("100/30d", store=store)
    limiter.hit("k")

    def child() -> None:
        assert limiter.hit("k")
        join(forked(within(60, grandchild)))
        assert limiter.hit("k")

    def grandchild() -> None:
        assert limiter.hit("k")

    join(forked(within(60, child)))
    assert limiter.hit("k").remaining == 95


def test_a_fork_out_of_an_event_loop(store: RedisStore) -> None:
    async def parent() -> None:
        limiter = AsyncLimiter("100/30d", store=store)
        await limiter.hit("k")
        parents = await connection_of_loop(store)
        pid = forked(within(60, lambda: child(parents)))
        for _ in range(10):
            await limiter.hit("k")
        join(pid)
        assert await connection_of_loop(store) == parents
        assert (await limiter.hit("k")).remaining == 73
        await store.close_async()

    def child(parents: int) -> None:
        # The parent's loop counts as running here: another thread has none.
        thread = threading.Thread(target=lambda: asyncio.run(takes(parents)))
        thread.start()
        thread.join()
        assert done

    async def takes(parents: int) -> None:
        limiter = AsyncLimiter("100/30d", store=store)
        assert await connection_of_loop(store) != parents
        for _ in range(15):
            await limiter.hit("k")
        done.append(True)

    done: list[bool] = []
    asyncio.run(parent())


def test_forks_while_other_threads_decide(store: RedisStore) -> None:
    limiter = Limiter("1000000/30d fixed-window", store=store)
    over, counts = threading.Event(), [0, 0, 0]

    def decide(number: int) -> None:
        while not over.is_set():
            counts[number] += limiter.hit("k").allowed

    threads = [threading.Thread(target=decide, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()

    def child() -> None:
        assert limiter.hit("k")

    forks = 15 * SCALE
    for _ in range(forks):
        time.sleep(random.uniform(0, 0.003))
        join(forked(within(60, child)))
    over.set()
    for thread in threads:
        thread.join()
    assert limiter.hit("k").remaining == 1_000_000 - sum(counts) - forks - 1


_shared: Limiter


def _hit(_: int) -> tuple[int, bool]:
    return os.getpid(), _shared.hit("k").allowed


def test_multiprocessing(store: RedisStore) -> None:
    global _shared
    _shared = Limiter("50/30d", store=store)
    _shared.hit("k")
    with multiprocessing.get_context("fork").Pool(4) as pool:
        found = pool.map(_hit, range(100), chunksize=5)
    assert sum(allowed for _, allowed in found) == 49
    assert not _shared.hit("k")


# -- holders that die


@pytest.mark.parametrize("way", LIMITS)
def test_what_a_dead_process_held_comes_back(way: str, server: Server, store: RedisStore) -> None:
    limiter = Limiter(LIMITS[way], store=store, name=way)
    command = [sys.executable, "-m", "fault.support_redis_holder"]
    began = time.monotonic()
    holder = subprocess.Popen(
        [*command, FORM, server.url, way, str(TTL)], env=environment(), stdout=subprocess.PIPE
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline()
        if way in ("thread", "task"):  # renewed as long as it lives
            end = time.monotonic() + 1.5 * TTL
            while time.monotonic() < end:
                assert not limiter.peek("door").allowed
                time.sleep(0.02)
        holder.kill()
        dead = time.monotonic()
    finally:
        holder.kill()
        holder.wait()
        holder.stdout.close()  # type: ignore[union-attr]
    # What was renewed lately, or taken lately, is held for some time yet.
    held_for = dead + TTL / 3 if way in ("thread", "task") else began + TTL
    assert not limiter.peek("door").allowed or time.monotonic() > held_for
    while not limiter.peek("door").allowed:
        assert time.monotonic() - dead < TTL + 1 + NOISE
        time.sleep(0.01)
    if way == "reservation":
        assert limiter.hit("door")
    else:
        with limiter.hold("door"):
            pass


# -- cancellations


CALLS = 10_000 * SCALE


def test_cancelled_holds_keep_no_permit(store: RedisStore) -> None:
    async def main() -> int:
        limiter = AsyncLimiter("5 concurrent", store=store, name="door")
        entered = 0
        luck = random.Random(7)

        async def hold() -> None:
            nonlocal entered
            async with limiter.hold("k", timeout=luck.choice([0.0, 30.0])):
                entered += 1
                await asyncio.sleep(luck.choice([0.0, 0.0005]))

        for _ in range(CALLS // 50):
            tasks = [asyncio.create_task(hold()) for _ in range(50)]
            for _ in range(luck.randrange(8)):  # some turns of the loop, each at its own point
                await asyncio.sleep(luck.choice([0.0, 0.0, 0.0003]))
            for task in tasks:
                task.cancel()
            for end in await asyncio.gather(*tasks, return_exceptions=True):
                assert end is None or isinstance(end, asyncio.CancelledError | LimitExceeded), end
        await errands_done()
        # At once, and not only when leases run out.
        assert (await limiter.peek("k", cost=5)).allowed
        async with limiter.hold("k", cost=5):
            assert not (await limiter.peek("k")).allowed
        await store.close_async()
        return entered

    assert asyncio.run(main()) > 0


def test_replies_to_cancelled_hits_reach_nobody_else(store: RedisStore) -> None:
    async def main() -> None:
        counted = AsyncLimiter("1000000000/30d fixed-window", store=store, name="counted")
        asked, told, luck = 0, 0, random.Random(11)

        async def hit() -> None:
            nonlocal asked, told
            asked += 1
            told += (await counted.hit("k")).allowed

        async def own(number: int) -> None:
            """A key, a cost and a limit of its own: anybody else's answer would differ."""
            limiter = AsyncLimiter(f"{1000 + number}/30d gcra", store=store, name="own")
            decision = await limiter.hit(f"own {number}", cost=number % 7 + 1)
            assert decision.remaining == 1000 + number - (number % 7 + 1)
            assert decision.limit.amount == 1000 + number

        for number in range(CALLS // 50):
            tasks = [asyncio.create_task(hit()) for _ in range(50)]
            whole = asyncio.create_task(own(number))
            for _ in range(luck.randrange(4)):
                await asyncio.sleep(luck.choice([0.0, 0.0, 0.0002]))
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await whole
        taken = 1_000_000_000 - (await counted.peek("k")).remaining
        assert told <= taken <= asked
        await store.close_async()

    asyncio.run(main())
