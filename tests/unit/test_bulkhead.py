"""Bulkhead: so many at once, first come, first served, and nothing is ever lost."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from bulkhead_tools import thread, until

from headgate import ManualClock
from headgate.resilience.bulkhead import Bulkhead
from headgate.resilience.deadlines import deadline_in
from headgate.resilience.errors import BulkheadFull
from headgate.resilience.rooms import Room
from headgate.resilience.waiters import ThreadWaiter

# -- threads


def test_refuses_at_once_when_nobody_may_wait() -> None:
    bulkhead = Bulkhead(2, name="db")
    with bulkhead, bulkhead:
        assert bulkhead.in_flight == 2
        with pytest.raises(BulkheadFull, match=r"db: 2 calls are under way.*none may wait") as full:
            bulkhead.call(print)
        assert full.value.name == "db"
    assert bulkhead.in_flight == 0
    assert bulkhead.call(lambda: 7) == 7


def test_gives_back_after_an_exception() -> None:
    bulkhead = Bulkhead(1)

    @bulkhead
    def broken() -> None:
        raise KeyError("x")

    for _ in range(3):
        with pytest.raises(KeyError):
            broken()
    assert bulkhead.in_flight == 0


def test_first_come_first_served() -> None:
    bulkhead = Bulkhead(1, timeout=None)
    order: list[int] = []

    def call(number: int) -> None:
        with bulkhead:
            order.append(number)

    threads = []
    with bulkhead:
        for number in range(6):
            threads.append(threading.Thread(target=call, args=(number,)))
            threads[-1].start()
            until(lambda number=number: bulkhead.waiting == number + 1)
    for each in threads:
        each.join(60)
    assert order == list(range(6))
    assert bulkhead.in_flight == bulkhead.waiting == 0


def test_nobody_overtakes_those_who_wait() -> None:
    bulkhead = Bulkhead(1, timeout=None, queue=1)
    bulkhead.enter()
    with thread(bulkhead.enter) as came:
        until(lambda: bulkhead.waiting == 1)
        room = bulkhead.room
        assert not room.take()
        with pytest.raises(BulkheadFull, match="and 1 wait already"):
            bulkhead.enter()
        bulkhead.leave(room)
        assert not room.take()  # it is the other's
    assert came == [room]
    bulkhead.leave(room)
    assert bulkhead.in_flight == 0


def test_a_permit_given_back_before_the_line_was_joined_is_seen() -> None:
    room = Room(1)
    assert room.take()
    assert not room.take()  # full: on the way to the line
    room.give()  # and nobody waits yet
    waiter = ThreadWaiter()
    assert not room.join(waiter, None)
    assert waiter.answer is not None
    assert room.in_flight == 1


def test_the_wait_ends_by_the_clock() -> None:
    clock = ManualClock()
    bulkhead = Bulkhead(1, timeout=2.0, clock=clock)
    with bulkhead:
        with thread(bulkhead.enter) as came:
            until(lambda: clock.next_wakeup() is not None)
            clock.advance(1.9)
            assert bulkhead.waiting == 1
            clock.advance(0.1)
        assert isinstance(came[0], BulkheadFull)
        assert "did not come in time" in str(came[0])
    assert bulkhead.in_flight == bulkhead.waiting == 0


def test_a_deadline_bounds_the_wait() -> None:
    bulkhead = Bulkhead(1, timeout=None)
    with bulkhead, deadline_in(0.01), pytest.raises(BulkheadFull):
        bulkhead.enter()
    assert bulkhead.in_flight == 0


def test_keys_have_calls_of_their_own_and_are_forgotten() -> None:
    bulkhead = Bulkhead(1, key=lambda tenant: tenant)
    inside: list[str] = []

    @bulkhead
    def call(tenant: str) -> None:
        inside.append(tenant)
        if tenant == "a":
            call("b")
            with pytest.raises(BulkheadFull, match="of key 'a'"):
                call("a")
        assert bulkhead.in_flight >= 1

    call("a")
    assert inside == ["a", "b"]
    assert not bulkhead._rooms
    with bulkhead.hold("a"), bulkhead.hold("b"), pytest.raises(BulkheadFull):
        bulkhead.enter("b")
    assert not bulkhead._rooms


def test_resizing_under_load() -> None:
    bulkhead = Bulkhead(3)
    rooms = [bulkhead.enter() for _ in range(3)]
    bulkhead.resize(1)
    assert bulkhead.in_flight == 3
    for room in rooms[:2]:
        bulkhead.leave(room)
        with pytest.raises(BulkheadFull):
            bulkhead.enter()
    bulkhead.leave(rooms[2])
    room = bulkhead.enter()
    with pytest.raises(BulkheadFull):
        bulkhead.enter()
    bulkhead.resize(2)
    bulkhead.leave(bulkhead.enter())
    bulkhead.leave(room)
    assert bulkhead.in_flight == 0


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"limit": 0}, "limit is a whole number from 1 on, not 0"),
        ({"limit": True}, "limit is a whole number, not bool"),
        ({"limit": 1, "queue": -1}, "queue is a whole number from 0 on"),
        ({"limit": 1, "timeout": -1}, "timeout is a number of seconds from 0 on"),
        ({"limit": 1, "key": "x"}, "key is a function"),
    ],
)
def test_wrong_options_say_what_is_wrong(options: Any, problem: str) -> None:
    with pytest.raises((TypeError, ValueError), match=problem):
        Bulkhead(**options)


def test_generators_are_refused() -> None:
    def numbers() -> Iterator[int]:
        yield 1

    with pytest.raises(TypeError, match="numbers is a generator"):
        Bulkhead(1)(numbers)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_begins_anew() -> None:
    bulkhead = Bulkhead(1)
    with bulkhead:
        child = os.fork()
        if not child:
            try:
                bulkhead.enter()
            except BaseException:
                os._exit(1)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
    assert bulkhead.in_flight == 0


# -- tasks


def test_tasks_wait_in_order_and_share_the_line_with_threads() -> None:
    bulkhead = Bulkhead(1, timeout=None)
    order: list[Any] = []

    async def call(number: int) -> None:
        async with bulkhead:
            order.append(number)
            await asyncio.sleep(0)

    def waits() -> None:
        bulkhead.enter()
        order.append("thread")

    async def main() -> None:
        bulkhead.enter()
        tasks = [asyncio.create_task(call(0))]
        await asyncio.sleep(0)
        with thread(waits) as came:
            while bulkhead.waiting < 2:
                await asyncio.sleep(0.001)
            tasks.append(asyncio.create_task(call(1)))
            await asyncio.sleep(0)
            bulkhead.leave(bulkhead.room)
            while not came:
                await asyncio.sleep(0.001)
            bulkhead.leave(bulkhead.room)
        await asyncio.gather(*tasks)

    asyncio.run(main())
    assert order == [0, "thread", 1]
    assert bulkhead.in_flight == bulkhead.waiting == 0


def test_a_cancelled_wait_leaves_the_line() -> None:
    bulkhead = Bulkhead(1, timeout=None)

    async def main() -> None:
        async with bulkhead:
            task = asyncio.create_task(bulkhead.enter_async())
            await asyncio.sleep(0)
            assert bulkhead.waiting == 1
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            assert bulkhead.waiting == 0

    asyncio.run(main())
    assert bulkhead.in_flight == 0


def test_a_permit_that_came_as_its_waiter_was_cancelled_goes_on() -> None:
    bulkhead = Bulkhead(1, timeout=None)

    async def main() -> None:
        room = bulkhead.enter()
        first = asyncio.create_task(bulkhead.enter_async())
        second = asyncio.create_task(bulkhead.enter_async())
        await asyncio.sleep(0)
        bulkhead.leave(room)  # handed to the first
        first.cancel()  # which never sees it
        await asyncio.gather(first, return_exceptions=True)
        assert first.cancelled()
        bulkhead.leave(await second)

    asyncio.run(main())
    assert bulkhead.in_flight == bulkhead.waiting == 0


def test_a_waiter_whose_loop_is_gone_is_passed_over() -> None:
    bulkhead = Bulkhead(1, timeout=None)
    bulkhead.enter()
    loop = asyncio.new_event_loop()
    task = loop.create_task(bulkhead.enter_async())
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    bulkhead.leave(bulkhead.room)
    assert bulkhead.room.take()
    bulkhead.leave(bulkhead.room)
    assert bulkhead.in_flight == 0
    task.get_coro().close()
    task._log_destroy_pending = False  # type: ignore[attr-defined] # we left it pending on purpose
    del task
    gc.collect()


def test_a_task_is_refused_by_the_clock() -> None:
    clock = ManualClock()
    bulkhead = Bulkhead(1, timeout=1.0, clock=clock)

    async def main() -> None:
        async with bulkhead:
            task = asyncio.create_task(bulkhead.call_async(asyncio.sleep, 0))
            await asyncio.sleep(0)
            clock.advance(1.0)
            with pytest.raises(BulkheadFull):
                await task

    asyncio.run(main())
    assert bulkhead.in_flight == bulkhead.waiting == 0
