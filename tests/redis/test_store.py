"""The store on a real server: own limits, changed limits, calendars, names, and what is kept."""

from __future__ import annotations

import asyncio
import statistics
import time
import warnings
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from headgate import Ask, AsyncLimiter, Limit, Limiter, ManualClock
from headgate.errors import EvictionWarning
from headgate.stores.redis import RedisStore
from servers import Server

LIMITS = [
    "5/minute", "5/minute gcra", "5/minute token-bucket", "5/minute fixed-window", "5/minute even",
    "5/minute fixed-window first-hit", "5/day fixed-window tz Asia/Shanghai", "5/minute cells 6",
    "5/minute sliding-log", "5/minute leaky-bucket burst 3", "5/second leaky-bucket queue 5",
    "5/minute debt", "5/minute warm-up 10s", "5/minute token-bucket initial 1",
]  # fmt: skip


@pytest.fixture
def store(server: Server) -> Iterator[RedisStore]:
    with server.client() as client:
        client.flushall()
    made = RedisStore(server.url, budget=5)
    yield made
    made.close()


def calls_of(client: Any, command: str) -> int:
    """How often the server was asked for a command, by scripts too."""
    stats = client.info("commandstats")
    return int(stats.get(f"cmdstat_{command}", {}).get("calls", 0))


def kept(client: Any) -> list[bytes]:
    """The keys of states and settings."""
    return [name for name in client.keys(b"*") if not name.endswith(b"shapes")]


@pytest.mark.parametrize("text", LIMITS)
def test_every_key_expires(text: str, store: RedisStore, server: Server) -> None:
    limiter = Limiter(text, store=store)
    for _ in range(7):
        limiter.hit("somebody")
    with server.client() as client:
        names = kept(client)
        assert len(names) == 1
        assert 0 < client.pttl(names[0]) <= 2 * 86_400_000 + 60_000


def test_a_reservation_and_a_permit_expire(store: RedisStore, server: Server) -> None:
    rate, slots = Limit.parse("100/second"), Limit.parse("3 concurrent")
    store.decide([Ask("take", rate, "r", 5, token=9, ttl=60_000_000)])
    store.decide([Ask("take", slots, "p", token=9, ttl=60_000_000)])
    with server.client() as client:
        names = kept(client)
        assert len(names) == 2
        for name in names:
            assert 55_000 < client.pttl(name) <= 60_100


def test_an_own_limit_needs_no_further_trip(store: RedisStore, server: Server) -> None:
    other = RedisStore(server.url, budget=5)
    here, there = Limiter("2/minute", store=store), Limiter("2/minute", store=other)
    assert here.hit("vip")
    assert there.hit("vip")
    assert not here.hit("vip")
    here.set_limit("vip", "5/minute")
    with server.client() as client:
        before = calls_of(client, "evalsha")
        decisions = [there.hit("vip") for _ in range(4)]
        after = calls_of(client, "evalsha")
    assert [bool(decision) for decision in decisions] == [True, True, True, False]
    assert decisions[0].limit == Limit.parse("5/minute").named("2/minute")
    assert decisions[0].remaining == 2
    assert after - before == 4  # one script call each
    assert there.get_limit("vip") == (Limit.parse("5/minute").named("2/minute"),)
    there.set_limit("vip", None)
    assert not here.hit("vip")
    assert here.get_limit("vip") == here.limits
    other.close()


@pytest.mark.parametrize(
    "own", ["9/minute gcra", "9/minute cells 3", "9/hour", "9/hour token-bucket"]
)
def test_an_own_limit_of_another_kind(own: str, store: RedisStore, server: Server) -> None:
    limiter = Limiter("3/minute", store=store)
    assert limiter.hit("k", cost=2)
    limiter.set_limit("k", own)
    assert limiter.hit("k").remaining == 6
    with server.client() as client:
        before = calls_of(client, "evalsha")
        assert limiter.hit("k").remaining == 5
        assert calls_of(client, "evalsha") - before == 1  # the way is known by now
    limiter.set_limit("k", None)
    assert not limiter.hit("k")


