"""Warm-up and pacing as effects of a rule: refuse, queue at a steady pace, warm up, or both.

The numbers are Sentinel's and Guava's.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from typing import Any

import pytest

from headgate import AsyncGate, Facts, Gate, ManualClock

CALL = Facts(user="ann")


def rules(limit: str, **more: Any) -> str:
    return json.dumps({"version": 1, "rules": [{"name": "api", "limit": limit, **more}]})


async def settle(clock: ManualClock, tasks: list[asyncio.Task[Any]]) -> None:
    """Move the clock from one waiting call to the next until all are answered."""
    while True:
        for _ in range(20):
            await asyncio.sleep(0)
        if all(task.done() for task in tasks):
            return
        wakeup = clock.next_wakeup()
        assert wakeup is not None, "somebody waits for nothing"
        clock.advance(max(0.0, wakeup - clock.now()))


def waits(limit: str, calls: int, together: bool, **more: Any) -> list[float | str]:
    """How long each call waited at the gate before it passed; or that it was refused."""

    async def main() -> list[float | str]:
        clock = ManualClock(1_000_000.0)
        async with AsyncGate(rules(limit, **more), clock=clock) as gate:

            async def call() -> float | str:
                start = clock.now()
                passed = (await gate.check(CALL)).allowed
                return round(clock.now() - start, 6) if passed else "refused"

            if together:
                tasks = [asyncio.create_task(call()) for _ in range(calls)]
                await settle(clock, tasks)
                return [task.result() for task in tasks]
            found = []
            for _ in range(calls):
                task = asyncio.create_task(call())
                await settle(clock, [task])
                found.append(task.result())
            return found

    return asyncio.run(main())


def each_second(limit: str, seconds: int, per_second: int = 1000) -> list[int]:
    """How many calls pass in each second, of many that are refused at once if they do not."""
    clock = ManualClock(1_000_000.0)
    passed = []
    with Gate(rules(limit), clock=clock) as gate:
        for _ in range(seconds):
            count = 0
            for _ in range(per_second):
                count += gate.check(CALL).allowed
                clock.advance(1 / per_second)
            passed.append(count)
    return passed


class TestPacing:
    def test_seven_at_once(self) -> None:
        """Sentinel's pacing: 10 a second, at most half a second in the queue."""
        found = waits("10/second even", 7, together=True, wait="0.5s")
        assert found == [0, 0.1, 0.2, 0.3, 0.4, 0.5, "refused"]

    def test_fifty_in_ten_seconds(self) -> None:
        found = waits("50/10s even", 50, together=True, wait="10s")
        assert found == [round(place * 0.2, 6) for place in range(50)]

    def test_without_a_wait_it_refuses_at_once(self) -> None:
        assert waits("50/10s even", 3, together=True) == [0, "refused", "refused"]
        assert each_second("50/10s even", 4) == [5, 5, 5, 5]


class TestWarmUp:
    def test_guava(self) -> None:
        """Guava's smooth warming up: 2 a second, four seconds to warm up, three times as slow."""
        found = waits("2/second warm-up 4s cold 3", 8, together=False, wait="5s")
        assert found == [0, 1.375, 1.125, 0.875, 0.625, 0.5, 0.5, 0.5]

    def test_sentinel(self) -> None:
        """From a third of the rate to the whole of it, in about the time that is said."""
        passed = each_second("100/second warm-up 10s", 14)
        assert 30 <= passed[0] <= 40
        assert all(later >= earlier - 1 for earlier, later in itertools.pairwise(passed))
        assert passed[5] < 90
        assert all(99 <= count <= 101 for count in passed[11:])

    def test_warm_up_and_pace(self) -> None:
        """With a wait, calls queue at the pace of the moment, which gets quicker."""
        found = waits("100/second warm-up 10s", 1000, together=False, wait="1s")
        numbers = [wait for wait in found if isinstance(wait, float | int)]
        assert len(numbers) == 1000
        assert numbers[0] == 0
        assert numbers[1] == pytest.approx(0.03, rel=0.01)
        assert numbers[-1] == pytest.approx(0.01)
        assert numbers[1:] == sorted(numbers[1:], reverse=True)
        assert sum(numbers[1:501]) == pytest.approx(10, rel=0.05)  # what warms up takes 10 s
