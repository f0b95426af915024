"""Mistakes seen in well-meant limiters, each as a regression test on a server.

Those of time and counting are the tests of the memory store, run once more.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import test_traps

from headgate import Limit, Limiter, ManualClock, MemoryStore
from headgate.decision import Decision
from headgate.errors import StoreError
from headgate.stores.redis import RedisStore
from headgate.stores.redis.link import Command
from headgate.stores.redis.link.cluster import slot_of
from servers import Server

_serial = itertools.count()
EVERY = [
    "5/minute", "5/minute gcra", "5/minute token-bucket", "5/minute fixed-window", "5/minute even",
    "5/minute fixed-window first-hit", "5/minute cells 6", "5/minute sliding-log", "5/minute debt",
    "5/minute leaky-bucket burst 3", "5/second leaky-bucket queue 5", "5/minute warm-up 10s",
    "5/day fixed-window tz Asia/Shanghai",
]  # fmt: skip


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server() as started:
        yield started


@pytest.fixture
def stores(server: Server) -> Iterator[Any]:
    """A function that makes stores, each empty unless it is given another's prefix."""
    made: list[RedisStore] = []

    def make(clock: Any = None, **options: Any) -> RedisStore:
        options = {"prefix": f"trap{next(_serial)}x", "budget": 5.0} | options
        made.append(RedisStore(server.url, clock=clock, **options))
        return made[-1]

    yield make
    for store in made:
        store.close()


@pytest.fixture
def store(stores: Any) -> RedisStore:
    found: RedisStore = stores()
    return found


def keys_of(server: Server, store: RedisStore) -> list[bytes]:
    """The keys that a store has written."""
    with server.client() as client:
        names = client.keys(f"{store.options.prefix}*")
    return [name for name in names if not name.endswith(b"shapes")]


