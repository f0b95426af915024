"""A server that is killed, stopped, emptied, full or cut off while threads and tasks hit it."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from headgate import Limiter
from headgate.stores.redis import RedisStore
from servers import Server, until

from .support_redis import (
    BUDGET,
    SCALE,
    Traffic,
    all_answered,
    all_decided,
    back_in_time,
    bounds_hold,
    nothing_twice,
    running,
)

LONG = 30.0
"""A budget for calls that are to succeed, however busy the machine is."""

MANY = 20
"""Answers that each worker waits for when a fault is over."""


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as started:
        yield started


@pytest.fixture
def store(server: Server) -> Iterator[RedisStore]:
    made = RedisStore(server.url, budget=BUDGET)
    yield made
    made.close()


@pytest.fixture
def patient(server: Server) -> Iterator[RedisStore]:
    made = RedisStore(server.url, budget=LONG)
    yield made
    made.close()


def settled(traffic: Traffic, back: float) -> None:
    """Let everybody be answered a few times more, and the limits be met."""
    traffic.flowing(MANY, since=back)
    traffic.refused(back)


def test_scripts_that_are_flushed_are_not_missed(server: Server, patient: RedisStore) -> None:
    with running(Traffic(patient)) as traffic, server.client() as client:
        for _ in range(20 * SCALE):
            client.script_flush()
            traffic.flowing(1, since=time.monotonic())
    all_decided(traffic)
    bounds_hold(traffic, 0)
    nothing_twice(traffic, patient)


def test_a_flushed_script_costs_one_more_trip(server: Server, patient: RedisStore) -> None:
    limiter = Limiter("100/hour", store=patient)
    limiter.hit("k")
    with server.client() as client:
        client.script_flush()
        before = client.info("commandstats")
        assert limiter.hit("k").remaining == 98
        after = client.info("commandstats")
    calls = {
        name: after[f"cmdstat_{name}"]["calls"] - before.get(f"cmdstat_{name}", {}).get("calls", 0)
        for name in ("evalsha", "script|load" if "cmdstat_script|load" in after else "script")
    }
    assert list(calls.values()) == [2, 1]


def test_connections_that_are_killed(
    server: Server, store: RedisStore, patient: RedisStore
) -> None:
    with running(Traffic(store)) as traffic, server.client() as client:
        for _ in range(5 * SCALE):
            client.client_kill_filter(_type="normal", skipme=True)
            back = time.monotonic()
            settled(traffic, back)
    all_answered(traffic)
    back_in_time(traffic, back)
    bounds_hold(traffic, 0)
    nothing_twice(traffic, patient)


def test_a_server_that_is_emptied(server: Server, store: RedisStore, patient: RedisStore) -> None:
    rounds = 3 * SCALE
    with running(Traffic(store)) as traffic, server.client() as client:
        for _ in range(rounds):
            since = time.monotonic()
            client.flushall()
            back = time.monotonic()
            settled(traffic, back)
    all_answered(traffic)
    back_in_time(traffic, back)
    bounds_hold(traffic, rounds)
    nothing_twice(traffic, patient, since, back)


def test_a_server_that_is_killed_and_comes_back_empty(
    server: Server, store: RedisStore, patient: RedisStore
) -> None:
    rounds = 2 * SCALE
    with running(Traffic(store)) as traffic:
        for _ in range(rounds):
            since = time.monotonic()
            server.kill()
            time.sleep(0.5)
            server.start()
            back = time.monotonic()
            settled(traffic, back)
            back_in_time(traffic, back)
    all_answered(traffic)
    bounds_hold(traffic, rounds)
    nothing_twice(traffic, patient, since, back)


def test_a_server_that_stands_still(server: Server, store: RedisStore, patient: RedisStore) -> None:
    with running(Traffic(store)) as traffic:
        server.stop()
        time.sleep(0.1)
        start = time.monotonic()
        time.sleep(5)
        server.go_on()
        back = time.monotonic()
        settled(traffic, back)
    all_answered(traffic)
    back_in_time(traffic, back)
    bounds_hold(traffic, 0)
    nothing_twice(traffic, patient)
    meanwhile = [r for r in traffic.records if start < r.start and r.end < back]
    assert not any(r.answered for r in meanwhile)
    # Nobody waits for it again and again: each worker goes on with its work.
    assert len(meanwhile) > 100
    for worker in traffic.workers:
        assert sum(r.outcome == "late" for r in meanwhile if r.worker == worker) <= 3


def test_a_server_that_is_full(server: Server, store: RedisStore, patient: RedisStore) -> None:
    with running(Traffic(store)) as traffic, server.client() as client:
        client.config_set("maxmemory", "1")
        full = time.monotonic()
        until(lambda: any(r.outcome == "away" and r.start > full for r in list(traffic.records)))
        empty = time.monotonic()
        client.config_set("maxmemory", "0")
        back = time.monotonic()
        settled(traffic, back)
    all_answered(traffic)
    back_in_time(traffic, back)
    bounds_hold(traffic, 0)
    nothing_twice(traffic, patient)
    meanwhile = [r for r in traffic.records if full < r.start and r.end < empty]
    assert not any(r.outcome == "yes" for r in meanwhile)


def test_a_server_that_is_still_loading() -> None:
    slow = ("--key-load-delay", "5000", "--rdbcompression", "no")
    with Server(*slow) as server, server.client() as client:
        for number in range(200):  # it looks at its clients every two megabytes
            client.set(f"filler {number}", b"x" * 100_000)
        store, patient = (RedisStore(server.url, budget=budget) for budget in (BUDGET, LONG))
        with running(Traffic(store)) as traffic:
            client.save()
            since = time.monotonic()
            server.kill()
            server.start()  # and wait until it has read everything
            back = time.monotonic()
            settled(traffic, back)
        all_answered(traffic)
        back_in_time(traffic, back)
        bounds_hold(traffic, 1)
        assert traffic.count("away", since=since)
        store.close()
        patient.close()


def test_a_server_that_is_busy_with_a_script(
    server: Server, store: RedisStore, patient: RedisStore
) -> None:
    with running(Traffic(store)) as traffic, server.client() as client:
        client.config_set("lua-time-limit", "100")
        busy = "local e = redis.call('TIME')[1] + 2 while redis.call('TIME')[1] + 0 < e do end"
        client.eval(busy, 0)
        back = time.monotonic()
        settled(traffic, back)
    all_answered(traffic)
    back_in_time(traffic, back)
    bounds_hold(traffic, 0)
    nothing_twice(traffic, patient)
