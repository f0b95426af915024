"""Policy: the parts in their order, around functions, async functions and blocks."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from policy_tools import spun

from headgate import ManualClock
from headgate.resilience.breaker import Breaker
from headgate.resilience.bulkhead import Bulkhead
from headgate.resilience.collapse import Collapse
from headgate.resilience.deadlines import time_left
from headgate.resilience.errors import BreakerOpen, BulkheadFull, TimeLimitExceeded
from headgate.resilience.fallback import Fallback
from headgate.resilience.last_good import LastGood
from headgate.resilience.notices import Notice
from headgate.resilience.policy import Policy
from headgate.resilience.pools import Pool
from headgate.resilience.retry import Retry
from headgate.resilience.timing import TimeLimit


def everything(**more: Any) -> dict[str, Any]:
    """A part of each kind."""
    return {
        "fallback": Fallback("instead"),
        "last_good": LastGood(60),
        "collapse": Collapse(),
        "retry": Retry(2, on=ConnectionError, pause=0, budget=None),
        "breaker": Breaker("b"),
        "bulkhead": Bulkhead(2),
        "time_limit": TimeLimit(60),
        **more,
    }


PARTS = list(everything())
SUBSETS = [words for n in range(len(PARTS) + 1) for words in itertools.combinations(PARTS, n)]


@pytest.mark.parametrize("words", SUBSETS, ids="+".join)
def test_every_combination(words: tuple[str, ...]) -> None:
    parts = everything()
    policy = Policy("p", **{word: parts[word] for word in words})

    def call(x: Any, *, y: int = 0) -> Any:
        if x == "bad":
            raise ConnectionError
        return x, y

    async def later(x: Any, *, y: int = 0) -> Any:
        await asyncio.sleep(0)
        return call(x, y=y)

    expected: Any = "instead" if "fallback" in words else ConnectionError

    def came(made: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            result = made(*args, **kwargs)
            return asyncio.run(result) if asyncio.iscoroutine(result) else result
        except ConnectionError as error:
            return type(error)

    for plain in (policy(call), lambda *a, **k: policy.call(call, *a, **k)):
        assert came(plain, 1, y=2) == (1, 2)
        assert came(plain, "bad") == expected
    policy_later = policy(later)
    for made in (policy_later, lambda *a, **k: policy.call_async(later, *a, **k)):
        assert came(made, 1, y=2) == (1, 2)
        assert came(made, "bad") == expected
    bulkhead, breaker = parts["bulkhead"], parts["breaker"]
    assert bulkhead.in_flight == 0
    assert breaker.metrics().in_flight == 0
    assert time_left() is None
    assert "p" in repr(policy)


def test_shorthands() -> None:
    policy = Policy("p", fallback=None, last_good=60, collapse=True, retry=3, bulkhead=5,
                    time_limit=1.5)  # fmt: skip
    assert policy.call(lambda: 1) == 1
    assert policy.retry is not None
    assert (policy.retry.attempts, policy.retry.name) == (3, "p")
    assert Policy(fallback=None).call({}.__getitem__, "x") is None
    with pytest.raises(TypeError, match="breaker is a Breaker"):
        Policy(breaker=3)  # type: ignore[arg-type] # that is the point


def test_the_breaker_sees_every_attempt_and_every_time_out() -> None:
    clock = ManualClock()
    breaker = Breaker("b", failure_count=3, window=10, clock=clock)
    policy = Policy(
        breaker=breaker, retry=Retry(2, on=TimeLimitExceeded, pause=0, budget=None),
        time_limit=TimeLimit(1, clock=clock), fallback="instead",
    )  # fmt: skip

    async def main() -> None:
        get: Any = policy(asyncio.sleep)
        task = asyncio.create_task(get(3600))
        for _ in range(2):
            await spun(clock, 1)
        assert await task == "instead"
        assert breaker.metrics().failures == 2
        task = asyncio.create_task(get(3600))
        await spun(clock, 1)
        assert await task == "instead"
        assert breaker.state == "open"
        assert await get(0) == "instead"

    asyncio.run(main())


def test_a_full_bulkhead_says_nothing_about_what_is_called() -> None:
    breaker = Breaker("b", failure_count=1, window=5)
    policy = Policy(breaker=breaker, bulkhead=1)

    def outer() -> None:
        for _ in range(5):
            with pytest.raises(BulkheadFull):
                policy.call(print)

    policy.call(outer)
    assert breaker.state == "closed"
    assert breaker.metrics().ignored == 5


def test_a_refused_or_cancelled_probe_frees_its_place() -> None:
    clock = ManualClock()
    breaker = Breaker("b", failure_count=1, window=1, wait=1.0, probes=1, clock=clock)
    bulkhead = Bulkhead(1)
    policy = Policy(breaker=breaker, bulkhead=bulkhead)
    with pytest.raises(KeyError):
        policy.call({}.__getitem__, 1)
    clock.advance(2)
    with bulkhead, pytest.raises(BulkheadFull):  # the probe was let in, and then refused
        policy.call(print)

    async def main() -> None:
        task = asyncio.create_task(policy.call_async(asyncio.sleep, 3600))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(main())
    assert policy.call(lambda: "well") == "well"
    assert breaker.state == "closed"


def test_the_last_good_value_comes_before_the_fallback() -> None:
    up = True

    def call(x: int) -> int:
        if not up:
            raise ConnectionError
        return x

    policy = Policy(last_good=60, fallback="instead")
    get = policy(call)
    assert get(1) == 1
    up = False
    assert [get(1), get(2)] == [1, "instead"]


def test_blocks() -> None:
    breaker = Breaker("b", failure_count=2, window=5)
    policy = Policy("p", breaker=breaker, bulkhead=1, time_limit=5)
    with policy:
        assert time_left() is not None
        with pytest.raises(BulkheadFull), policy:
            pass
    for _ in range(2):
        with pytest.raises(KeyError), policy:
            raise KeyError("x")
    with pytest.raises(BreakerOpen), policy:
        pass
    assert policy.bulkhead is not None
    assert policy.bulkhead.in_flight == 0
    assert time_left() is None


def test_async_blocks() -> None:
    clock = ManualClock()
    policy = Policy("p", bulkhead=Bulkhead(1, timeout=None), time_limit=5, clock=clock)
    order: list[int] = []

    async def call(number: int) -> None:
        async with policy:
            await asyncio.sleep(0)
            order.append(number)

    async def late() -> None:
        async with policy:
            await asyncio.sleep(3600)

    async def main() -> None:
        await asyncio.gather(*(call(number) for number in range(5)))
        task = asyncio.create_task(late())
        await spun(clock, 5)
        with pytest.raises(TimeLimitExceeded):
            await task

    asyncio.run(main())
    assert order == list(range(5))
    assert policy.bulkhead is not None
    assert policy.bulkhead.in_flight == 0


def test_a_block_cannot_be_made_again() -> None:
    policy = Policy("p", retry=2, fallback=1)
    with (
        pytest.raises(TypeError, match="'p' has fallback and retry, and a block cannot be"),
        policy,
    ):
        pass


def test_generators_and_colours() -> None:
    def numbers() -> Iterator[int]:
        yield 1

    async def later_numbers() -> AsyncIterator[int]:
        yield 1

    async def later() -> None: ...

    policy = Policy("p", time_limit=1)
    for function in (numbers, later_numbers):
        with pytest.raises(TypeError, match="is a generator"):
            policy(function)
    with Pool(1) as pool, pytest.raises(TypeError, match="later is async and needs no thread"):
        Policy("p", bulkhead=pool)(later)
    with Pool(1) as pool:
        limit = TimeLimit(1, pool=pool)  # for plain functions; async ones need none
        assert asyncio.run(Policy(time_limit=limit).call_async(asyncio.sleep, 0, 7)) == 7
    with pytest.raises(TypeError, match="its fallback is async"):
        Policy(fallback=later).call(print)
    with pytest.raises(TypeError, match="its fallback is async"):
        Policy(fallback=later)(numbers.__class__.__repr__)


def test_methods_static_and_class() -> None:
    policy = Policy(time_limit=1)

    class Shop:
        @policy
        def one(self) -> int:
            return 1

        @policy
        async def two(self) -> int:
            return 2

        @policy
        @staticmethod
        def three() -> int:
            return 3

        @policy
        @classmethod
        def name(cls) -> str:
            return cls.__name__

    shop = Shop()
    assert (shop.one(), asyncio.run(shop.two()), shop.three(), Shop.name()) == (1, 2, 3, "Shop")
    assert Shop.one.__name__ == "one"


def test_events() -> None:
    told: list[Notice] = []
    policy = Policy(
        "p", retry=Retry(2, on=KeyError, pause=0), fallback="instead", bulkhead=1, time_limit=1,
        breaker=Breaker("b"), listeners=[told.append],
    )  # fmt: skip
    policy.call(lambda: 1)
    assert [notice.kind for notice in told] == ["call.passed"]
    assert told[0].values["duration"] >= 0
    told.clear()
    policy.call({}.__getitem__, "x")
    kinds = [notice.kind for notice in told if not notice.kind.startswith("breaker")]
    assert kinds == ["call.failed", "retry.again", "call.failed", "retry.exhausted", "fallback"]


def test_the_traceback_shows_the_wrapper() -> None:
    import traceback

    try:
        Policy(bulkhead=1).call({}.__getitem__, "x")
    except KeyError as error:
        shown = "".join(traceback.format_exception(error))
    assert "result = function(*args, **kwargs)" in shown


def test_one_hanging_dependency_leaves_the_others_alone() -> None:
    stop = threading.Event()
    names = ["good", "other", "hangs"]
    pools = {name: Pool(2, name=name) for name in names}
    policies = {
        name: Policy(name, bulkhead=pools[name], time_limit=0.05, breaker=Breaker(name),
                     fallback="instead")
        for name in names
    }  # fmt: skip
    came: dict[str, list[Any]] = {name: [] for name in names}
    took: dict[str, float] = dict.fromkeys(names, 0.0)

    def page() -> None:
        for _ in range(10):
            for name in names:
                start = time.monotonic()
                call = (lambda: stop.wait(60)) if name == "hangs" else (lambda: "fine")
                came[name].append(policies[name].call(call))
                took[name] = max(took[name], time.monotonic() - start)

    threads = [threading.Thread(target=page) for _ in range(2)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(60)
    stop.set()
    assert came["good"] == came["other"] == ["fine"] * 20
    assert came["hangs"] == ["instead"] * 20
    assert took["hangs"] < 30
    assert pools["hangs"].abandoned <= 2
    for pool in pools.values():
        pool.close()


def test_one_hanging_dependency_of_tasks() -> None:
    clock = ManualClock()
    policies = {
        name: Policy(name, bulkhead=Bulkhead(2), time_limit=1, fallback="instead", clock=clock)
        for name in ("good", "hangs")
    }

    async def main() -> None:
        hanging = [
            asyncio.create_task(policies["hangs"].call_async(asyncio.sleep, 3600))
            for _ in range(10)
        ]
        for _ in range(20):
            assert await policies["good"].call_async(asyncio.sleep, 0, "fine") == "fine"
        assert sum(task.done() for task in hanging) == 8  # refused at once
        await spun(clock, 1)
        assert await asyncio.gather(*hanging) == ["instead"] * 10

    asyncio.run(main())