def test_a_setting_outlives_its_state(store: RedisStore, server: Server) -> None:
    limiter = Limiter("2/second", store=store)
    limiter.set_limit("k", "9/second")
    limiter.reset("k")
    with server.client() as client:
        (name,) = kept(client)
        assert client.pttl(name) == -1
    assert limiter.hit("k", cost=9)
    assert limiter.get_limit("k")[0].amount == 9


@pytest.mark.parametrize(
    ("old", "new", "left"),
    [
        ("10/minute gcra name a", "20/minute gcra name a", 15),
        ("10/minute gcra name a", "10/minute name a", 5),
        ("10/minute name a", "20/hour token-bucket name a", 15),
        ("10/minute sliding-log name a", "20/minute cells 6 name a", 15),
        ("10/minute cells 6 name a", "10/minute gcra name a", 5),
        ("10/minute gcra name a", "10/minute cells 6 name a", 5),
    ],
)
def test_a_limit_changed_in_a_deployment_forgets_nobody(
    old: str, new: str, left: int, server: Server, store: RedisStore
) -> None:
    assert Limiter(old, store=store).hit("k", cost=5)
    later = RedisStore(server.url, budget=5)  # another process, which never saw the old limit
    assert Limiter(new, store=later).hit("k").remaining in (left - 1, left)
    later.close()


def test_a_state_that_nobody_can_read_starts_anew(server: Server, store: RedisStore) -> None:
    assert Limiter("10/minute gcra name a", store=store).hit("k", cost=5)
    with server.client() as client:
        for name in client.keys(b"*shapes"):
            client.delete(name)
    assert Limiter("20/minute gcra name a", store=store).hit("k").remaining == 19


def test_the_calendar_is_computed_for_the_servers_time(store: RedisStore) -> None:
    limiter = Limiter("3/day fixed-window tz Asia/Shanghai", store=store)
    store.plan._skew = 40 * 86_400_000_000  # this machine's clock is forty days ahead
    decision = limiter.hit("k")
    assert decision.remaining == 2
    assert abs(decision.at / 1_000_000 - time.time()) < 60
    assert decision.reset_after <= 86_400


@pytest.mark.parametrize(
    ("zone", "before", "hours"),
    [
        ("America/New_York", datetime(2026, 3, 8, 5, 30, tzinfo=UTC), 23),  # clocks go ahead
        ("America/New_York", datetime(2026, 11, 1, 4, 30, tzinfo=UTC), 25),  # clocks go back
        ("Asia/Shanghai", datetime(2026, 3, 7, 16, 30, tzinfo=UTC), 24),
    ],
)
def test_days_with_a_change_of_clocks(
    zone: str, before: datetime, hours: int, server: Server
) -> None:
    clock = ManualClock(before.timestamp())  # half an hour into the local day
    store = RedisStore(server.url, clock=clock, prefix=f"dst{hours}", budget=5)
    limiter = Limiter(f"1/day fixed-window tz {zone}", store=store)
    decision = limiter.hit("k")
    assert decision
    assert decision.reset_after == hours * 3600 - 1800
    clock.advance(hours * 3600 - 1800 - 0.000001)
    assert not limiter.hit("k")
    clock.advance(0.000001)
    assert limiter.hit("k")
    store.close()


def test_an_own_limit_by_the_calendar_follows_it(server: Server) -> None:
    clock = ManualClock(datetime(2026, 5, 5, 12, tzinfo=UTC).timestamp())
    store = RedisStore(server.url, clock=clock, prefix="owncal", budget=5)
    limiter = Limiter("9/minute", store=store)
    limiter.set_limit("k", "1/day fixed-window tz UTC")
    for _ in range(3):
        assert limiter.hit("k")
        assert not limiter.hit("k")
        clock.advance(86_400)
    store.close()


