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

import headgate.compat.limits as ours
from headgate import ManualClock, workers
from headgate.compat import NotOffered
from headgate.compat.limits.errors import ConfigurationError
from headgate.compat.limits.storage import storage_from_string
from headgate.errors import SeveralWorkersWarning
from servers import Server, free_port

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
    """The original with its time stopped, and ours."""
    stop_time(monkeypatch, clock, "limits.storage.memory", "limits.strategies")
    stop_time(monkeypatch, clock, "limits.aio.storage.memory", "limits.aio.strategies")
    mine = storage_from_string("memory://", clock=clock)
    return [(limits, limits.storage.storage_from_string("memory://")), (ours, mine)]


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


# -- what differs, each for a reason that the page gives


def test_differs_a_refused_call_takes_nothing(storages: list[tuple[Any, Any]]) -> None:
    def program(library: Any, storage: Any) -> list[bool]:
        limiter = library.strategies.FixedWindowRateLimiter(storage)
        item = library.parse("10/minute")
        return [limiter.hit(item, "a", cost=cost) for cost in (8, 3, 2)]

    assert program(*storages[0]) == [True, False, False]
    assert program(*storages[1]) == [True, False, True]


def test_differs_a_moving_window_ends_after_its_length(
    storages: list[tuple[Any, Any]], clock: ManualClock
) -> None:
    said = []
    for library, storage in storages:
        limiter, item = library.strategies.MovingWindowRateLimiter(storage), "1 per 8 seconds"
        assert limiter.hit(library.parse(item), "a")
    clock.advance(8)
    for library, storage in storages:
        limiter = library.strategies.MovingWindowRateLimiter(storage)
        said.append(limiter.hit(library.parse(item), "a"))
    assert said == [False, True]


def test_differs_the_weight_of_the_last_window_is_not_rounded_down(
    storages: list[tuple[Any, Any]], clock: ManualClock
) -> None:
    clock.advance(-START % 8)
    said = []
    for library, storage in storages:
        limiter = library.strategies.SlidingWindowCounterRateLimiter(storage)
        assert limiter.hit(library.parse("8 per 8 seconds"), "a", cost=8)
    clock.advance(8.5)  # 7.5 of the last 8 still count
    for library, storage in storages:
        limiter = library.strategies.SlidingWindowCounterRateLimiter(storage)
        item = library.parse("8 per 8 seconds")
        said.append([limiter.get_window_stats(item, "a").remaining, limiter.hit(item, "a")])
    assert said == [[1, True], [0, False]]


def test_differs_two_counters_tell_when_one_more_passes(
    storages: list[tuple[Any, Any]], clock: ManualClock
) -> None:
    clock.advance(-START % 8 + 1)
    start, resets = clock.now(), []
    for library, storage in storages:
        limiter = library.strategies.SlidingWindowCounterRateLimiter(storage)
        item = library.parse("8 per 8 seconds")
        limiter.hit(item, "a", cost=8)
        resets.append(limiter.get_window_stats(item, "a").reset_time - start)
    assert resets == [7, 8]  # at 7 all of them still count
    clock.advance(7)
    assert not limiter.hit(item, "a")
    clock.advance(1)
    assert limiter.hit(item, "a")


def test_differs_an_unused_window_is_reset_now(storages: list[tuple[Any, Any]], clock: Any) -> None:
    resets = [
        library.strategies.MovingWindowRateLimiter(storage)
        .get_window_stats(library.parse("1/minute"), "new").reset_time - clock.now()
        for library, storage in storages
    ]  # fmt: skip
    assert resets == [60, 0]


def test_differs_identifiers_never_meet(storages: list[tuple[Any, Any]]) -> None:
    def program(library: Any, storage: Any) -> list[bool]:
        limiter, item = library.strategies.FixedWindowRateLimiter(storage), library.parse("1/day")
        return [limiter.hit(item, "a", "b/c"), limiter.hit(item, "a/b", "c")]

    assert program(*storages[0]) == [True, False]
    assert program(*storages[1]) == [True, True]


