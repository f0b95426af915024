"""A zone between processes: forked, stopped, killed."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from zone_tools import in_order

from headgate import Ask, Limit, Limiter, LimitExceeded, StoreError
from headgate.stores.zone import ZoneStore
from headgate.stores.zone.places import KEYS, TOKENS

SIZE = 1 << 18
PATIENCE = 60.0
"""Seconds, of which nobody needs half, however busy the machine is."""
CONTEXT = multiprocessing.get_context("fork")


@pytest.fixture(params=["file", "anonymous"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ZoneStore]:
    if request.param == "file":
        made = ZoneStore(tmp_path / "zone", size=SIZE, patience=PATIENCE)
    else:
        made = ZoneStore.anonymous(size=SIZE, patience=PATIENCE)
    yield made
    made.close()


def started(work: Callable[..., object], *arguments: Any) -> Any:
    process = CONTEXT.Process(target=work, args=arguments, daemon=True)
    process.start()
    return process


def answers(count: int, work: Callable[[], object]) -> list[Any]:
    """What so many forked processes say."""
    queue = CONTEXT.Queue()
    processes = [started(lambda: queue.put(work())) for _ in range(count)]
    found = [queue.get(timeout=60) for _ in processes]
    for process in processes:
        process.join()
        assert process.exitcode == 0
    return found


class TestTogether:
    @pytest.mark.parametrize(
        "text", ["300/hour", "300/hour gcra", "300/hour cells 6", "300/hour sliding-log"]
    )
    def test_processes_and_threads_get_exactly_the_limit(self, text: str, store: ZoneStore) -> None:
        limit = Limit.parse(text)

        def work() -> int:
            passed: list[int] = []

            def hit() -> None:
                asks = [Ask("take", limit, "k")]
                passed.append(sum(store.decide(asks)[0].allowed for _ in range(60)))

            threads = [threading.Thread(target=hit) for _ in range(2)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            return sum(passed)

        assert sum(answers(4, work)) == 300
        assert not store.decide([Ask("take", limit, "k")])[0].allowed
        in_order(store)

    def test_many_keys(self, store: ZoneStore) -> None:
        limiter = Limiter("3/hour", "9/hour token-bucket", store=store)
        keys = [f"user {number}" for number in range(100)]

        def work() -> int:
            mixed = random.Random(os.getpid()).sample(keys * 2, 200)
            return sum(decision.allowed for decision in limiter.hit_many(mixed))

        assert sum(answers(4, work)) == 300
        in_order(store)

    def test_opened_by_name_in_each(self, tmp_path: Path) -> None:
        path = tmp_path / "zone"

        def work() -> int:
            limiter = Limiter("10/hour", store=f"zone://{path}?size=64KiB")
            return sum(limiter.hit("k").allowed for _ in range(10))

        assert sum(answers(4, work)) == 10

    def test_all_or_nothing(self, store: ZoneStore) -> None:
        limits = [Limit.parse(text) for text in ("40/hour", "60/hour sliding-log", "50/hour gcra")]
        asks = [Ask("take", limit, "k") for limit in limits]
        assert sum(answers(4, lambda: sum(all(store.decide(asks)) for _ in range(30)))) == 40
        left = [store.decide([Ask("check", limit, "k")])[0].remaining for limit in limits]
        assert left == [0, 20, 10]

    def test_own_limits_are_seen_by_all(self, store: ZoneStore) -> None:
        limiter = Limiter("2/hour", store=store)
        limiter.hit("k", 2)
        assert answers(1, lambda: limiter.set_limit("k", "7/hour sliding-log")) == [None]
        assert str(limiter.get_limit("k")[0]) == "7/hour sliding-log"
        assert limiter.hit("k").remaining == 4
        assert answers(1, lambda: limiter.set_limit("k", None)) == [None]
        assert not limiter.hit("k").allowed

    def test_different_limits_carry_over(self, store: ZoneStore) -> None:
        small, large = (Limit.parse(text).named("api") for text in ("5/hour", "9/hour gcra"))
        store.decide([Ask("take", small, "k", 4)])
        other = answers(1, lambda: store.decide([Ask("take", large, "k")])[0].remaining)
        assert other == [4]
        assert store.decide([Ask("check", small, "k")])[0].remaining == 0

    def test_tokens_differ(self, store: ZoneStore) -> None:
        found = answers(4, lambda: [store.token() for _ in range(50)])
        assert all(tokens == sorted(tokens) for tokens in found)
        assert sorted(token for tokens in found for token in tokens) == list(range(1, 201))
        assert store.token() == 201

    def test_a_fork_in_the_middle_of_a_decision_of_another_thread(self, store: ZoneStore) -> None:
        limiter = Limiter("1000000000/hour", "1000000000/day", store=store)
        over = threading.Event()

        def hit() -> None:
            while not over.is_set():
                limiter.hit("k")

        thread = threading.Thread(target=hit)
        thread.start()
        try:
            for _ in range(20):
                assert answers(1, lambda: limiter.hit("k").allowed) == [True]
        finally:
            over.set()
            thread.join()

    def test_a_permit_from_another_process_is_waited_for(self, store: ZoneStore) -> None:
        limiter = Limiter("1 concurrent", store=store)
        ready, go = CONTEXT.Event(), CONTEXT.Event()

        def work() -> None:
            with limiter.hold("k"):
                ready.set()
                go.wait(60)

        process = started(work)
        assert ready.wait(60)
        with pytest.raises(LimitExceeded):
            limiter.hold("k", timeout=0.01).__enter__()
        timer = threading.Timer(0.05, go.set)
        timer.start()
        with limiter.hold("k", timeout=20):
            assert go.is_set()
        process.join()


class TestDeath:
    def test_permits_of_the_dead_come_back(self, store: ZoneStore) -> None:
        limit = Limit.parse("3 concurrent")
        ready = CONTEXT.Event()

        def work() -> None:
            for token in (11, 12):
                store.decide([Ask("take", limit, "k", token=token)])
            ready.set()
            time.sleep(60)

        process = started(work)
        assert ready.wait(60)
        assert store.decide([Ask("take", limit, "k", token=1)])[0].allowed
        assert not store.decide([Ask("take", limit, "k", token=2)])[0].allowed
        os.kill(process.pid, signal.SIGKILL)
        while "(zombie)" not in Path(f"/proc/{process.pid}/status").read_text():
            time.sleep(0.001)  # a zombie then, and dead all the same
        assert store.decide([Ask("check", limit, "k", 2)])[0].allowed
        assert store.decide([Ask("take", limit, "k", token=2)])[0].allowed
        assert store.decide([Ask("take", limit, "k", token=3)])[0].allowed
        assert not store.decide([Ask("take", limit, "k", token=4)])[0].allowed
        process.join()
        assert not store.decide([Ask("release", limit, "k", token=11)])[0].allowed
        assert store.decide([Ask("release", limit, "k", token=1)])[0].allowed

    def test_a_decision_half_done_is_undone(self, store: ZoneStore) -> None:
        limit = Limit.parse("5/hour")
        store.decide([Ask("take", limit, "k", 2)])

        def work() -> None:
            with store._lock:
                store._zone.lock.enter(1.0)
                store._engine.put(KEYS, 1000)
                store._engine.put(TOKENS, 1000)
                os.kill(os.getpid(), signal.SIGKILL)

        started(work).join()
        begin = time.monotonic()
        assert store.decide([Ask("take", limit, "k")])[0].remaining == 2
        assert time.monotonic() - begin < PATIENCE / 2
        assert (store.keys, store.recoveries, store.token()) == (1, 1, 1)

    def test_a_stopped_holder_is_an_error_and_no_hang(self, store: ZoneStore) -> None:
        limit = Limit.parse("5/hour")
        ready = CONTEXT.Event()

        def work() -> None:
            with store._lock:
                store._zone.lock.enter(1.0)
                ready.set()
                os.kill(os.getpid(), signal.SIGSTOP)
                store._zone.lock.leave()

        process = started(work)
        assert ready.wait(60)
        while "(stopped)" not in Path(f"/proc/{process.pid}/status").read_text():
            time.sleep(0.001)
        begin = time.monotonic()
        with pytest.raises(StoreError, match=rf"held by process {process.pid}, which is stopped"):
            store.decide([Ask("take", limit, "k")])
        assert time.monotonic() - begin < PATIENCE / 2
        os.kill(process.pid, signal.SIGCONT)
        process.join()
        assert store.decide([Ask("take", limit, "k")])[0].remaining == 4

    def test_patience_ends(self, store: ZoneStore) -> None:
        ready = CONTEXT.Event()

        def work() -> None:
            with store._lock:
                store._zone.lock.enter(1.0)
                ready.set()
                time.sleep(60)

        process = started(work)
        assert ready.wait(60)
        store._patience = 0.1
        with pytest.raises(StoreError, match=r"held by others for 0.1 s \(last by process"):
            store.token()
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        assert store.token() == 1

    def test_workers_killed_at_random(self, store: ZoneStore) -> None:
        """Whoever dies, no limit is passed, nothing is torn, and nobody hangs."""
        limits = [
            Limit.parse(text)
            for text in ("400/hour", "300/hour sliding-log", "500/hour cells 12", "4 concurrent")
        ]
        passed, said = os.pipe()

        def work() -> None:
            chance = random.Random(os.getpid())
            while True:
                key = f"user {chance.randrange(3)}"
                token = store.token()
                asks = [Ask("take", limit, key, token=token) for limit in limits]
                if all(store.decide(asks)):
                    os.write(said, b".")
                    store.decide([Ask("release", limits[3], key, token=token)])

        def unlucky() -> None:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.setitimer(signal.ITIMER_REAL, random.uniform(0.002, 0.03))
            work()

        workers = [started(unlucky) for _ in range(3)]
        end = time.monotonic() + 4
        while time.monotonic() < end:
            for place, worker in enumerate(workers):
                if worker.exitcode is not None:
                    assert worker.exitcode == -signal.SIGALRM
                    workers[place] = started(unlucky)
            time.sleep(0.002)
        for worker in workers:
            worker.join()
        slowest = 0.0
        for key in ("user 0", "user 1", "user 2"):
            begin = time.monotonic()
            looks = [store.decide([Ask("check", limit, key)])[0] for limit in limits]
            slowest = max(slowest, time.monotonic() - begin)
            pairs = zip(limits, looks, strict=True)
            used = [limit.amount - look.remaining for limit, look in pairs]
            assert used[0] == used[1] == used[2] <= 300
            assert used[3] == 0 or store.decide([Ask("take", limits[3], key, 4)])[0].allowed
        assert slowest < PATIENCE / 2
        os.close(said)
        assert len(os.read(passed, 10_000)) <= 900
        os.close(passed)
        in_order(store)


def test_a_lease_outlives_the_process_that_asked_for_it(tmp_path: Path) -> None:
    """The worker of a service asks for others, who renew through another worker."""
    path = str(tmp_path / "shared.zone")
    limit = Limit.parse("1 concurrent")
    store = ZoneStore(path, size=SIZE)
    child = os.fork()
    if child == 0:
        mine = ZoneStore(path)
        taken = mine.decide([Ask("take", limit, "k", token=1, ttl=60_000_000)])[0].allowed
        os._exit(not taken)
    assert os.waitpid(child, 0)[1] == 0
    assert not store.decide([Ask("take", limit, "k", token=2, ttl=60_000_000)])[0].allowed
    assert store.decide([Ask("renew", limit, "k", token=1, ttl=60_000_000)])[0].allowed
    store.close()
