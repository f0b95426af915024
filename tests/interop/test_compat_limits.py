"""The same programs with `limits` and with its names over headgate."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from typing import Any

import limits
import limits.aio
import pytest
from compat_tools import START, stop_time
from limits_tools import both_storages

import headgate.compat.limits as ours
from headgate import ManualClock, workers
from headgate.compat.limits.storage import storage_from_string
from headgate.errors import SeveralWorkersWarning
from servers import Server

TEXTS = [
    "10/minute", "10 per minute", "10 PER Minute", "10/2hour", "10 per 2 hours", "1/second",
    "5 / 3 days", "7/month", "1 per year", "  3/second  ", "10per5minutes", "0/minute",
]  # fmt: skip
SEVERAL = ["1/second;5 per minute", "1/second, 5/minute", "1/s", "1/second|5/hours;9 per day"]
WRONG = ["", "minute", "10", "10/", "10/fortnight", "1.5/second", "-1/second", "1/second;", None]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(START)


@pytest.fixture
def storages(clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, Any]]:
    return both_storages(clock, monkeypatch)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server() as started:
        yield started


# -- texts


@pytest.mark.parametrize("text", [*TEXTS, *SEVERAL, *WRONG])
def test_texts(text: Any) -> None:
    def read(library: Any) -> Any:
        try:
            items = library.parse_many(text)
        except ValueError:
            return "ValueError"
        return [
            [repr(item), type(item).__name__, item.get_expiry(), item.amount, item.multiples,
             item.key_for("a", 7, b"c"), tuple(item.GRANULARITY)]
            for item in items
        ]  # fmt: skip

    assert read(ours) == read(limits)
    if text in TEXTS:
        assert repr(ours.parse(text)) == repr(limits.parse(text))


def test_items_compare_alike() -> None:
    def facts(library: Any) -> list[Any]:
        minute, hour = library.RateLimitItemPerMinute(5), library.RateLimitItemPerHour(1, 2)
        return [
            minute < hour, hour <= minute, minute == library.parse("5/minute"), minute != hour,
            minute == library.RateLimitItemPerSecond(5, 60), minute == "5 per 1 minute",
            sorted([hour, minute])[0] is minute, hash(minute) == hash(library.parse("5/minute")),
            [str(kind(1)) for kind in (
                library.RateLimitItemPerSecond, library.RateLimitItemPerDay,
                library.RateLimitItemPerMonth, library.RateLimitItemPerYear)],
            library.RateLimitItemPerDay(3, None, "OWN").key_for("x"),
            library.RateLimitItemPerDay.check_granularity_string("Days"),
        ]  # fmt: skip

    assert facts(ours) == facts(limits)


# -- counting


def walk(library: Any, storage: Any, clock: ManualClock, strategy: str) -> list[Any]:
    """A program with two users, two items, looks and clears."""
    limiter = library.strategies.STRATEGIES[strategy](storage)
    items = [library.parse("5 per 10 seconds"), library.parse("3/minute")]
    chance, said = random.Random(7), []
    for _ in range(400):
        item, user = chance.choice(items), chance.choice(["ann", "bob"])
        limiter.test(item, "api", user)
        said.append(limiter.test(item, "api", user))
        said.append(limiter.hit(item, "api", user))
        stats = limiter.get_window_stats(item, "api", user)
        said.append((stats.remaining, pytest.approx(stats.reset_time, abs=1e-4)))
        if chance.random() < 0.05:
            limiter.clear(item, "api", user)
            said.append(limiter.get_window_stats(item, "api", user)[1])
        clock.advance(chance.randrange(1, 9) * 0.37)
    return said


@pytest.mark.parametrize("strategy", ["fixed-window", "moving-window"])
def test_the_same_answers(
    storages: list[tuple[Any, Any]], monkeypatch: pytest.MonkeyPatch, strategy: str
) -> None:
    said = []
    for library, _ in storages:
        clock = ManualClock(START)
        stop_time(monkeypatch, clock, "limits.storage.memory", "limits.strategies")
        fresh = {"clock": clock} if library is ours else {}
        storage = library.storage.storage_from_string("memory://", **fresh)
        said.append(walk(library, storage, clock, strategy))
    assert len(said[0]) > 1200
    assert said[0] == said[1]
    assert {True, False} <= {word for word in said[1] if isinstance(word, bool)}


def test_the_same_answers_of_two_counters(storages: list[tuple[Any, Any]], clock: Any) -> None:
    """Where the weight of the last window is a whole number, as it is here at each second."""
    clock.advance(-START % 8)
    said: list[list[Any]] = [[], []]
    for step in range(48):
        for place, (library, storage) in enumerate(storages):
            limiter = library.strategies.SlidingWindowCounterRateLimiter(storage)
            item = library.parse("8 per 8 seconds")
            for _ in range(9 if step % 16 == 0 else 1 + step % 3):
                said[place] += [limiter.test(item, "a"), limiter.hit(item, "a")]
                said[place].append(limiter.get_window_stats(item, "a").remaining)
        clock.advance(1 if step % 16 != 15 else 17)  # long enough for all to be forgotten
    assert said[0] == said[1]


@pytest.mark.parametrize("strategy", ["fixed-window", "moving-window", "sliding-window-counter"])
def test_costs_and_namespaces(storages: list[tuple[Any, Any]], strategy: str) -> None:
    def program(library: Any, storage: Any) -> list[Any]:
        limiter = library.strategies.STRATEGIES[strategy](storage)
        item = library.parse("10/minute")
        other = library.RateLimitItemPerMinute(10, 1, "OTHER")
        apart = library.RateLimitItemPerSecond(10, 60)
        return [
            limiter.hit(item, "a", cost=4), limiter.test(item, "a", cost=7),
            limiter.hit(item, "a", cost=6), limiter.hit(item, "a"), limiter.hit(item, "b"),
            limiter.hit(other, "a"), limiter.get_window_stats(other, "a").remaining,
            limiter.hit(apart, "a"), limiter.get_window_stats(apart, "a").remaining,
            limiter.hit(item, 1), limiter.get_window_stats(item, "1").remaining,
            limiter.hit(library.parse("0/second"), "a"), limiter.test(item, "c", cost=11),
        ]  # fmt: skip

    first, second = [program(*storage) for storage in storages]
    assert first == second


@pytest.mark.parametrize("strategy", ["fixed-window", "moving-window", "sliding-window-counter"])
def test_awaited(clock: ManualClock, monkeypatch: pytest.MonkeyPatch, strategy: str) -> None:
    stop_time(monkeypatch, clock, "limits.aio.storage.memory", "limits.aio.strategies")

    async def program(library: Any, **options: Any) -> list[Any]:
        storage = library.storage.storage_from_string("async+memory://", **options)
        limiter = library.aio.strategies.STRATEGIES[strategy](storage)
        item, said = library.parse("3/minute"), []
        for user in ["a", "a", "b", "a", "a"]:
            said += [await limiter.test(item, user), await limiter.hit(item, user)]
            said.append((await limiter.get_window_stats(item, user)).remaining)
        await limiter.clear(item, "a")
        said += [await limiter.hit(item, "a"), await storage.check()]
        await storage.reset()
        return [*said, (await limiter.get_window_stats(item, "b")).remaining]

    assert asyncio.run(program(ours, clock=clock)) == asyncio.run(program(limits))


@pytest.mark.parametrize("strategy", ["fixed-window", "moving-window", "sliding-window-counter"])
def test_on_redis(server: Server, strategy: str) -> None:
    def program(library: Any, **options: Any) -> list[Any]:
        storage = library.storage.storage_from_string(server.url, **options)
        limiter = library.strategies.STRATEGIES[strategy](storage)
        item, said = library.parse(f"5 per {3 + len(strategy)} days"), []
        for user in "aabaaaaab":
            said += [limiter.test(item, user), limiter.hit(item, user)]
            said.append(limiter.get_window_stats(item, user).remaining)
        limiter.clear(item, "a")
        return [*said, limiter.hit(item, "a", cost=5), limiter.hit(item, "a"), storage.check()]

    assert program(ours, socket_timeout=10, socket_connect_timeout=5) == program(limits)


def test_on_redis_awaited(server: Server) -> None:
    async def program(library: Any, **options: Any) -> list[Any]:
        storage = library.storage.storage_from_string(
            f"async+{server.url}", implementation="redispy", **options
        )
        limiter = library.aio.strategies.MovingWindowRateLimiter(storage)
        item = library.parse("2 per 2 days")
        said = [await limiter.hit(item, "awaited") for _ in range(3)]
        await limiter.clear(item, "awaited")
        said += [await limiter.test(item, "awaited", cost=2), await storage.check()]
        await (storage.store.close_async() if library is ours else storage.bridge.storage.aclose())
        return said

    assert asyncio.run(program(ours, socket_timeout=10)) == asyncio.run(program(limits))


def test_a_pool_of_connections(server: Server) -> None:
    import redis

    pool = redis.ConnectionPool(port=server.port)
    storage = ours.storage.RedisStorage(
        "redis://", connection_pool=pool, key_prefix="pooled", socket_timeout=10
    )
    limiter = ours.strategies.FixedWindowRateLimiter(storage)
    assert [limiter.hit(ours.parse("2/day"), "x") for _ in range(3)] == [True, True, False]
    with server.client() as client:
        assert [name for name in client.scan_iter() if b"pooled" in name]


def test_a_zone(tmp_path: Any) -> None:
    address = f"zone://{tmp_path}/app.zone?size=1MiB"
    limiters = [
        ours.strategies.FixedWindowRateLimiter(storage_from_string(address)) for _ in range(2)
    ]
    item = ours.parse("2/day")
    assert [limiter.hit(item, "x") for limiter in limiters * 2] == [True, True, False, False]


def test_several_workers_in_memory_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    crowd = workers.Crowd("this process is one of 4 gunicorn workers", 4)
    monkeypatch.setattr(workers, "server", lambda: crowd)
    monkeypatch.setattr(workers, "_warned", False)
    limiter = ours.strategies.FixedWindowRateLimiter(storage_from_string("memory://"))
    with pytest.warns(SeveralWorkersWarning, match="zone://"):
        limiter.hit(ours.parse("2/day"), "x")


def test_many_limits_made_up_on_the_way() -> None:
    storage = storage_from_string("memory://")
    limiter = ours.strategies.FixedWindowRateLimiter(storage)
    kept = ours.parse("1/day")
    assert limiter.hit(kept, "a")
    for amount in range(1, 1200):
        assert limiter.hit(ours.RateLimitItemPerHour(amount), "a")
    assert not limiter.hit(kept, "a")
