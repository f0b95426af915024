"""A service that dies, stops, and comes back, under limiters that answer all the same."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from client_tools import Process, Service
from headgate import AsyncLimiter, Limit, Limiter
from headgate.decision import Ask, Decision
from headgate.stores.client import ClientStore

BUDGET = 0.5
"""Seconds; roomy, since the machine may have much to do."""
LONG = 30.0
"""A budget for calls that are to succeed, however much it has to do."""
LATE = 20.0
"""Seconds after which a call that had a budget is plainly not bounded."""
RECOVERY = 60.0
TEXT = "1000000/30d fixed-window"


@pytest.fixture
def process() -> Iterator[Process]:
    with Process() as started:
        yield started


def url(server: Any, **options: object) -> str:
    given = {"budget": BUDGET, **options}
    return f"{server.url}?{'&'.join(f'{name}={value}' for name, value in given.items())}"


def timed(call: Callable[[], Decision]) -> tuple[Decision, float]:
    begin = time.monotonic()
    return call(), time.monotonic() - begin


def until_well(call: Callable[[], Decision]) -> None:
    """Ask until the service answers again."""
    end = time.monotonic() + RECOVERY
    while call().degraded:
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.mark.parametrize("how", ["killed", "stopped"])
def test_a_service_that_goes_away_and_comes_back(how: str, process: Process) -> None:
    with Limiter(TEXT, store=url(process)) as limiter:
        until_well(lambda: limiter.hit("k"))
        (process.kill if how == "killed" else process.stop)()
        found = [timed(lambda: limiter.hit("k")) for _ in range(50)]
        assert all(decision for decision, _ in found)
        assert max(took for _, took in found) < LATE
        assert sum(decision.degraded for decision, _ in found) >= 49
        # Once it is known to be away nobody waits for it.
        assert sorted(took for _, took in found)[25] < BUDGET / 2
        (process.start if how == "killed" else process.go_on)()
        until_well(lambda: limiter.hit("k"))


@pytest.mark.parametrize("how", ["killed", "stopped"])
def test_the_same_for_tasks(how: str, process: Process) -> None:
    async def work() -> None:
        async with AsyncLimiter(TEXT, store=url(process)) as limiter:
            await well(limiter)
            (process.kill if how == "killed" else process.stop)()
            begin = time.monotonic()
            found = await asyncio.gather(*(limiter.hit("k") for _ in range(100)))
            assert time.monotonic() - begin < LATE
            assert all(found)
            assert all(one.degraded for one in found)
            (process.start if how == "killed" else process.go_on)()
            await well(limiter)

    async def well(limiter: AsyncLimiter) -> None:
        end = time.monotonic() + RECOVERY
        while (await limiter.hit("k")).degraded:
            assert time.monotonic() < end
            await asyncio.sleep(0.01)

    asyncio.run(work())


def test_a_restart_between_two_calls(process: Process) -> None:
    store = ClientStore(url(process, budget=LONG))
    limit = Limit.parse("5/hour")
    assert store.decide([Ask("take", limit, "k")])[0].remaining == 4
    process.kill()
    process.start()
    # The kept connection is seen to be dead before it is used: nothing was lost but the state.
    assert store.decide([Ask("take", limit, "k")])[0].remaining == 4
    store.close()


def test_each_rule_says_what_happens(process: Process) -> None:
    with Limiter(TEXT, store=url(process, budget=LONG), on_error="deny") as limiter:
        assert limiter.hit("k")
        process.kill()
        refused = limiter.hit("k")
        assert refused.degraded
        assert not refused


def test_a_share_while_the_service_is_away(process: Process) -> None:
    with Limiter("40/30d fixed-window", store=url(process, nodes=4, budget=LONG)) as limiter:
        limiter.hit("k")
        process.kill()
        assert sum(bool(limiter.hit("k")) for _ in range(30)) == 10


def test_permits_are_given_back_once_the_service_is_there_again(process: Process) -> None:
    with Limiter("2 concurrent", store=url(process)) as limiter:
        with limiter.hold("k"):
            process.stop()
        process.go_on()
        end = time.monotonic() + RECOVERY
        while (look := limiter.peek("k")).degraded or look.remaining < 2:
            assert time.monotonic() < end
            time.sleep(0.01)


def test_a_dead_holder_loses_its_permit(process: Process) -> None:
    store = ClientStore(url(process, budget=LONG))
    limit, began = Limit.parse("1 concurrent"), time.monotonic()
    taken = Ask("take", limit, "k", token=store.token(), ttl=2_000_000)
    assert store.decide([taken])[0].allowed
    while not store.decide([taken._replace(token=store.token())])[0].allowed:
        assert time.monotonic() < began + RECOVERY
        time.sleep(0.02)
    assert time.monotonic() > began + 2
    store.close()


def test_permits_are_renewed_while_they_are_held(
    process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ClientStore, "lease_ttl", 2.0)
    with Limiter("1 concurrent", store=url(process, budget=LONG)) as limiter:
        with limiter.hold("k") as permit:
            time.sleep(2.5)
            assert not permit.lost
            assert limiter.peek("k").remaining == 0
        assert limiter.peek("k").remaining == 1


def child(work: Callable[[], bool]) -> int:
    """Do something in a forked process; its status."""
    made = os.fork()
    if made == 0:
        signal.alarm(60)
        code = 1
        try:
            code = 0 if work() else 2
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(made, 0)[1])


def test_forks_share_no_connection(process: Process) -> None:
    with Limiter("1000/30d fixed-window", store=url(process, budget=LONG, cache="no")) as limiter:
        stop = threading.Event()
        mine: list[bool] = []

        def busy() -> None:
            while not stop.is_set():
                mine.append(bool(limiter.hit("k")))

        limiter.hit("first")
        threads = [threading.Thread(target=busy) for _ in range(2)]
        for thread in threads:
            thread.start()
        try:
            codes = [
                child(lambda: all(not limiter.hit("child").degraded for _ in range(3)))
                for _ in range(8)
            ]
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        assert codes == [0] * 8
        assert limiter.peek("child").remaining == 1000 - 24
        assert limiter.peek("k").remaining == 1000 - sum(mine)
        assert not limiter.hit("last").degraded


def test_tasks_in_a_forked_child(process: Process) -> None:
    limiter = AsyncLimiter(TEXT, store=url(process, budget=LONG))

    async def work() -> bool:
        return not (await limiter.hit("k")).degraded

    assert asyncio.run(work())
    assert child(lambda: asyncio.run(work())) == 0
    assert asyncio.run(work())
    asyncio.run(limiter.close())


def test_an_interrupt_leaves_no_answer_behind() -> None:
    """Whoever asks next gets his own answer, never that of a call that was interrupted."""
    with Service() as service:
        store = ClientStore(url(service, budget=LONG))
        limits = [Limit.parse(f"{amount}/hour") for amount in (100, 200)]
        store.decide([Ask("check", limits[0], "k")])
        service.app.before = lambda path: asyncio.sleep(0.01)

        class Stop(Exception):
            pass

        def handler(number: int, frame: Any) -> None:
            raise Stop

        old = signal.signal(signal.SIGALRM, handler)
        try:
            for turn in range(20):
                signal.setitimer(signal.ITIMER_REAL, 0.001 + turn % 8 / 1000)
                try:
                    store.decide([Ask("check", limits[0], "k")])
                    signal.setitimer(signal.ITIMER_REAL, 0)
                except Stop:
                    pass
                [found] = store.decide([Ask("check", limits[1], "k")])
                assert found.remaining == 200
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, old)
        store.close()
