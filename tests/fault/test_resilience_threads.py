"""Bulkheads, pools, collapsing and policies under threads at a tiny switch interval, and under
cancellation and exceptions at every step: nothing is lost, nothing is given twice."""

from __future__ import annotations

import asyncio
import contextlib
import random
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from headgate.resilience.breaker import Breaker
from headgate.resilience.bulkhead import Bulkhead
from headgate.resilience.collapse import Collapse
from headgate.resilience.deadlines import time_left
from headgate.resilience.errors import BulkheadFull
from headgate.resilience.fallback import Fallback
from headgate.resilience.last_good import LastGood
from headgate.resilience.policy import Policy
from headgate.resilience.pools import Pool
from headgate.resilience.retry import Retry


@pytest.fixture(autouse=True)
def tiny_interval() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def together(count: int, work: Callable[[int], None]) -> None:
    """Run work in many threads at once."""
    errors: list[BaseException] = []
    start = threading.Barrier(count)

    def run(number: int) -> None:
        try:
            start.wait(60)
            work(number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(n,), daemon=True) for n in range(count)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(60)
    assert not any(each.is_alive() for each in threads), "somebody was never woken"
    assert not errors, errors[0]


class Inside:
    """Counts how many are inside at once."""

    def __init__(self) -> None:
        self.now = self.most = 0
        self._lock = threading.Lock()

    def __call__(self) -> None:
        with self._lock:
            self.now += 1
            self.most = max(self.most, self.now)
        for _ in range(20):
            pass
        with self._lock:
            self.now -= 1


@pytest.mark.parametrize("timeout", [None, 0.0, 0.0005])
@pytest.mark.parametrize("key", [None, "k"])
def test_a_bulkhead_never_exceeds_its_limit_and_loses_nothing(
    timeout: float | None, key: str | None
) -> None:
    bulkhead, inside = Bulkhead(3, timeout=timeout), Inside()
    done = [0] * 8

    def work(number: int) -> None:
        for _ in range(150):
            try:
                with bulkhead.hold(key):
                    inside()
                done[number] += 1
            except BulkheadFull:
                pass

    together(8, work)
    assert inside.most <= 3
    assert bulkhead.in_flight == bulkhead.waiting == 0
    assert not bulkhead._rooms
    assert len(bulkhead.room.free) == 3
    if timeout is None:
        assert done == [150] * 8


def test_resizing_while_threads_come_and_go() -> None:
    bulkhead = Bulkhead(4, timeout=None)

    def work(number: int) -> None:
        rng = random.Random(number)
        for _ in range(150):
            if number == 0:
                bulkhead.resize(rng.randint(1, 6))
            else:
                with bulkhead:
                    pass

    together(6, work)
    bulkhead.resize(2)
    assert bulkhead.in_flight == bulkhead.waiting == 0
    assert len(bulkhead.room.free) == 2


def test_tasks_of_several_loops_and_threads_share_one_line() -> None:
    bulkhead, inside = Bulkhead(2, timeout=None), Inside()

    async def task() -> None:
        for _ in range(10):
            async with bulkhead:
                inside()
                await asyncio.sleep(0)

    async def main() -> None:
        await asyncio.gather(*(task() for _ in range(8)))

    def work(number: int) -> None:
        if number % 2:
            asyncio.run(main())
        else:
            for _ in range(60):
                with bulkhead:
                    inside()

    together(4, work)
    assert inside.most <= 2
    assert bulkhead.in_flight == bulkhead.waiting == 0


def test_a_pool_under_threads() -> None:
    with Pool(3, queue=2) as pool:
        inside = Inside()
        done, refused = [0] * 8, [0] * 8

        def work(number: int) -> None:
            for _ in range(60):
                try:
                    pool.call(inside)
                    done[number] += 1
                except BulkheadFull:
                    refused[number] += 1

        together(8, work)
        assert inside.most <= 3
        assert sum(done) + sum(refused) == 480
        assert pool.in_flight == pool.waiting == pool.abandoned == 0


def test_collapsing_gives_everybody_an_answer() -> None:
    collapse = Collapse()

    def call(x: int) -> int:
        for _ in range(50):
            pass
        if x == 2:
            raise KeyError(x)
        return x

    def work(number: int) -> None:
        for turn in range(150):
            x = turn % 3
            try:
                assert collapse.call(call, x) == x != 2
            except KeyError:
                assert x == 2

    together(8, work)
    assert collapse.under_way == collapse.waiting == 0


def full(**more: Any) -> Policy:
    """A policy of all parts that leak if anything does."""
    parts: dict[str, Any] = {
        "breaker": Breaker("p", failure_ratio=1.0, window=1000, minimum=1000),
        "bulkhead": Bulkhead(2, timeout=None),
        "time_limit": 60,
    }
    return Policy("p", **{**parts, **more})


