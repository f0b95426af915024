"""Paced messages: any iterator, in threads and in tasks."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from headgate import (
    AsyncGate,
    AsyncLimiter,
    Facts,
    Gate,
    Limit,
    Limiter,
    LimitExceeded,
    ManualClock,
    MemoryStore,
    NeverFits,
    Refused,
)
from headgate.integrations.consumer import AsyncPaced, Held, paced
from headgate.rules.model import KeyPart, Lists, Match, Rule, RuleSet
from servers import until


class Source:
    """An iterator that notes how often it was asked, and whether it was closed."""

    def __init__(self, *messages: Any) -> None:
        self.messages = list(messages)
        self.asked = 0
        self.closed = 0

    def __iter__(self) -> Source:
        return self

    def __next__(self) -> Any:
        self.asked += 1
        if not self.messages:
            raise StopIteration
        message = self.messages.pop(0)
        if isinstance(message, BaseException):
            raise message
        return message

    def close(self) -> None:
        self.closed += 1


class AsyncSource:
    """The same for tasks; None stands for a wait that does not end."""

    def __init__(self, *messages: Any) -> None:
        self._inner = Source(*messages)
        self.waits = False

    @property
    def closed(self) -> int:
        return self._inner.closed

    def __aiter__(self) -> AsyncSource:
        return self

    async def __anext__(self) -> Any:
        try:
            message = next(self._inner)
        except StopIteration:
            raise StopAsyncIteration from None
        if message is None:
            self.waits = True
            await asyncio.Event().wait()
        return message

    async def aclose(self) -> None:
        self._inner.close()


def gate_of(clock: ManualClock, *limits: str, **more: Any) -> Gate:
    return Gate(rules_of(*limits, **more), clock=clock)


def rules_of(*limits: str, key: str = "", **more: Any) -> RuleSet:
    parts = tuple(KeyPart(*part.split(":")) for part in key.split())
    made = tuple(map(Limit.parse, limits))
    return RuleSet((Rule("queue", Match(resources=("orders",)), parts, made, **more),))


def fail(messages: Any, last: Any = None) -> None:
    """Work on messages until one fails: the first, or this one."""
    for message in messages:
        if last in (None, message):
            raise ZeroDivisionError


async def fail_soon(messages: Any) -> None:
    """The same in a task."""
    async for _ in messages:
        raise ZeroDivisionError


def free(limiter: Limiter) -> bool:
    """Whether a permit can be had."""
    try:
        with limiter.hold():
            return True
    except LimitExceeded:
        return False


# -- in threads


def test_five_lines() -> None:
    seen = [message for message in paced(["a", "b", "c"], "1000/second")]  # noqa: C416 # a loop
    assert seen == ["a", "b", "c"]


def test_the_pace() -> None:
    clock, seen = ManualClock(), []
    limiter = Limiter("2/second even", clock=clock)

    def consume() -> None:
        seen.extend([(message, clock.now()) for message in paced("abcd", limiter)])

    thread = threading.Thread(target=consume)
    thread.start()
    while thread.is_alive():
        wakeup = clock.next_wakeup()
        if wakeup is not None:
            clock.advance(max(0, wakeup - clock.now()))
        thread.join(0.001)
    assert seen == [("a", 0.0), ("b", 0.5), ("c", 1.0), ("d", 1.5)]


def test_nothing_is_fetched_before_it_is_allowed() -> None:
    clock = ManualClock()
    source = Source("a", "b")
    messages = paced(source, Limiter("1/hour", clock=clock), wait=0)
    assert next(messages) == "a"
    for _ in range(3):
        with pytest.raises(LimitExceeded):
            next(messages)
    assert source.asked == 1
    clock.advance(7200)
    assert next(messages) == "b"


def test_a_message_that_was_fetched_is_not_lost() -> None:
    clock = ManualClock()
    source = Source("ann", "ann", "bob")
    messages = paced(source, Limiter("1/hour", clock=clock), key=lambda user: user, wait=0)
    assert next(messages) == "ann"
    for _ in range(3):
        with pytest.raises(LimitExceeded, match="ann"):
            next(messages)
    assert source.asked == 2
    clock.advance(7200)
    assert list(messages) == ["ann", "bob"]


def test_costs_of_messages() -> None:
    limiter = Limiter("10/hour", clock=ManualClock())
    messages = paced(["four!", "seven!!"], limiter, cost=len, wait=0)
    assert next(messages) == "four!"
    with pytest.raises(LimitExceeded):
        next(messages)
    with pytest.raises(NeverFits):
        next(paced(["eleven or so"], limiter, cost=len))
    constant = paced(["a", "b"], Limiter("10/hour", clock=ManualClock()), key="x", cost=6, wait=0)
    assert next(constant) == "a"
    with pytest.raises(LimitExceeded):
        next(constant)


def test_a_permit_is_held_until_the_next_is_asked_for() -> None:
    limiter = Limiter("1 concurrent")
    messages = paced("abc", limiter, wait=0)
    for _ in messages:
        assert not free(limiter)
    assert free(limiter)  # the end gives back, too
    for message in paced("abc", limiter, wait=0):
        if message == "b":
            break
    assert free(limiter)
    messages = paced("abc", limiter, wait=0)
    next(messages)
    messages.done()
    messages.done()
    assert free(limiter)
    assert list(messages) == ["b", "c"]


def test_an_exception_gives_back() -> None:
    limiter, source = Limiter("1 concurrent"), Source("a", OSError("the broker is gone"), "b")
    with pytest.raises(ZeroDivisionError):
        fail(paced(source, limiter))
    gc.collect()
    assert free(limiter)
    messages = paced(source, limiter)
    with pytest.raises(OSError, match="gone"):
        next(messages)
    assert free(limiter)
    assert next(messages) == "b"


def test_a_block_closes_its_source() -> None:
    limiter, source = Limiter("1 concurrent"), Source("a", "b")
    with pytest.raises(ZeroDivisionError), paced(source, limiter) as messages:
        fail(messages)
    assert source.closed == 1
    assert free(limiter)
    assert next(messages, None) is None
    messages.close()
    assert source.closed == 1

    closed = []

    def generator() -> Iterator[str]:
        try:
            yield "a"
            yield "b"
        finally:
            closed.append(True)

    with paced(generator(), "100/second", "1 concurrent") as more:
        assert next(more) == "a"
    assert closed == [True]


def test_held_messages_end_by_themselves() -> None:
    limiter = Limiter("2 concurrent")
    messages = paced("abcde", limiter, until_done=True, wait=0)
    one, two = next(messages), next(messages)
    assert (one.message, two.message) == ("a", "b")
    with pytest.raises(LimitExceeded):
        next(messages)
    one.done()
    one.done()
    three = next(messages)
    with pytest.raises(LimitExceeded):
        next(messages)
    with pytest.raises(ZeroDivisionError), two as message:
        raise ZeroDivisionError(message)
    four = next(messages)
    assert four.message == "d"
    del three
    gc.collect()
    assert next(messages).message == "e"
    messages.close()
    with limiter.hold(), limiter.hold():
        pass
    four.done()


def test_held_messages_in_threads() -> None:
    inside = most = 0
    lock, seen = threading.Lock(), []

    def work(held: Held[int]) -> None:
        nonlocal inside, most
        with held as number:
            with lock:
                inside += 1
                most = max(most, inside)
            seen.append(number)
            with lock:
                inside -= 1

    threads = []
    for held in paced(range(50), "3 concurrent", until_done=True):
        threads.append(threading.Thread(target=work, args=(held,)))
        threads[-1].start()
    for thread in threads:
        thread.join(10)
    assert sorted(seen) == list(range(50))
    assert most <= 3


# -- gates


def test_a_gate() -> None:
    clock = ManualClock(1_000_000)
    gate = gate_of(clock, "1/hour fixed-window", key="arg:user")

    def facts(user: str) -> Facts:
        return Facts(resource="orders", args={"user": user})

    source = Source("ann", "bob", "ann")
    messages = paced(source, gate, facts=facts, wait=0)
    assert [next(messages), next(messages)] == ["ann", "bob"]
    with pytest.raises(Refused, match="rule 'queue'"):
        next(messages)
    clock.advance(3600)
    assert next(messages) == "ann"


def test_a_gate_is_waited_for() -> None:
    clock, seen = ManualClock(1_000_000), []
    gate = gate_of(clock, "1/minute fixed-window")

    def consume() -> None:
        seen.extend([message for message in paced("abc", gate, facts="orders", wait=200)])  # noqa: C416 # a loop

    thread = threading.Thread(target=consume)
    thread.start()
    until(lambda: clock.next_wakeup() is not None)
    while thread.is_alive():
        wakeup = clock.next_wakeup()
        if wakeup is not None:
            clock.advance(max(0, wakeup - clock.now()))
        thread.join(0.001)
    assert seen == ["a", "b", "c"]


def test_permits_and_failures_of_a_gate() -> None:
    clock = ManualClock(1_000_000)
    gate = gate_of(clock, "2/hour", count="failures")
    with pytest.raises(ZeroDivisionError), paced(range(9), gate, facts="orders", wait=0) as few:
        fail(few, 5)  # those before it succeed
    more = paced(range(9), gate, facts="orders", wait=0)
    next(more)
    more.done("failure")
    with pytest.raises(Refused):
        next(more)

    gate = gate_of(clock, "1 concurrent")
    messages = paced("ab", gate, facts=Facts(resource="orders"), until_done=True, wait=0)
    held = next(messages)
    with pytest.raises(Refused):
        next(messages)
    held.done()
    assert next(messages).message == "b"


def test_a_gate_that_never_lets_pass() -> None:
    gate = gate_of(ManualClock(), "5/hour", deny=Lists(users=("eve",)))
    facts = Facts(resource="orders", user="eve")
    with pytest.raises(Refused):
        next(paced("a", gate, facts=facts))


# -- in tasks


def test_the_pace_of_tasks() -> None:
    async def main() -> list[Any]:
        clock, seen = ManualClock(), []
        limiter = AsyncLimiter("2/second even", clock=clock)

        async def consume() -> None:
            async for message in paced(AsyncSource("a", "b", "c"), limiter):
                seen.append((message, clock.now()))  # noqa: PERF401 # a loop is what is tested

        task = asyncio.create_task(consume())
        while not task.done():
            await asyncio.sleep(0)
            wakeup = clock.next_wakeup()
            if wakeup is not None:
                clock.advance(max(0, wakeup - clock.now()))
        await task
        return seen

    assert asyncio.run(main()) == [("a", 0.0), ("b", 0.5), ("c", 1.0)]


async def has_room(limiter: AsyncLimiter) -> bool:
    try:
        async with limiter.hold():
            return True
    except LimitExceeded:
        return False


def test_cancellation_gives_back() -> None:
    async def main() -> None:
        limiter, source = AsyncLimiter("1 concurrent"), AsyncSource("a", None, "b")
        messages = paced(source, limiter)
        assert await anext(messages) == "a"
        assert not await has_room(limiter)
        task = asyncio.ensure_future(anext(messages))
        while not source.waits:
            await asyncio.sleep(0)
        assert not await has_room(limiter)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await has_room(limiter)
        async with limiter.hold():  # and while it waits for its turn
            task = asyncio.ensure_future(anext(messages))
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert await anext(messages) == "b"
        await messages.aclose()
        assert source.closed == 1
        assert await has_room(limiter)

    asyncio.run(main())


def test_blocks_and_garbage_of_tasks() -> None:
    async def main() -> None:
        limiter, source = AsyncLimiter("1 concurrent"), AsyncSource("a", "b", "c", "d")
        with pytest.raises(ZeroDivisionError):
            await fail_soon(paced(source, limiter, wait=0))
        gc.collect()
        assert await has_room(limiter)
        with pytest.raises(ZeroDivisionError):
            async with paced(source, limiter, wait=0) as messages:
                await fail_soon(messages)
        assert source.closed == 1
        assert await has_room(limiter)
        held = await anext(paced(source, limiter, until_done=True, wait=0))
        assert held.message == "c"
        assert not await has_room(limiter)
        async with held:
            pass
        assert await has_room(limiter)

        closed = []

        async def generator() -> AsyncIterator[int]:
            try:
                yield 1
                yield 2
            finally:
                closed.append(True)

        async with paced(generator(), "1 concurrent", "100/second") as more:
            assert isinstance(more, AsyncPaced)
            assert await anext(more) == 1
            await more.done()
        assert closed == [True]

    asyncio.run(main())


def test_an_async_gate() -> None:
    async def main() -> None:
        clock = ManualClock(1_000_000)
        gate = AsyncGate(rules_of("1 concurrent"), clock=clock)
        messages = paced(AsyncSource(1, 2, 3), gate, facts="orders", until_done=True, wait=0.05)
        held = await anext(messages)
        waiting = asyncio.ensure_future(anext(messages))
        await asyncio.sleep(0)
        clock.advance(0.05)
        with pytest.raises(Refused):
            await waiting
        await held.done()
        assert (await anext(messages)).message == 2

    asyncio.run(main())


def test_many_cancellations_lose_nothing() -> None:
    async def main() -> None:
        limiter = AsyncLimiter("2 concurrent")

        async def consume() -> None:
            async with paced(AsyncSource(*range(3)), limiter) as messages:
                async for _ in messages:
                    await asyncio.sleep(0)

        for place in range(200):
            tasks = [asyncio.create_task(consume()) for _ in range(4)]
            for _ in range(place % 12):
                await asyncio.sleep(0)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        async with limiter.hold(), limiter.hold():
            pass

    asyncio.run(main())


# -- what is wrong


def test_what_is_wrong_is_said() -> None:
    gate = Gate(RuleSet())
    wrong: Any = paced
    with pytest.raises(TypeError, match="one limiter, or one gate"):
        wrong("abc")
    with pytest.raises(TypeError, match="one limiter, or one gate"):
        wrong("abc", gate, "1/hour")
    with pytest.raises(TypeError, match="Limiter paces a plain iterable, not AsyncSource"):
        wrong(AsyncSource(), Limiter("1/hour"))
    with pytest.raises(TypeError, match="AsyncLimiter paces an async iterable"):
        wrong("abc", AsyncLimiter("1/hour"))
    with pytest.raises(TypeError, match="has its own"):
        wrong("abc", Limiter("1/hour"), store="memory://")
    with pytest.raises(TypeError, match="a gate needs facts="):
        wrong("abc", gate)
    with pytest.raises(TypeError, match="no key="):
        wrong("abc", gate, facts="x", key="y")
    with pytest.raises(TypeError, match="limits take no facts="):
        wrong("abc", "1/hour", facts="x")
    with pytest.raises(TypeError, match="only after it was fetched"):
        wrong("abc", "1/hour", key=str, ahead=False)


def test_fetching_ahead_by_choice() -> None:
    source = Source("a", "b")
    limiter = Limiter("1 concurrent", store=MemoryStore())
    messages = paced(source, limiter, ahead=True, wait=0)
    with limiter.hold(), pytest.raises(LimitExceeded):
        next(messages)
    assert source.asked == 1  # so idle consumers hold nothing
    assert list(messages) == ["a", "b"]
