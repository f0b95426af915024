"""The breaker's faces: decorator, with, call, their async forms, listeners and numbers."""

from __future__ import annotations

import asyncio
import inspect
import os
from collections.abc import AsyncIterator, Iterator

import pytest
from breaker_tools import Boom, breaker, opened, play

from headgate import ManualClock, SystemClock
from headgate.resilience.breaker import Breaker, BreakerOpen
from headgate.resilience.notices import Notice


def test_the_decorator_keeps_what_it_decorates(manual_clock: ManualClock) -> None:
    found = breaker(manual_clock)

    @found
    def greet(name: str, *, loud: bool = False) -> str:
        """Says hello."""
        return name.upper() if loud else name

    class Service:
        @found
        def own(self, value: int) -> tuple[Service, int]:
            return self, value

        @found
        @classmethod
        def made(cls) -> type:
            return cls

        @found
        @staticmethod
        def plain(value: int) -> int:
            return value

    assert greet("a", loud=True) == "A"
    assert (greet.__name__, greet.__doc__) == ("greet", "Says hello.")
    assert [*inspect.signature(greet).parameters] == ["name", "loud"]
    service = Service()
    assert service.own(3) == (service, 3)
    assert Service.made() is Service
    assert Service.plain(4) == 4
    assert found.metrics().succeeded == 4


def test_the_async_decorator(manual_clock: ManualClock) -> None:
    found = breaker(manual_clock)

    @found
    async def ask(sick: bool) -> str:
        """Asks."""
        await asyncio.sleep(0)
        if sick:
            raise Boom
        return "ok"

    async def main() -> None:
        assert await ask(sick=False) == "ok"
        for _ in range(4):
            with pytest.raises(Boom):
                await ask(sick=True)
        with pytest.raises(BreakerOpen):
            await ask(sick=False)

    assert inspect.iscoroutinefunction(ask)
    assert ask.__name__ == "ask"
    asyncio.run(main())
    assert found.state == "open"


def test_call_async_and_async_with(manual_clock: ManualClock) -> None:
    found = breaker(manual_clock)

    async def double(value: int) -> int:
        return 2 * value

    async def main() -> None:
        assert await found.call_async(double, 4) == 8
        async with found:
            pass
        async with found as permit:
            permit.fail()
        with pytest.raises(Boom):
            async with found:
                raise Boom
        assert found.metrics()[3:6] == (4, 2, 2)

    asyncio.run(main())


def test_generators_are_refused(manual_clock: ManualClock) -> None:
    def numbers() -> Iterator[int]:
        yield 1

    async def more() -> AsyncIterator[int]:
        yield 1

    for function in (numbers, more):
        with pytest.raises(TypeError, match="is a generator, whose call ends before"):
            breaker(manual_clock)(function)
    with pytest.raises(TypeError, match="decorates a function, not 5"):
        breaker(manual_clock)(5)  # type: ignore[type-var] # that is the point


def test_with_and_permits(manual_clock: ManualClock) -> None:
    found = breaker(manual_clock)
    with found as outer, found as inner:
        inner.ignore()
        inner.fail()  # told already
        outer.fail()
    with found.permit() as permit:
        permit.succeed()
    with pytest.raises(Boom), found.permit():
        raise Boom
    assert found.metrics()[3:8] == (4, 1, 2, 0, 1)
    assert found.metrics().in_flight == 0


def test_blocks_that_overlap_in_generators(manual_clock: ManualClock) -> None:
    one, other = breaker(manual_clock), breaker(manual_clock)

    def inside(found: Breaker) -> Iterator[int]:
        with found:
            yield 1

    first, second = inside(one), inside(other)
    next(first)
    next(second)
    assert [*first, *second] == []
    assert (one.metrics().succeeded, other.metrics().succeeded) == (1, 1)


