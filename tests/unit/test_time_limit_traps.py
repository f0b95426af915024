"""Time limits: whose time was over, and what else may happen at the same instant."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from headgate import ManualClock
from headgate.resilience import TimeLimit, TimeLimitExceeded, deadline_in


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def hang() -> None:
    await asyncio.sleep(1000)


def ended(
    call: Callable[[], Awaitable[object]], after: Callable[[], object]
) -> tuple[BaseException | None, int]:
    """What a call raises after something has happened, and how often its task is cancelled."""

    async def main() -> tuple[BaseException | None, int]:
        async def made() -> None:
            await call()

        task = asyncio.create_task(made())
        await settle()
        asked = after()
        if asked == "cancel":
            task.cancel()
        await asyncio.wait([task])
        error = None
        try:
            task.result()
        except BaseException as caught:
            error = caught
        return error, task.cancelling()

    return asyncio.run(main())


def test_the_error_says_whose_time_was_over(manual_clock: ManualClock) -> None:
    limit = TimeLimit(5.0, clock=manual_clock, name="db")

    async def hurried() -> None:
        with deadline_in(1.0, manual_clock):
            await limit.call_async(hang)

    error, _ = ended(hurried, lambda: manual_clock.advance(1))
    assert str(error) == "db: the deadline of whoever calls has passed"
    error, _ = ended(lambda: limit.call_async(hang), lambda: manual_clock.advance(5))
    assert str(error) == "db: the call took longer than 5 s"


@pytest.mark.parametrize("first", ["time", "cancel"])
def test_a_cancellation_at_the_same_instant_is_not_lost(
    first: str, manual_clock: ManualClock
) -> None:
    limit = TimeLimit(1.0, clock=manual_clock)

    def after() -> str:
        if first == "time":
            manual_clock.advance(1)
        else:
            asyncio.get_running_loop().call_soon(manual_clock.advance, 1)
        return "cancel"

    error, cancelled = ended(lambda: limit.call_async(hang), after)
    assert isinstance(error, asyncio.CancelledError)
    assert cancelled == 1


@pytest.mark.parametrize(("outer", "inner"), [(1.0, 5.0), (5.0, 1.0), (1.0, 1.0)])
def test_limits_inside_each_other(outer: float, inner: float, manual_clock: ManualClock) -> None:
    around, within = (TimeLimit(seconds, clock=manual_clock) for seconds in (outer, inner))
    error, cancelled = ended(
        lambda: around.call_async(within.call_async, hang),
        lambda: manual_clock.advance(1),
    )
    assert isinstance(error, TimeLimitExceeded)
    assert cancelled == 0


def test_who_goes_on_is_not_cancelled_later(manual_clock: ManualClock) -> None:
    limit = TimeLimit(1.0, clock=manual_clock)
    done: list[int] = []

    async def stubborn() -> None:
        with pytest.raises(TimeLimitExceeded):
            await limit.call_async(hang)
        await settle()
        done.append(1)

    error, cancelled = ended(stubborn, lambda: manual_clock.advance(1))
    assert (error, cancelled, done) == (None, 0, [1])


def test_a_group_of_tasks_ends_as_one_call(manual_clock: ManualClock) -> None:
    limit = TimeLimit(1.0, clock=manual_clock)

    async def group() -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(hang())
            await hang()

    error, _ = ended(lambda: limit.call_async(group), lambda: manual_clock.advance(1))
    assert isinstance(error, TimeLimitExceeded)