class OnAServer:
    """The limiters of a test count on a server, by the test's clock."""

    @pytest.fixture(autouse=True)
    def on_a_server(self, stores: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        def limiter(*texts: str, clock: Any = None, **more: Any) -> Limiter:
            return Limiter(*texts, store=stores(clock), **more)

        monkeypatch.setattr(test_traps, "Limiter", limiter)


class TestTimeOnAServer(OnAServer, test_traps.TestTime):
    pass


class TestCountingOnAServer(OnAServer, test_traps.TestCounting):
    pass


class TestTimeOfTheServer:
    def test_clocks_of_clients_do_not_count(
        self, store: RedisStore, server: Server, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        limiter = Limiter("3/hour", store=store)
        assert limiter.hit("k", cost=3)
        before = time.time()
        monkeypatch.setattr(time, "time", lambda: before - 7200)
        monkeypatch.setattr(time, "time_ns", lambda: int((before - 7200) * 1e9))
        slow = RedisStore(server.url, prefix=store.options.prefix, budget=5)
        decision = Limiter("3/hour", store=slow).hit("k")
        slow.close()
        assert not decision
        assert abs(decision.at / 1_000_000 - before) < 60

    @pytest.mark.parametrize("text", EVERY)
    def test_times_keep_all_their_digits(self, text: str, stores: Any) -> None:
        """An epoch in microseconds has 16 digits; 14 of them are a window of 100 us."""
        clock = ManualClock(1_792_879_200.123_457)
        far, near = Limiter(text, store=stores(clock)), Limiter(text, clock=clock)
        for _ in range(200):
            here, there = near.hit("k"), far.hit("k")
            assert numbers(there) == numbers(here)
            clock.advance(0.000_001 if here.allowed else min(here.retry_after, 3600) - 0.000_001)

    @pytest.mark.parametrize("cost", [float("nan"), 1.5, True, -1, 1 << 53])
    def test_no_odd_number_is_ever_sent(self, cost: Any, store: RedisStore, server: Server) -> None:
        limiter = Limiter("5/minute", store=store)
        with pytest.raises((TypeError, ValueError)):
            limiter.hit("k", cost)
        with pytest.raises((TypeError, ValueError)):
            limiter.hit_many(["k"], cost)
        assert keys_of(server, store) == []


class TestStore:
    def test_a_take_is_one_command(self, store: RedisStore, server: Server) -> None:
        limiters = [
            Limiter("5/hour", store=store),
            Limiter("5/hour gcra", "9/day", "3/minute sliding-log", store=store),
        ]
        for limiter in limiters * 2:  # the first time there are scripts to load
            limiter.hit("k")
        with server.client() as client, client.monitor() as monitor:
            client.ping()
            for limiter in limiters:
                limiter.hit("k")
            client.echo("over")
            sent = []
            for entry in monitor.listen():
                if "over" in entry["command"]:
                    break
                if entry["client_type"] != "lua":
                    sent.append(entry["command"].split()[0])
        assert sent[sent.index("PING") + 1 :] == ["EVALSHA"] * 2

    @pytest.mark.parametrize("text", [EVERY[0], "5/minute cells 6", EVERY[-1]])
    @pytest.mark.parametrize(
        "broken", [b"", b"5", b"half a record", b"\xff" * 25, b"\xff\xff\xff\xff\x01", b"\0" * 25]
    )
    def test_a_broken_record_refuses_nobody_for_ever(
        self, broken: bytes, text: str, store: RedisStore, server: Server
    ) -> None:
        limiter = Limiter(text, store=store)
        assert limiter.hit("k")
        (name,) = keys_of(server, store)
        with server.client() as client:
            client.set(name, broken)  # and without an end
            found = limiter.hit("k")
            assert found.allowed
            assert 0 < client.pttl(name) <= 2 * 86_400_000

    def test_a_key_of_somebody_else_is_an_error_and_no_refusal(
        self, store: RedisStore, server: Server
    ) -> None:
        limiter = Limiter("5/hour", store=store)
        assert limiter.hit("k")
        (name,) = keys_of(server, store)
        with server.client() as client:
            client.delete(name)
            client.rpush(name, "a list")
            with pytest.raises(StoreError, match="WRONGTYPE"):
                limiter.hit("k")
            client.delete(name)
        assert limiter.hit("k").remaining == 4

    @pytest.mark.parametrize("text", EVERY)
    def test_a_key_lives_as_long_as_it_matters(
        self, text: str, store: RedisStore, server: Server
    ) -> None:
        """Not for ever, never less than its refill takes, and not longer for being hit again."""
        limiter = Limiter(text, store=store)
        with server.client() as client:
            for _ in range(8):
                decision = limiter.hit("k")
                if decision.reset_after < 0.05:
                    continue
                (name,) = keys_of(server, store)
                left = client.pttl(name) / 1000
                assert left > 0
                assert decision.reset_after - 1 < left + 1
                assert left < 2 * decision.reset_after + 61

    @pytest.mark.parametrize("text", ["3/300ms fixed-window", "3/300ms fixed-window first-hit"])
    def test_hits_do_not_put_off_the_end_of_a_window(self, text: str, store: RedisStore) -> None:
        limiter = Limiter(text, store=store)
        end, passed = time.monotonic() + 60, 0
        while passed < 9:
            assert time.monotonic() < end, passed
            passed += limiter.hit("k").allowed
            time.sleep(0.002)

    @pytest.mark.parametrize(
        "text", ["100/second burst 49", "100/second gcra burst 49", "1000/second burst 5",
                 "5/10ms", "9/1ms fixed-window"],
    )  # fmt: skip
    def test_a_fill_of_less_than_a_second_is_limited(self, text: str, store: RedisStore) -> None:
        limiter = Limiter(text, store=store)
        limit = limiter.limits[0]
        start = time.monotonic()
        found = [one.allowed for _ in range(50) for one in limiter.hit_many(["k"] * 100)]
        took = time.monotonic() - start
        windows = 2 + took * 1_000_000 / limit.window
        assert sum(found) <= max(limit.capacity, limit.amount) + limit.amount * windows

    def test_an_idle_key_is_not_full_too_early(self, store: RedisStore) -> None:
        for text in ("5/10s burst 5", "5/10s gcra", "5/10s", "5/10s sliding-log"):
            limiter = Limiter(text, store=store)
            assert limiter.hit("k", cost=5)
        time.sleep(1.2)
        for text in ("5/10s burst 5", "5/10s gcra", "5/10s", "5/10s sliding-log"):
            assert not limiter_of(text, store).hit("k", cost=3), text

    def test_all_keys_of_a_call_lie_in_one_slot(self, store: RedisStore) -> None:
        names = store.plan.names
        for key in ("user:1", "", "}", "{x}", "a{b}c", ("a", "b"), b"\xff"):
            slots = {slot_of(names.key("app", limit, key)) for limit in ("a", "b", "9/hour")}
            assert len(slots) == 1, key

    def test_every_instance_means_the_same_key(self, stores: Any) -> None:
        one, other = stores(prefix="shared"), stores(prefix="shared")
        assert [Limiter("2/hour", store=s).hit("k").remaining for s in (one, other)] == [1, 0]
        assert not Limiter("2/hour", store=one).hit("k")
        Limiter("2/hour", store=one).reset("k")

    def test_strangers_do_not_reset_a_spent_limit(self, store: RedisStore) -> None:
        limiter = Limiter("1/day", store=store)
        assert limiter.hit("k")
        assert all(limiter.hit_many([f"stranger {number}" for number in range(5000)]))
        assert not limiter.hit("k")

    def test_no_thread_sweeps(self, store: RedisStore) -> None:
        limiter = Limiter("1/hour", store=store)
        limiter.hit_many([str(number) for number in range(2000)])
        end = time.monotonic() + 60
        while any(thread.name.startswith("headgate") for thread in threading.enumerate()):
            assert time.monotonic() < end, threading.enumerate()
            time.sleep(0.01)

    def test_keys_leave_by_themselves(self, store: RedisStore, server: Server) -> None:
        texts = ("5/100ms sliding-log", "5/100ms", "5/100ms cells 5", "5/100ms burst 5")
        for text in texts:
            limiter_of(text, store).hit_many([f"user {number}" for number in range(50)])
        end = time.monotonic() + 60
        while keys_of(server, store):
            assert time.monotonic() < end, keys_of(server, store)
            time.sleep(0.05)

    @pytest.mark.parametrize("text", EVERY)
    def test_windows_start_at_the_same_instants_on_all_stores(self, text: str, stores: Any) -> None:
        clock = ManualClock(1_000_007.0)
        limiters = [
            Limiter(text, store=MemoryStore(clock=clock)), Limiter(text, store=stores(clock))
        ]  # fmt: skip
        for _ in range(30):
            here, there = (limiter.hit("k") for limiter in limiters)
            assert numbers(here) == numbers(there)
            clock.advance(7.3)

    def test_a_connection_belongs_to_one_thread(self, stores: Any) -> None:
        store = stores(coalesce=False)
        barrier = threading.Barrier(4)

        def asking() -> Any:
            return (yield [Command((b"CLIENT", b"ID"))])

        def mine(_: int) -> set[int]:
            barrier.wait()
            found = {int(store.link.run(asking())[0]) for _ in range(20)}
            barrier.wait()
            return found

        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(mine, range(4)))
        assert [len(ids) for ids in found] == [1] * 4
        assert len(set.union(*found)) == 4

    def test_joined_keys_do_not_collide(self, store: RedisStore) -> None:
        limiter = Limiter("1/minute", store=store)
        assert all(
            limiter.hit(key) for key in (("a", "b/c"), ("a/b", "c"), ("a", "b", "c"), "a/b/c")
        )


def numbers(decision: Decision) -> tuple[object, ...]:
    """All that a decision says."""
    return (
        decision.allowed, decision.remaining, decision.at, decision.reset_at,
        decision.reset_after, decision.retry_after,
    )  # fmt: skip


def limiter_of(text: str, store: RedisStore) -> Limiter:
    return Limiter(Limit.parse(text), store=store)