def test_tasks_do_not_mix_up_their_blocks(manual_clock: ManualClock) -> None:
    found = breaker(manual_clock, window=1000, minimum=1000)

    async def work(number: int) -> None:
        with found:
            await asyncio.sleep(0.001 * (number % 3))
            if number % 2:
                raise Boom

    async def main() -> None:
        await asyncio.gather(*(work(n) for n in range(100)), return_exceptions=True)

    asyncio.run(main())
    assert found.metrics()[3:6] == (100, 50, 50)


def test_a_block_left_elsewhere_says_so(manual_clock: ManualClock) -> None:
    with pytest.raises(RuntimeError, match=r"use `with breaker.permit\(\):`"):
        breaker(manual_clock).__exit__(None, None, None)


def test_the_error_says_what_is_wrong_and_until_when(manual_clock: ManualClock) -> None:
    found = opened(manual_clock)
    manual_clock.advance(2)
    with pytest.raises(BreakerOpen) as caught:
        found.call(print)
    error = caught.value
    assert error.name == "db"
    assert error.retry_after == pytest.approx(3, abs=1e-5)
    assert str(error) == "db: the breaker is open, the call was not made; retry after 3 s"
    manual_clock.advance(error.retry_after or 0)
    assert found.call(int) == 0
    found.force_open()
    with pytest.raises(BreakerOpen, match=r"forced open, the call was not made$"):
        found.call(print)


def test_listeners_are_told_and_cannot_break_anything(manual_clock: ManualClock) -> None:
    seen: list[tuple[str, object]] = []

    def listener(notice: Notice) -> None:
        seen.append((notice.kind, notice.values.get("state")))
        assert found.state  # no lock is held
        raise Boom

    found = breaker(manual_clock, listeners=[listener], slow_after=1.0)
    play(found, "SSF")
    play(found, "S", seconds=2.0)
    play(found, "IFF-")
    assert seen == [
        ("breaker.failed", None), ("breaker.slow", None), ("breaker.ignored", None),
        ("breaker.failed", None), ("breaker.failed", None), ("breaker.state", "open"),
        ("breaker.refused", None),
    ]  # fmt: skip


def test_numbers(manual_clock: ManualClock) -> None:
    found = breaker(manual_clock)
    play(found, "SSS")
    permit = found.permit()
    seen = found.metrics()
    assert seen._asdict() == {
        "name": "db", "state": "closed", "since": 1_000_000.0, "permitted": 4, "succeeded": 3,
        "failed": 0, "slow": 0, "ignored": 0, "refused": 0, "in_flight": 1, "opened": 0,
        "calls": 3, "failures": 0, "slow_calls": 0, "failure_ratio": None, "slow_ratio": None,
        "retry_after": 0.0,
    }  # fmt: skip
    permit.succeed()
    manual_clock.advance(1)
    found.open()
    seen = found.metrics()
    assert (seen.since, seen.opened, seen.retry_after) == (1_000_001.0, 1, 5.000001)


def test_settings_change_under_it(manual_clock: ManualClock) -> None:
    found = breaker(manual_clock)
    play(found, "SSSFF")
    found.change(minimum=2, failure_ratio=0.25)
    assert (found.state, found.metrics().calls) == ("closed", 0)
    play(found, "FF")
    assert found.state == "open"
    assert found.settings.wait == 5.0
    found.change(wait=1.0)  # from the next time on
    assert found.state == "open"


def test_the_systems_clock() -> None:
    found = Breaker("db", minimum=2, wait=0.0, probes=1, slow_after=10, window_seconds=100)
    assert isinstance(found.clock, SystemClock)
    assert play(found, "SFSF") == "SFSF"
    assert play(found, "SS") == "SS"
    assert found.metrics().slow == 0
    assert repr(found) == "<Breaker 'db' closed>"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_child_has_a_lock_of_its_own(manual_clock: ManualClock) -> None:
    found = opened(manual_clock, probes=1)
    manual_clock.advance(6)
    permit = found.permit()
    with found._lock:
        child = os.fork()
        if not child:
            os._exit(0 if play(found, "S") == "S" and found.state == "closed" else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    permit.succeed()
    assert found.state == "closed"
