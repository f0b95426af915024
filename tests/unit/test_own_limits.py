"""Limits of a key's own, limits that change, and limits that give: soft and elastic."""

from __future__ import annotations

import asyncio
from math import inf, nan
from typing import Any

import pytest

from headgate import AsyncLimiter, Limit, Limiter, ManualClock


class TestOwnLimits:
    def test_limit_for_a_mapping_or_a_function(self, manual_clock: ManualClock) -> None:
        plans = {"big": "5/minute"}
        for limit_for in (
            plans,
            plans.get,
            lambda key: Limit.parse(plans[key]) if key in plans else None,
        ):
            limiter = Limiter("2/minute", limit_for=limit_for, clock=manual_clock)
            assert sum(limiter.hit("big").allowed for _ in range(9)) == 5
            assert sum(limiter.hit("small").allowed for _ in range(9)) == 2

    def test_set_limit_wins(self, manual_clock: ManualClock) -> None:
        limiter = Limiter("2/minute", limit_for={"k": "4/minute"}, clock=manual_clock)
        limiter.hit("k", 2)
        limiter.set_limit("k", "6/minute")
        assert limiter.peek("k").remaining == 4
        limiter.set_limit("k", None)
        assert limiter.peek("k").remaining == 2

    def test_on_the_short_way_too(self, manual_clock: ManualClock) -> None:
        limiter = Limiter("100/minute", clock=manual_clock)
        limiter.hit("user:42", 60)
        limiter.set_limit("user:42", "500/minute")
        assert limiter.hit("user:42").remaining == 439
        assert limiter.get_limit("user:42") == (Limit.parse("500/minute").named("100/minute"),)
        assert limiter.hit("other").remaining == 99

    def test_one_for_each_limit(self, manual_clock: ManualClock) -> None:
        limiter = Limiter("2/second", "9/minute", clock=manual_clock)
        limiter.set_limit("k", None, "20/minute")
        assert [str(limit) for limit in limiter.get_limit("k")] == ["2/second", "20/minute"]
        with pytest.raises(ValueError, match="a limit for each of this limiter's 2"):
            limiter.set_limit("k", "1/minute")

    def test_another_algorithm_keeps_what_was_used(self, manual_clock: ManualClock) -> None:
        limiter = Limiter("10/minute", clock=manual_clock)
        limiter.hit("k", 4)
        for text in ("20/hour token-bucket", "20/day gcra", "20/week sliding-log", "20/day tz UTC"):
            limiter.set_limit("k", text)
            assert limiter.peek("k").remaining == 16, text

    def test_a_waiter_is_woken_by_a_higher_limit(self) -> None:
        async def main() -> None:
            clock = ManualClock(1_000_000)
            limiter = AsyncLimiter("1/hour", clock=clock)
            await limiter.hit("k")
            task = asyncio.create_task(limiter.wait("k"))
            await asyncio.sleep(0)
            await limiter.set_limit("k", "5/hour")
            assert (await task).remaining == 3

        asyncio.run(main())


class TestSoftAndElastic:
    @pytest.mark.parametrize(
        ("text", "most"),
        [("10/minute soft 10%", 11), ("10/minute gcra soft 25%", 12), ("5/minute soft 10%", 5)],
    )
    def test_soft(self, text: str, most: int, manual_clock: ManualClock) -> None:
        limiter = Limiter(text, clock=manual_clock)
        assert limiter.peek("k").remaining == most
        assert sum(limiter.hit("k").allowed for _ in range(50)) == most

    def test_elastic_reads_its_signal_once_per_ask(self, manual_clock: ManualClock) -> None:
        room, reads = 1.0, 0

        def signal() -> float:
            nonlocal reads
            reads += 1
            return room

        limiter = Limiter("10/minute elastic 50%", "99/hour", clock=manual_clock, room=signal)
        assert sum(limiter.hit("k").allowed for _ in range(20)) == 15
        assert reads == 20
        room = 0.5
        assert limiter.peek("other").remaining == 12
        room = 0.0
        assert limiter.peek("other").remaining == 10
        assert limiter.peek("k").remaining == 0

    @pytest.mark.parametrize("room", [nan, inf, -inf, -1, "much", None])
    def test_a_broken_signal_gives_no_room(self, room: Any, manual_clock: ManualClock) -> None:
        limiter = Limiter("10/minute elastic 50%", clock=manual_clock, room=lambda: room)
        assert limiter.peek("k").remaining == 10

    def test_a_signal_that_raises_gives_no_room(self, manual_clock: ManualClock) -> None:
        def signal() -> float:
            raise OSError

        limiter = Limiter("10/minute elastic 50%", clock=manual_clock, room=signal)
        assert limiter.peek("k").remaining == 10

    @pytest.mark.parametrize("algorithm", ["gcra", "token-bucket", "fixed-window", "warm-up 1s"])
    def test_a_signal_that_flickers_forgets_nothing(
        self, algorithm: str, manual_clock: ManualClock
    ) -> None:
        room = [0.0]
        limiter = Limiter(
            f"100/hour {algorithm} elastic 50%", clock=manual_clock, room=lambda: room[0]
        )
        passed = 0
        for number in range(1000):
            room[0] = (number % 7) / 6
            passed += limiter.hit("k").allowed
        assert passed <= 150


def test_a_new_rate_does_not_work_backwards(manual_clock: ManualClock) -> None:
    for algorithm in ("token-bucket", "gcra"):
        limiter = Limiter(f"1/second {algorithm} burst 100", clock=manual_clock)
        limiter.hit("k", 60)
        manual_clock.advance(10)
        limiter.set_limit("k", f"50/second {algorithm} burst 100")
        assert limiter.peek("k").remaining == 50, algorithm
        manual_clock.advance(0.5)
        assert limiter.peek("k").remaining == 75, algorithm
