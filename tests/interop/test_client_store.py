"""Limiters whose store is a service: the same names and answers, over HTTP."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
from client_store_tools import EVER, url

from client_tools import Decider, Service
from headgate import AsyncLimiter, Limit, Limiter, LimitExceeded, StoreError
from headgate.decision import Ask
from headgate.stores import MemoryStore
from headgate.stores.client import ClientStore, open_client


@pytest.fixture
def service() -> Iterator[Service]:
    with Service() as started:
        yield started


# -- the front door


def test_a_limiter(service: Service) -> None:
    with Limiter(f"3/hour {EVER}", "9 concurrent", store=url(service)) as limiter:
        with limiter.hold("k", cost=2) as permit:
            assert permit.decision.remaining == 1
        assert limiter.peek("k").remaining == 1
    with Limiter(f"3/hour {EVER}", store=url(service), name="other") as limiter:
        assert [limiter.hit("k").remaining for _ in range(3)] == [2, 1, 0]
        refused = limiter.hit("k")
        assert not refused
        assert 3500 < refused.retry_after <= 3600
        assert not refused.degraded
        assert [bool(one) for one in limiter.hit_many(["a", "a", "a", "a", "b"])] == [
            True, True, True, False, True,
        ]  # fmt: skip
        limiter.reset("k")
        assert limiter.hit("k", cost=5, partial=True).granted == 3
        limiter.set_limit("k", f"10/hour {EVER}")
        assert limiter.hit("k").remaining == 6
        with pytest.raises(LimitExceeded):
            limiter.wait("a", timeout=0.01)
        with limiter.reserve("c", cost=3) as reservation:
            reservation.settle(1)
        assert limiter.peek("c").remaining == 2


def test_an_async_limiter(service: Service) -> None:
    async def work() -> None:
        async with AsyncLimiter(f"3/hour {EVER}", store=url(service)) as limiter:
            assert [(await limiter.hit("k")).remaining for _ in range(3)] == [2, 1, 0]
            assert not await limiter.hit("k")
            assert [bool(one) for one in await limiter.hit_many(list("aaaab"))] == [
                True, True, True, False, True,
            ]  # fmt: skip
            await limiter.set_limit("k", f"10/hour {EVER}")
            assert (await limiter.hit("k")).remaining == 6
            await limiter.reset("k")
            async with limiter.reserve("c", cost=3) as reservation:
                reservation.settle(1)
            assert (await limiter.peek("c")).remaining == 2
        async with AsyncLimiter("1 concurrent", store=url(service)) as limiter:
            async with limiter.hold("k"):
                with pytest.raises(LimitExceeded):
                    await limiter.hold("k").__aenter__()
            async with limiter.hold("k"):
                pass

    asyncio.run(work())


def test_waiting_tasks_are_let_in_by_a_release(service: Service) -> None:
    async def work() -> int:
        done = 0
        async with AsyncLimiter("2 concurrent", store=url(service)) as limiter:

            async def one() -> None:
                nonlocal done
                async with limiter.hold("k", timeout=60):
                    await asyncio.sleep(0.001)
                    done += 1

            await asyncio.gather(*(one() for _ in range(10)))
            assert (await limiter.peek("k")).remaining == 2
        return done

    assert asyncio.run(work()) == 10


def test_all_limits_or_none_on_one_service_from_two_stores(service: Service) -> None:
    limits = (f"5/hour {EVER}", f"3/day {EVER}")
    with Limiter(*limits, store=url(service)) as one, Limiter(*limits, store=url(service)) as two:
        passed = [bool(limiter.hit("k")) for _ in range(3) for limiter in (one, two)]
        assert sum(passed) == 3
        assert [part.remaining for part in one.peek("k").parts] == [2, 0]


def test_what_is_refused_is_known_here(service: Service) -> None:
    app: Decider = service.app
    with Limiter(f"1/hour {EVER}", store=url(service)) as limiter:
        assert limiter.hit("k")
        assert not limiter.hit("k")
        before = len(app.bodies)
        assert not any(limiter.hit("k") for _ in range(20))
        assert len(app.bodies) == before
    with Limiter(f"1/hour {EVER}", store=url(service, "cache=no"), name="b") as limiter:
        limiter.hit("k")
        before = len(app.bodies)
        assert not any(limiter.hit("k") for _ in range(20))
        assert len(app.bodies) == before + 20


# -- together


def test_tasks_travel_together(service: Service) -> None:
    app: Decider = service.app

    async def work() -> int:
        async with AsyncLimiter(f"150/hour {EVER}", store=url(service, "cache=no")) as limiter:
            await limiter.hit("first")
            app.bodies.clear()
            found = await asyncio.gather(*(limiter.hit("k") for _ in range(200)))
            assert not any(one.degraded for one in found)
            return sum(one.allowed for one in found)

    assert asyncio.run(work()) == 150
    assert sum(app.bodies) == 200
    assert len(app.bodies) <= 4


def test_threads_travel_together(service: Service) -> None:
    app: Decider = service.app
    gate = threading.Event()

    def slowly(path: str) -> Any:
        return asyncio.sleep(0.02)

    with Limiter(f"30/hour {EVER}", store=url(service, "cache=no")) as limiter:
        limiter.hit("first")
        app.bodies.clear()
        app.before = slowly
        passed: list[bool] = []

        def work() -> None:
            gate.wait()
            passed.extend(bool(limiter.hit("k")) for _ in range(2))

        threads = [threading.Thread(target=work) for _ in range(40)]
        for thread in threads:
            thread.start()
        gate.set()
        for thread in threads:
            thread.join()
    assert sum(passed) == 30
    asked = [count for count in app.bodies if count]  # without greetings
    assert sum(asked) == 80
    assert len(asked) < 60


def test_many_threads_are_exact(service: Service) -> None:
    with Limiter(f"200/hour {EVER}", store=url(service)) as limiter:
        passed: list[int] = []

        def work() -> None:
            passed.append(sum(bool(limiter.hit("k")) for _ in range(20)))

        old = sys.getswitchinterval()
        sys.setswitchinterval(1e-6)
        try:
            threads = [threading.Thread(target=work) for _ in range(16)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        finally:
            sys.setswitchinterval(old)
        assert sum(passed) == 200


def test_many_keys_are_more_than_one_body(service: Service) -> None:
    app: Decider = service.app
    keys = [f"user:{number}" for number in range(2000)]
    with Limiter(f"1/hour {EVER}", store=url(service)) as limiter:
        assert all(limiter.hit_many(keys))
        assert not any(limiter.hit_many(keys))
    assert max(app.bodies) < 2000

    async def work() -> None:
        async with AsyncLimiter(f"1/hour {EVER}", store=url(service), name="b") as limiter:
            assert all(await limiter.hit_many(keys))

    asyncio.run(work())


def test_one_bad_neighbour_does_not_spoil_the_others(service: Service) -> None:
    app: Decider = service.app
    store = ClientStore(url(service))
    limit = Limit.parse("5/minute")
    app.largest = 3000
    groups = [[Ask("take", limit, f"{'x' * 100}{number}")] for number in range(60)]
    assert all(decision.allowed for (decision,) in store.decide_many(groups))  # halved until taken
    with pytest.raises(StoreError, match="413: too large"):
        store.decide([Ask("take", limit, "x" * 4000)])
    store.close()


# -- cancellation


def test_cancelled_tasks_leave_no_permit(service: Service) -> None:
    app: Decider = service.app

    async def work() -> None:
        async with AsyncLimiter("50 concurrent", store=url(service)) as limiter:

            async def one() -> None:
                async with limiter.hold("k", timeout=60):
                    await asyncio.sleep(0.0005)

            await one()
            for turn in range(20):
                tasks = [asyncio.create_task(one()) for _ in range(20)]
                for _ in range(turn % 5):
                    await asyncio.sleep(0)
                if turn % 2:
                    await asyncio.sleep(turn / 2000)
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
            end = time.monotonic() + 60
            while (left := (await limiter.peek("k")).remaining) < 50:
                assert time.monotonic() < end, left
                await asyncio.sleep(0.005)

    app.before = lambda path: asyncio.sleep(0.002)
    asyncio.run(work())


def test_a_release_never_overtakes_its_take(service: Service) -> None:
    """The take is kept waiting at the service, and what gives it back waits for it."""
    app: Decider = service.app
    held, go_on = threading.Event(), threading.Event()

    async def work() -> None:
        store = ClientStore(url(service))
        limit = Limit.parse("1 concurrent")
        await store.decide_async([Ask("check", limit, "k")])
        first = True

        def once(path: str) -> Any:
            nonlocal first
            if first:
                first = False
                held.set()
                return kept()
            return None

        async def kept() -> None:
            await asyncio.to_thread(go_on.wait)

        app.before = once
        ask = Ask("take", limit, "k", token=5, ttl=600_000_000)
        task = asyncio.create_task(store.decide_async([ask]))
        await asyncio.to_thread(held.wait)
        task.cancel()
        release = asyncio.create_task(store.decide_async([ask._replace(op="release")]))
        await store.decide_async([Ask("check", limit, "other")])
        assert not release.done()  # those whom it does not concern need not wait
        go_on.set()
        [released] = await release
        assert released.allowed
        assert (await store.decide_async([Ask("check", limit, "k")]))[0].remaining == 1
        await store.close_async()

    asyncio.run(work())


# -- the store itself


def test_options_as_arguments_and_one_store_for_several(service: Service) -> None:
    store = open_client(service.url, budget=5, cache=False, nodes=2)
    reads, writes = (Limiter(f"5/hour {EVER}", store=store, name=name) for name in ("r", "w"))
    assert (reads.hit("k").remaining, writes.hit("k").remaining) == (4, 4)
    store.close()
    with pytest.raises(StoreError, match="closed"):
        reads.hit("k")


def test_tokens_grow_and_no_two_clients_make_the_same(service: Service) -> None:
    stores = [ClientStore(url(service)) for _ in range(2)]
    made = [[store.token() for _ in range(100)] for store in stores]
    for tokens in made:
        assert tokens == sorted(set(tokens))
    assert not set(made[0]) & set(made[1])
    for store in stores:
        store.close()


def test_a_kept_connection_that_the_service_closed_is_replaced() -> None:
    with Service(timeout_keep_alive=1) as service:
        store = ClientStore(url(service))
        limit = Limit.parse("5/minute")
        store.decide([Ask("take", limit, "k")])
        time.sleep(1.3)
        assert store.decide([Ask("take", limit, "k")])[0].remaining == 3
        store.close()


def test_leases_come_from_the_service(service: Service) -> None:
    app: Decider = service.app
    app.stores[""] = far = MemoryStore()
    with Limiter(f"1600/hour {EVER} lease", store=url(service)) as limiter:
        assert all(limiter.hit("k") for _ in range(100))
        assert len([count for count in app.bodies if count]) < 30
    assert far.decide([Ask("check", Limit.parse(f"1600/hour {EVER} lease"), "k")])[0].remaining == (
        1500
    )


def test_the_connection_of_a_thread_that_ended_is_closed(service: Service) -> None:
    limiter = Limiter("100/minute", store=url(service, "coalesce=no"))
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for _ in range(3):
            thread = threading.Thread(target=limiter.hit, args=("k",))
            thread.start()
            thread.join()
        del thread
        gc.collect()
        forgotten = Limiter("100/minute", store=url(service, "coalesce=no"))  # and never closed
        forgotten.hit("k")
        del forgotten
        gc.collect()
    limiter.close()
    assert [str(each.message) for each in told if each.category is ResourceWarning] == []
