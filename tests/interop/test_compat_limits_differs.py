"""What differs from limits, each for a reason that the page gives; what is not offered."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import limits
import limits.aio
import pytest
from compat_tools import START
from limits_tools import both_storages

import headgate.compat.limits as ours
from headgate import ManualClock
from headgate.compat import NotOffered
from headgate.compat.limits.errors import ConfigurationError
from headgate.compat.limits.storage import storage_from_string
from servers import Server, free_port


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