def test_keys_never_meet(store: RedisStore) -> None:
    limiter = Limiter("1/minute", store=store)
    keys: list[Any] = ["", "}", "{", "a}b", "{a}", ("a", "b/c"), ("a/b", "c"), b"\xff", ("",), "é"]
    assert all(limiter.hit(key) for key in keys)
    assert not any(limiter.hit(key) for key in keys)


def test_small_states_take_little_memory() -> None:
    texts = ("100/minute", "100/minute gcra", "100/minute token-bucket", "9/minute even")
    with Server() as new:  # in a server that has seen much, keys get larger pieces of memory
        store = RedisStore(new.url, budget=5)
        for text in (*texts, "5/hour fixed-window"):
            limiter = Limiter(text, store=store)
            for number in range(20):
                limiter.hit(f"user:{number:07}")
        with new.client() as client:
            sizes = [client.memory_usage(name) for name in kept(client)]
        store.close()
    assert len(sizes) == 100
    assert statistics.median(sizes) <= 112, sizes


def test_a_server_that_evicts_is_told_of_once() -> None:
    with Server("--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru") as forgetful:
        store = RedisStore(forgetful.url, budget=5)
        limiter = Limiter("5/minute", store=store)
        with pytest.warns(EvictionWarning, match="allkeys-lru.*noeviction"):
            limiter.hit("k")
        store.close()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            again = RedisStore(forgetful.url, budget=5)
            assert Limiter("5/minute", store=again).hit("k")
            again.close()


def test_a_server_that_never_evicts_is_fine(server: Server) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        store = RedisStore(server.url, budget=5)
        assert Limiter("5/minute", store=store, name="fine").hit("k")
        store.close()


def test_a_server_started_anew_learns_the_shapes_again() -> None:
    with Server() as own:
        store = RedisStore(own.url, budget=5)
        limiter = Limiter("10/minute gcra name a", store=store)
        assert limiter.hit("k")
        assert limiter.hit("k")
        with own.client() as client:
            client.flushall()
            client.script_flush()
        for _ in range(3):  # the first of them finds out
            assert limiter.hit("k")
        assert Limiter("20/minute gcra name a", store=store).peek("k").remaining <= 18
        store.close()


@pytest.mark.parametrize("way", ["one", "several", "tasks"])
def test_a_server_emptied_in_silence_is_told_again(
    way: str, store: RedisStore, server: Server
) -> None:
    """After a minute at most: a register that is gone is noticed by nobody."""
    limits = ["10/minute gcra name a", "100/minute fixed-window"][: 1 + (way == "several")]
    limiter, awaited = Limiter(*limits, store=store), AsyncLimiter(*limits, store=store)

    def hit() -> None:
        if way != "tasks":
            assert limiter.hit("k")
            return

        async def main() -> None:
            assert await awaited.hit("k")
            await asyncio.sleep(0.05)  # the budget, at whose end there is time for such things

        store.alink.budget = 0.02
        asyncio.run(main())

    with server.client() as client:
        for _ in range(3):  # the first may load a script, which is a reason to tell again
            client.flushall()
            hit()
        assert not client.exists(store.plan.names.register)
        for _ in range(3):
            store.link.routes.due = 0.0  # a minute later
            hit()
        assert client.exists(store.plan.names.register)
    changed = Limiter("20/minute gcra name a", store=store)
    assert changed.peek("k").remaining <= 17


@pytest.mark.parametrize("text", ["5/minute", "5/minute cells 6", "5/minute sliding-log"])
@pytest.mark.parametrize(
    "rubbish", [b"", b"5", b"half a record", b"\xff" * 25, b"\xff\xff\xff\xff\x01", bytes(25)]
)
def test_a_value_that_nobody_can_read_starts_anew(
    rubbish: bytes, text: str, store: RedisStore, server: Server
) -> None:
    limiter, both = Limiter(text, store=store), Limiter(text, "9/hour", store=store)
    limiter.hit("k")
    for limits in (limiter, both):
        with server.client() as client:
            for name in kept(client):
                client.set(name, rubbish)
        limiter.hit("warm")
        assert limits.hit("k").remaining == 4
        assert limits.hit("k").remaining == 3