def test_differs_a_negative_cost_buys_nothing(storages: list[tuple[Any, Any]]) -> None:
    library, storage = storages[0]
    limiter, item = library.strategies.FixedWindowRateLimiter(storage), library.parse("1/day")
    limiter.hit(item, "a", cost=-1000)
    assert [limiter.hit(item, "a") for _ in range(1001)] == [True] * 1001
    library, storage = storages[1]
    limiter, item = library.strategies.FixedWindowRateLimiter(storage), library.parse("1/day")
    with pytest.raises(ValueError, match="from 0"):
        limiter.hit(item, "a", cost=-1000)


def test_differs_two_limits_are_not_read_as_one() -> None:
    assert repr(limits.parse("1/second;5/minute")) == "1 per 1 second"
    with pytest.raises(ValueError, match="parse_many"):
        ours.parse("1/second;5/minute")
    assert repr(limits.parse("1/0 second")) == "1 per 1 second"
    with pytest.raises(ValueError, match="no limit admits"):
        ours.parse("1/0 second")


def test_differs_windows_are_the_same_in_memory_and_on_redis(server: Server) -> None:
    """Two counters: in the original they begin at the epoch in memory, and on Redis with a hit."""
    said = []
    for address in ("memory://", f"{server.url}?budget=10s&prefix=aligned"):
        clock = ManualClock(START)
        storage = storage_from_string(address, clock=clock)
        limiter, answers = ours.strategies.SlidingWindowCounterRateLimiter(storage), []
        for _ in range(30):
            answers.append(limiter.hit(ours.parse("5 per 10 seconds"), "a"))
            clock.advance(1.25)
        said.append(answers)
    assert said[0] == said[1]


def test_differs_a_server_that_is_away_is_answered_for() -> None:
    address = f"redis://127.0.0.1:{free_port()}"
    theirs = limits.strategies.FixedWindowRateLimiter(limits.storage.storage_from_string(address))
    with pytest.raises(ConnectionError):
        _as_builtin(lambda: theirs.hit(limits.parse("1/day"), "a"))
    for rest, answers in {
        "": [True, False], "?on_error=allow": [True, True], "?on_error=deny": [False, False],
    }.items():  # fmt: skip
        storage = storage_from_string(address + rest)
        limiter = ours.strategies.FixedWindowRateLimiter(storage)
        assert [limiter.hit(ours.parse("1/day"), "a") for _ in range(2)] == answers
        assert not storage.check()


def _as_builtin(call: Any) -> None:
    import redis

    try:
        call()
    except redis.ConnectionError as error:
        raise ConnectionError from error


# -- what is not offered


def test_what_is_not_offered_says_what_to_use() -> None:
    with pytest.raises(NotOffered, match="redis://"):
        storage_from_string("memcached://localhost:11211")
    with pytest.raises(NotOffered, match="zone://"):
        storage_from_string("async+mongodb://localhost")
    with pytest.raises(ConfigurationError, match="known are"):
        storage_from_string("etcd://localhost")
    with pytest.raises(NotOffered, match="retry_on_timeout"):
        storage_from_string("redis://localhost", retry_on_timeout=True)
    with pytest.raises(NotOffered, match="on_error"):
        storage_from_string("memory://", wrap_exceptions=True)
    with pytest.raises(NotOffered, match="implementation"):
        ours.aio.storage.RedisStorage("async+redis://localhost", implementation="coredis")
    storage = storage_from_string("memory://")
    with pytest.raises(AttributeError, match="use the strategies' hit"):
        storage.incr("key", 60)
    with pytest.raises(TypeError, match=r"aio\.storage"):
        ours.aio.strategies.FixedWindowRateLimiter(storage)
    with pytest.raises(TypeError, match=r"compat\.limits\.storage"):
        ours.strategies.FixedWindowRateLimiter(limits.storage.MemoryStorage())
    with pytest.raises(NotOffered, match="clear"):
        storage_from_string("redis://localhost").reset()


def test_many_limits_made_up_on_the_way() -> None:
    storage = storage_from_string("memory://")
    limiter = ours.strategies.FixedWindowRateLimiter(storage)
    kept = ours.parse("1/day")
    assert limiter.hit(kept, "a")
    for amount in range(1, 1200):
        assert limiter.hit(ours.RateLimitItemPerHour(amount), "a")
    assert not limiter.hit(kept, "a")