def at_rest(policy: Policy) -> None:
    """Nothing is taken, nobody waits, no deadline is left."""
    assert policy.bulkhead is not None
    assert policy.bulkhead.in_flight == policy.bulkhead.waiting == 0
    breaker: Any = policy.breaker
    assert breaker.metrics().in_flight == 0
    if policy.collapse is not None:
        assert policy.collapse.under_way == policy.collapse.waiting == 0
    assert time_left() is None


def test_a_policy_under_threads() -> None:
    policy, inside = full(fallback=Fallback(lambda number: "instead")), Inside()

    @policy
    def call(number: int) -> str:
        inside()
        if number % 3 == 0:
            raise ConnectionError
        return "fine"

    def work(number: int) -> None:
        for turn in range(100):
            assert call(turn) == ("instead" if turn % 3 == 0 else "fine")

    together(6, work)
    assert inside.most <= 2
    at_rest(policy)


OUTER: list[dict[str, Any]] = [
    {},
    {"fallback": "instead"},
    {"retry": Retry(3, on=ConnectionError, pause=0.0001, budget=None)},
    {"collapse": Collapse(key=lambda *_: 1)},
    {
        "collapse": Collapse(key=lambda *_: 1),
        "last_good": LastGood(60, key=lambda *_: 1),
        "retry": Retry(2, on=ConnectionError, pause=0, budget=None),
        "fallback": "instead",
    },
]


@pytest.mark.parametrize(("outer", "block"), [({}, True), *((outer, False) for outer in OUTER)])
def test_cancellation_at_every_step_leaks_nothing(outer: dict[str, Any], block: bool) -> None:
    """Tasks crowd through a policy; at every step of the loop one of them is cancelled."""

    async def call(number: int, fails: bool) -> int:
        await asyncio.sleep(0)
        if fails:
            raise ConnectionError
        await asyncio.sleep(0)
        return number

    async def in_block(number: int, fails: bool) -> int:
        async with policy:
            return await call(number, fails)

    async def main(steps: int, victim: int, fails: bool) -> bool:
        made: Any = in_block if block else policy(call)
        tasks = [asyncio.create_task(made(number, fails)) for number in range(4)]
        for _ in range(steps):
            await asyncio.sleep(0)
        over = tasks[victim].done()
        tasks[victim].cancel()
        came = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 10)
        for number, result in enumerate(came):
            if number != victim:  # nobody else is harmed
                assert not isinstance(result, asyncio.CancelledError)
        return over

    for fails in (False, True):
        for victim in range(4):
            for steps in range(60):
                policy = full(**outer)
                over = asyncio.run(main(steps, victim, fails))
                at_rest(policy)
                if over:
                    break
            else:
                assert outer.get("retry"), "it was never over"  # its pauses are real ones


def test_thousands_of_cancellations_lose_no_permit() -> None:
    bulkhead = Bulkhead(2, timeout=None)

    async def main() -> None:
        rng = random.Random(7)

        async def call() -> None:
            async with bulkhead:
                await asyncio.sleep(0)

        for _ in range(20):
            tasks = [asyncio.create_task(call()) for _ in range(250)]
            while not all(task.done() for task in tasks):
                for task in rng.sample(tasks, 20):
                    task.cancel()
                await asyncio.sleep(0)
            await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(main())
    assert bulkhead.in_flight == bulkhead.waiting == 0


class Broken(BaseException):
    """What nobody expects."""


@pytest.mark.parametrize("error", [KeyError, Broken, KeyboardInterrupt, GeneratorExit])
def test_any_exception_gives_everything_back(error: type[BaseException]) -> None:
    policy = full()

    def call() -> None:
        raise error

    async def later() -> None:
        await asyncio.sleep(0)
        raise error

    async def main() -> None:
        for _ in range(5):
            with contextlib.suppress(error):
                await policy.call_async(later)

    for _ in range(5):
        with pytest.raises(error):
            policy.call(call)
        with pytest.raises(error), policy:
            raise error
    asyncio.run(main())
    at_rest(policy)


def test_a_part_that_breaks_leaves_the_others_whole() -> None:
    def bad_key(*_: Any) -> str:
        raise ZeroDivisionError

    policy = full(bulkhead=Bulkhead(1, key=bad_key))
    with pytest.raises(ZeroDivisionError):
        policy.call(print)
    at_rest(policy)
    broken = full(breaker=Breaker("p", failed=lambda result: 1 / 0))
    with pytest.raises(ZeroDivisionError):
        broken.call(lambda: 1)
    at_rest(broken)


def test_a_coroutine_that_is_closed_in_the_middle_gives_back() -> None:
    policy = full()

    async def main() -> None:
        async def call() -> None:
            await asyncio.sleep(3600)

        task = asyncio.current_task()
        assert task is not None
        coroutine: Any = policy.call_async(call)
        coroutine.send(None)
        coroutine.close()

    asyncio.run(main())
    at_rest(policy)
