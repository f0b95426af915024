"""Collapse: whose deadline, whose arguments, whose exception; and what nobody may wait for ever."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pytest

from headgate import ManualClock
from headgate.resilience import Collapse, LastGood, Policy, TimeLimit, deadline_in
from headgate.resilience.errors import TimeLimitExceeded


async def settled() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


class Shop:
    """Calls that end when they are told to."""

    def __init__(self) -> None:
        self.calls = 0
        self.open = asyncio.Event()

    async def price(self, *args: Any) -> int:
        self.calls += 1
        mine = self.calls
        await self.open.wait()
        return mine


@pytest.mark.parametrize("stacked", [False, True])
def test_the_leaders_deadline_is_not_the_others(stacked: bool) -> None:
    """Its time is over, not theirs: the next one makes the call."""
    clock = ManualClock()

    async def main() -> None:
        shop = Shop()
        collapse = Collapse(clock=clock)
        limit = TimeLimit(60, clock=clock)
        price: Callable[..., Awaitable[int]]
        if stacked:
            price = Policy(collapse=collapse, time_limit=limit)(shop.price)
        else:
            price = collapse(limit(shop.price))

        async def hasty() -> int:
            with deadline_in(1, clock):
                return await price("tea")

        async def patient() -> int:
            return await price("tea")

        tasks = [asyncio.create_task(each()) for each in (hasty, patient, patient)]
        await settled()
        assert (shop.calls, collapse.waiting) == (1, 2)
        clock.advance(1)
        await settled()
        assert tasks[0].done()
        assert (shop.calls, collapse.waiting) == (2, 1)
        shop.open.set()
        with pytest.raises(TimeLimitExceeded):
            await tasks[0]
        assert await asyncio.gather(*tasks[1:]) == [2, 2]
        assert collapse.under_way == 0

    asyncio.run(main())


def test_a_time_limit_of_the_call_itself_is_everybodys() -> None:
    clock = ManualClock()

    async def main() -> None:
        shop = Shop()
        policy = Policy(collapse=True, time_limit=1, clock=clock)
        tasks = [asyncio.create_task(policy.call_async(shop.price)) for _ in range(3)]
        await settled()
        clock.advance(1)
        came = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(each) for each in came] == [TimeLimitExceeded] * 3
        assert shop.calls == 1

    asyncio.run(main())


def test_a_follower_with_less_time_leaves_alone() -> None:
    clock = ManualClock()

    async def main() -> None:
        shop, collapse = Shop(), Collapse(clock=clock)

        async def hasty() -> int:
            with deadline_in(1, clock):
                return int(await collapse.call_async(shop.price))

        first = asyncio.create_task(collapse.call_async(shop.price))
        await settled()
        second = asyncio.create_task(hasty())
        await settled()
        clock.advance(1)
        with pytest.raises(TimeLimitExceeded, match="made by somebody else"):
            await second
        shop.open.set()
        assert await first == 1

    asyncio.run(main())


@pytest.mark.parametrize("values", [(1, True, 1.0), (0, False, 0.0), ("a", b"a")])
def test_arguments_that_are_equal_and_not_the_same(values: tuple[Any, ...]) -> None:
    """1, 1.0 and True are equal as keys, and a call may answer each otherwise."""
    kinds = list(dict.fromkeys(type(value) for value in values))

    async def main() -> None:
        shop, collapse = Shop(), Collapse()
        tasks = [asyncio.create_task(collapse.call_async(shop.price, value)) for value in values]
        await settled()
        assert collapse.under_way == len(kinds)
        shop.open.set()
        await asyncio.gather(*tasks)

    asyncio.run(main())
    kept, broken = LastGood(60), False

    @kept
    def shown(value: Any = None, **named: Any) -> str:
        if broken:
            raise ConnectionError
        return repr((type(value), named))

    before = [shown(value) for value in values] + [shown(it=value) for value in values]
    broken = True
    assert [shown(value) for value in values] + [shown(it=value) for value in values] == before


@dataclass
class Cart:
    """Compared by its value, and so not hashable."""

    items: int = 0
    calls: int = 0

    def total(self) -> int:
        self.calls += 1
        return self.items


def test_methods_and_what_cannot_be_a_key() -> None:
    collapse = Collapse()
    cart = Cart(3)
    assert collapse.call(cart.total) == 3  # the method itself can be one
    wrapped = collapse(Cart.total)
    with pytest.raises(TypeError, match=r"arguments of Cart.total .* give key="):
        wrapped(cart)
    assert cart.calls == 1
    assert Collapse(key=id)(Cart.total)(cart) == 3


def test_each_gets_the_exception_from_the_same_place() -> None:
    async def main() -> list[BaseException]:
        async def fail() -> None:
            await asyncio.sleep(0)
            raise ConnectionError("down")

        async def told(deep: int) -> None:
            if deep:
                return await told(deep - 1)
            try:
                raise KeyError("mine")
            except KeyError:
                await policy.call_async(fail)

        policy = Policy(collapse=True)
        tasks = [asyncio.create_task(told(deep)) for deep in range(20)]
        return list(await asyncio.gather(*tasks, return_exceptions=True))  # type: ignore[arg-type] # all of them fail

    came = asyncio.run(main())
    assert len({id(error) for error in came}) == 1
    depth, trace = 0, came[0].__traceback__
    while trace is not None:
        depth, trace = depth + 1, trace.tb_next
    assert depth < 60  # one way to it, not the sum of twenty


def test_loops_in_several_threads_share_one_call() -> None:
    collapse = Collapse()
    go, calls, came = threading.Event(), [], []

    async def price() -> str:
        calls.append(threading.get_ident())
        while not go.is_set():
            await asyncio.sleep(0.001)
        return "9.99"

    def loop() -> None:
        came.append(asyncio.run(collapse.call_async(price)))

    threads = [threading.Thread(target=loop, daemon=True) for _ in range(4)]
    for each in threads:
        each.start()
    while collapse.waiting < 3:
        threading.Event().wait(0.001)
    go.set()
    for each in threads:
        each.join(60)
    assert came == ["9.99"] * 4
    assert len(calls) == 1
