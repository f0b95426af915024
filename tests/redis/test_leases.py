"""Leases, refusals and failover in front of a real server."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

import headgate
from headgate import AsyncLimiter, Limit, Limiter
from headgate.stores.failover import Failover
from headgate.stores.lease import LeaseStore
from headgate.stores.redis import RedisStore
from servers import Server, until

PROCESS = """
import json, sys
from headgate import Limiter
from headgate.stores.failover import Failover
from headgate.stores.lease import LeaseStore
from headgate.stores.redis import RedisStore

url, text, name, count, way = sys.argv[1:]
store = LeaseStore(Failover(RedisStore(url, budget=5)), write_back=way == "write-back")
limiter = Limiter(text, name=name, store=store)
print("ready", flush=True)
sys.stdin.readline()
decisions = [limiter.hit("k") for _ in range(int(count))]
store.close()
print(json.dumps([sum(d.allowed for d in decisions), sum(d.degraded for d in decisions)]))
"""


def admitted(server: Server, text: str, name: str, count: int, way: str = "lease") -> int:
    """How much four processes admit that hit one key at the same time."""
    source = str(Path(headgate.__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": source}
    children = [
        subprocess.Popen(
            [sys.executable, "-c", PROCESS, server.url, text, name, str(count), way],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment,
        )
        for _ in range(4)
    ]  # fmt: skip
    for child in children:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
    results = []
    for child in children:
        assert child.stdin is not None
        child.stdin.write("go\n")
        child.stdin.flush()
    for child in children:
        out, _ = child.communicate(timeout=120)
        results.append(json.loads(out))
    assert sum(degraded for _, degraded in results) == 0
    return sum(passed for passed, _ in results)


def store_for(server: Server, **options: bool) -> LeaseStore:
    return LeaseStore(Failover(RedisStore(server.url, budget=5)), **options)


def test_processes_use_what_they_leased_and_no_more(server: Server) -> None:
    text = "20000/day fixed-window lease"
    total = admitted(server, text, "leased", 6000)
    with Limiter(text, name="leased", store=RedisStore(server.url, budget=5)) as limiter:
        left = limiter.peek("k").remaining
        limiter.store.close()
    assert total + left == 20000
    assert left <= 4 * LeaseStore.bound(Limit.parse(text))


def test_written_back_admits_a_chunk_too_much_for_each_process_at_most(server: Server) -> None:
    text = "20000/day fixed-window lease"
    total = admitted(server, text, "written", 8000, "write-back")
    assert 20000 <= total <= 20000 + 4 * LeaseStore.bound(Limit.parse(text))


@pytest.mark.parametrize(
    "text",
    ["50000/hour lease", "50000/hour gcra lease", "50000/hour token-bucket burst 5000 lease",
     "50000/hour sliding-log lease", "50000/hour sliding-window cells 6 lease",
     "50000/day tz Asia/Shanghai lease", "50000/30d fixed-window first-hit lease"],
)  # fmt: skip
def test_every_algorithm_is_leased(server: Server, text: str) -> None:
    store = store_for(server)
    limiter = Limiter(text, name="every", store=store)
    before = limiter.hit("k").remaining
    for _ in range(400):
        decision = limiter.hit("k")
        assert decision.allowed
        assert abs(decision.at / 1_000_000 - time.time()) < 60
    assert store.outstanding > 0
    assert before - 450 <= decision.remaining <= before
    exact = RedisStore(server.url, budget=5)
    look = Limiter(text, name="every", store=exact)
    until(lambda: not store.outstanding and look.peek("k").remaining >= before - 400)
    left = look.peek("k").remaining
    if limiter.limits[0].algorithm in ("fixed-window", "sliding-log"):
        assert left == before - 400
    exact.close()
    store.close()


def test_a_refused_key_costs_no_trip(server: Server) -> None:
    store = store_for(server)
    limiter = Limiter("3/hour", "5/day gcra", name="refused", store=store)
    single = Limiter("3/30d fixed-window", name="refused", store=store)
    for limited in (limiter, single):
        for _ in range(4):
            last = limited.hit("k")
        assert not last.allowed
        with server.client() as client:
            calls = client.info("commandstats").get("cmdstat_evalsha", {}).get("calls", 0)
            began = time.monotonic()
            for _ in range(200):
                again = limited.hit("k")
                assert not again.allowed
                assert again.retry_after <= last.retry_after
            if time.monotonic() - began < 0.9:
                after = client.info("commandstats")["cmdstat_evalsha"]["calls"]
                assert after - calls <= 1
        limited.reset("k")
        assert limited.hit("k").allowed
    store.close()


def test_tasks_lease_too(server: Server) -> None:
    async def main() -> None:
        store = store_for(server)
        limiter = AsyncLimiter("8000/day fixed-window lease", name="tasks", store=store)

        async def work() -> int:
            return sum([bool(await limiter.hit("k")) for _ in range(200)])

        passed = sum(await asyncio.gather(*(work() for _ in range(50))))
        left = (await limiter.peek("k")).remaining
        assert passed + left == 8000
        await store.close_async()

    asyncio.run(main())


def test_the_loss_of_the_server_and_its_return() -> None:
    with Server() as server:
        failover = Failover(RedisStore(server.url, budget=5), nodes=2)
        store = LeaseStore(failover)
        leased = Limiter("1000/day fixed-window lease", store=store)
        plain = Limiter("1000/day fixed-window", store=store, name="plain")
        for limiter in (leased, plain):
            assert not limiter.hit("k").degraded
        server.kill()
        time.sleep(0.2)
        began = time.monotonic()
        decisions = [limiter.hit("k") for _ in range(600) for limiter in (leased, plain)]
        assert time.monotonic() - began < 60
        assert decisions[-1].degraded
        until(lambda: (plain.hit("k"), failover.degraded)[1], 60)
        for passed in (decisions[::2], decisions[1::2]):
            assert 500 <= sum(d.allowed for d in passed) <= 563  # the share, and what was leased
        server.start()
        until(lambda: not plain.hit("k").degraded and not leased.hit("k").degraded, 60)
        until(lambda: (plain.hit("k"), not failover.degraded)[1], 60)
        assert plain.hit("k").remaining > 500  # the server came back empty
        store.close()


def test_a_server_that_stands_still_costs_a_few_budgets() -> None:
    with Server() as server:
        failover = Failover(RedisStore(server.url, budget=0.2))
        store = LeaseStore(failover)
        limiter = Limiter("100000/day", store=store)
        until(lambda: not limiter.hit("k").degraded)
        server.stop()
        try:
            before = failover.failures
            for _ in range(300):
                assert limiter.hit("k").allowed
            assert failover.degraded
            assert failover.failures - before <= 12  # five in a row, and a few probes
        finally:
            server.go_on()
        until(lambda: (limiter.hit("k"), not failover.degraded)[1], 60)
        assert not limiter.hit("k").degraded
        store.close()
