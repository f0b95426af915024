"""A server that goes away under a store that answers all the same, and comes back."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any

import pytest

from headgate import Limiter, LimitExceeded
from headgate.stores import open_store
from headgate.stores.failover import Failover
from headgate.stores.redis import RedisStore
from headgate.stores.standing import StandIns
from servers import Server, until

from .support_redis import BUDGET, BURST, RATE, WINDOW, Traffic, all_answered, back_in_time, running

LONG = 30.0
"""A budget for calls that are to succeed, however busy the machine is."""
ENOUGH = 0.5
"""A budget for those on a server that is then stopped, which costs a few of them."""
NODES = 4
AMOUNT = 50
TEXT = f"{AMOUNT}/30d fixed-window"
OUT = 1.0
"""Seconds that a server is away."""


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as started:
        yield started


def safe(
    server: Server, on_error: str = "local", nodes: int = 1, budget: float = BUDGET
) -> Failover:
    """A store that answers all the same."""
    return Failover(RedisStore(server.url, budget=budget), on_error, nodes)


@contextmanager
def safe_store(
    server: Server, on_error: str = "local", nodes: int = 1, budget: float = ENOUGH
) -> Iterator[Failover]:
    store = safe(server, on_error, nodes, budget)
    try:
        yield store
    finally:
        store.close()


def killed(server: Server, noticed: Callable[[], int]) -> float:
    """Away for a while, and back with nothing; when it was back."""
    server.kill()
    time.sleep(OUT)
    until(noticed)
    server.start()
    return time.monotonic()


def stopped(server: Server, noticed: Callable[[], int]) -> float:
    """Still for a while; when it went on."""
    server.stop()
    time.sleep(OUT)
    until(noticed)
    server.go_on()
    return time.monotonic()


def back(limiter: Limiter, key: str = "other") -> None:
    """Ask until the store itself answers."""
    end = time.monotonic() + 60
    while limiter.hit(key).degraded:
        assert time.monotonic() < end, "the store is not asked any more"
        time.sleep(0.005)


def caught_up(store: Failover) -> None:
    """Ask until the store was told all that it missed."""
    other, end = Limiter("1000000/30d", store=store), time.monotonic() + 60
    while other.hit("other").degraded or store.degraded or store.owed:
        assert time.monotonic() < end, "the store is not told"
        time.sleep(0.005)


@pytest.mark.parametrize("opened", ["failover", "url"])
@pytest.mark.parametrize("hurt", [killed, stopped])
def test_nobody_notices(
    hurt: Callable[..., float], opened: str, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    outages, forget = [1], StandIns.forget

    def counted(self: StandIns) -> None:
        outages[0] += self._local is not None
        forget(self)

    monkeypatch.setattr(StandIns, "forget", counted)
    store: Any = safe(server)
    if opened == "url":
        store.close()
        store = open_store(f"{server.url}?budget={BUDGET}")
    with running(Traffic(store)) as traffic:
        traffic.refused(0.0)
        since = hurt(server, lambda: traffic.count("stood-in", "stood-in no"))
        traffic.flowing(10, since=since)
    store.close()
    all_answered(traffic)
    back_in_time(traffic, since)
    assert not traffic.count("late", "away")
    # At the store, and once more in its place for as long as it was away, which a busy machine
    # may make it at any time; and what it had lost.
    losses = outages[0] + (hurt is killed)
    assert traffic.count("yes", "stood-in", what="window") <= WINDOW * (1 + losses)
    mine = [r for r in traffic.records if r.what == "bucket"]
    span = max(r.end for r in mine) - min(r.start for r in mine)
    most = BURST * (1 + losses) + 2 * RATE * span
    assert traffic.count("yes", "stood-in", what="bucket") <= most


def test_nodes_share_what_there_is(server: Server) -> None:
    with ExitStack() as stack:
        stores = [
            stack.enter_context(safe_store(server, nodes=NODES, budget=0.2)) for _ in range(NODES)
        ]
        limiters = [Limiter(TEXT, store=store) for store in stores]
        before = sum(limiter.hit("k").allowed for limiter in limiters for _ in range(5))
        assert before == 5 * NODES
        server.stop()
        away = [limiter.hit("k") for limiter in limiters for _ in range(AMOUNT)]
        assert all(decision.degraded for decision in away)
        share = -(-AMOUNT // NODES)
        local = sum(decision.allowed for decision in away)
        assert local == share * NODES <= AMOUNT + NODES - 1
        server.go_on()
        for limiter in limiters:
            back(limiter)
        after = sum(limiter.hit("k").allowed for limiter in limiters for _ in range(AMOUNT))
        assert before + local + after <= 2 * AMOUNT + NODES - 1
        assert after >= AMOUNT - before - 5 * NODES  # not more is missing than calls were lost


def test_each_limiter_may_choose(server: Server) -> None:
    with safe_store(server, "deny", budget=LONG) as store:
        limiters = {
            choice: Limiter("3/30d", store=store, name=str(choice), on_error=choice)
            for choice in ("allow", "deny", "local", None)
        }
        for limiter in limiters.values():
            assert limiter.hit("k")
        server.kill()
        passed = {}
        for choice, limiter in limiters.items():
            decisions = [limiter.hit("k") for _ in range(10)]
            assert all(decision.degraded for decision in decisions)
            passed[choice] = sum(decision.allowed for decision in decisions)
        assert passed == {"allow": 10, "deny": 0, "local": 3, None: 0}
        many = limiters["local"].hit_many(["a", "a", "a", "a", "b"])
        assert [decision.allowed for decision in many] == [True, True, True, False, True]


@pytest.mark.parametrize("hurt", [Server.kill, Server.stop], ids=["killed", "stopped"])
def test_a_store_that_is_away_is_left_alone(hurt: Callable[[Server], None], server: Server) -> None:
    workers, over = 16, threading.Event()
    with safe_store(server) as store:
        limiter = Limiter("1000000/30d", store=store)
        counts, slow = [0] * workers, [0] * workers

        def work(number: int) -> None:
            while not over.wait(0.001):
                start = time.monotonic()
                limiter.hit("k")
                counts[number] += 1
                slow[number] += time.monotonic() - start > ENOUGH / 2

        threads = [threading.Thread(target=work, args=(number,)) for number in range(workers)]
        for thread in threads:
            thread.start()
        time.sleep(0.2)
        hurt(server)
        end = time.monotonic() + 60
        while not store.opened:
            assert time.monotonic() < end, "it is asked on and on"
            time.sleep(0.01)
        time.sleep(2 * ENOUGH)
        before = store.failures
        time.sleep(2)
        failures, opened = store.failures - before, store.opened
        over.set()
        for thread in threads:
            thread.join()
    # From then on there are single probes, less and less often; everybody else waits for nothing.
    assert failures <= 12
    assert opened <= 20
    assert sum(counts) > 1000
    assert sum(slow) < sum(counts) / 5


def test_it_comes_back_to_all_without_a_rush(server: Server) -> None:
    """The first to ask again is one alone; with every answer one more may."""
    workers, over = 24, threading.Event()
    with safe_store(server, budget=BUDGET) as store:
        inside: list[tuple[float, int]] = []
        now, lock, decide = [0], threading.Lock(), store.store.decide
        limiter = Limiter("1000000/30d", store=store, limit_for=lambda key: None)  # the long way

        def counted(asks: Any) -> Any:
            with lock:
                now[0] += 1
                inside.append((time.monotonic(), now[0]))
            try:
                return decide(asks)
            finally:
                with lock:
                    now[0] -= 1

        store.store.decide = counted  # type: ignore[method-assign]
        store.verb_decide = store.verb_decide._replace(plain=counted)

        def work() -> None:
            while not over.wait(0.001):
                limiter.hit("k")

        threads = [threading.Thread(target=work) for _ in range(workers)]
        for thread in threads:
            thread.start()
        time.sleep(0.2)
        server.stop()
        time.sleep(OUT)
        until(lambda: store.degraded_decisions)
        away = time.monotonic()
        server.go_on()
        end = time.monotonic() + 60
        while store.degraded:
            assert time.monotonic() < end
            time.sleep(0.001)
        first = [count for at, count in inside if at > away][:4]
        over.set()
        for thread in threads:
            thread.join()
    assert first[0] == 1
    assert max(first) <= 4


def test_permits_of_a_time_without_the_store(server: Server) -> None:
    with safe_store(server) as store:
        store.lease_ttl = 600.0  # by itself nothing comes back here
        limiter = Limiter("2 concurrent", store=store)
        first = limiter.hold("k")
        permit = first.__enter__()
        server.stop()
        with limiter.hold("k") as other, limiter.hold("k"):
            assert other.decision.degraded
        permit.release()  # the store is told when it is back
        server.go_on()
        caught_up(store)
        first.__exit__(None, None, None)
        with limiter.hold("k", cost=2, timeout=10) as both:
            assert not both.decision.degraded


def test_what_was_settled_meanwhile_is_told_later(server: Server) -> None:
    with safe_store(server) as store:
        limiter = Limiter("100/30d fixed-window", store=store)
        with limiter.reserve("k", 50) as reserved:
            server.stop()
            reserved.settle(10)
        server.go_on()
        caught_up(store)
        assert limiter.peek("k").remaining == 90


@pytest.mark.parametrize("what", ["hold", "reserve"])
@pytest.mark.parametrize("choice", ["deny", "allow", "local"])
def test_a_take_that_is_carried_out_late_holds_nothing(
    choice: str, what: str, server: Server
) -> None:
    """It was sent, timed out, and the server does it when it goes on."""
    text = "2 concurrent" if what == "hold" else TEXT
    with safe_store(server, choice) as store, safe_store(server) as another:
        store.lease_ttl = 600.0
        limiter, beside = Limiter(text, store=store), Limiter(text, store=another)
        with getattr(limiter, what)("other", 2), getattr(beside, what)("another", 2):
            pass  # so that there are connections, and the server knows the script
        full = beside.peek("k").remaining
        server.stop()
        refused = pytest.raises(LimitExceeded) if choice == "deny" else nullcontext()
        with refused, getattr(limiter, what)("k", 2) as held:
            assert held.decision.degraded
        assert store.failures
        server.go_on()
        end = time.monotonic() + 30
        while beside.peek("k").remaining == full:
            assert time.monotonic() < end, "it is not carried out"
            time.sleep(0.005)
        caught_up(store)
        assert beside.peek("k").remaining == full
