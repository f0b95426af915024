"""Deadlines: work that cannot finish in time is refused at once; and rolling percentiles."""

from __future__ import annotations

import asyncio
import random

import pytest

from headgate import ManualClock
from headgate.resilience.adaptive import AdaptiveLimiter, Fixed, Forecast
from headgate.resilience.deadlines import deadline_in
from headgate.resilience.entrance import Permit
from headgate.resilience.overload import Overloaded, TooLate
from headgate.resilience.rolling import STEPS, Rolling

SECOND = 1_000_000


def taught(
    clock: ManualClock, limit: int = 10, took: float = 0.2, **more: object
) -> AdaptiveLimiter:
    """A limiter that has seen calls which took so long."""
    limiter = AdaptiveLimiter(Fixed(limit), clock=clock, **more)  # type: ignore[arg-type] # of many kinds
    for _ in range(2):
        permits = [limiter.admit() for _ in range(10)]
        clock.advance(took)
        for permit in permits:
            assert isinstance(permit, Permit)
            permit.release()
    return limiter


class TestShedding:
    def test_enough_time_or_not(self, manual_clock: ManualClock) -> None:
        limiter = taught(manual_clock, name="search")
        assert limiter.admit(deadline=0.25)
        refusal = limiter.admit(deadline=0.15)
        assert not refusal
        with pytest.raises(TooLate, match=r"search: .*about 0.2 s, and only 0.15 s are left"):
            limiter.of(deadline=0.15).call(print)

    def test_a_deadline_that_has_passed(self, manual_clock: ManualClock) -> None:
        limiter = AdaptiveLimiter(Fixed(10), clock=manual_clock)
        assert not limiter.admit(deadline=0)
        assert not limiter.admit(deadline=-1)

    def test_nothing_is_foretold_from_few_calls(self, manual_clock: ManualClock) -> None:
        limiter = AdaptiveLimiter(Fixed(10), clock=manual_clock)
        for _ in range(9):
            with limiter:
                manual_clock.advance(1)
        assert limiter.admit(deadline=0.001)

    def test_the_deadline_of_the_work_at_hand(self, manual_clock: ManualClock) -> None:
        limiter = taught(manual_clock)
        with deadline_in(0.3, manual_clock):
            assert limiter.admit()
            manual_clock.advance(0.15)
            assert not limiter.admit()
            assert not limiter.admit(deadline=9)  # the earlier one counts
        assert limiter.admit()

    def test_the_line_counts_too(self, manual_clock: ManualClock) -> None:
        async def main() -> None:
            limiter = taught(manual_clock, queue=100, timeout=60)
            permits = [limiter.admit() for _ in range(10)]
            tasks = [asyncio.create_task(limiter.call_async(asyncio.sleep, 0)) for _ in range(19)]
            await asyncio.sleep(0)
            assert limiter.waiting == 19
            # Twenty turns of 0.02 s each, and 0.2 s of its own.
            with pytest.raises(TooLate, match=r"about 0.6 s"):
                await limiter.of(deadline=0.59).call_async(asyncio.sleep, 0)
            last = asyncio.create_task(limiter.of(deadline=0.61).call_async(asyncio.sleep, 0))
            await asyncio.sleep(0)
            assert limiter.waiting == 20
            for permit in permits:
                assert isinstance(permit, Permit)
                permit.release("ignored")
            await asyncio.gather(*tasks, last)

        asyncio.run(main())

    def test_who_waited_too_long_does_not_begin(self, manual_clock: ManualClock) -> None:
        async def main() -> None:
            limiter = taught(manual_clock, limit=10, queue=9, timeout=60)
            permits = [limiter.admit() for _ in range(10)]
            begun = []

            async def work() -> None:
                begun.append(1)

            task = asyncio.create_task(limiter.of(deadline=0.5).call_async(work))
            await asyncio.sleep(0)
            manual_clock.advance(0.4)  # 0.1 s are left, and it would take 0.2 s
            assert isinstance(permits[0], Permit)
            permits[0].release("ignored")
            with pytest.raises(TooLate):
                await task
            assert not begun
            assert limiter.in_flight == 9

        asyncio.run(main())

    def test_waiting_ends_with_the_deadline(self, manual_clock: ManualClock) -> None:
        async def main() -> None:
            limiter = AdaptiveLimiter(Fixed(1), queue=9, timeout=60, clock=manual_clock)
            with limiter.hold():
                task = asyncio.create_task(limiter.of(deadline=0.5).call_async(asyncio.sleep, 0))
                await asyncio.sleep(0)
                manual_clock.advance(0.5)
                with pytest.raises(Overloaded, match="in time"):
                    await task

        asyncio.run(main())

    def test_slow_times_are_forgotten(self, manual_clock: ManualClock) -> None:
        """Refusing all leaves nothing to learn from: then somebody is let in to find out."""
        limiter = taught(manual_clock, took=5.0)
        assert not limiter.admit(deadline=1)
        manual_clock.advance(11)
        assert limiter.admit(deadline=1)

    def test_share(self, manual_clock: ManualClock) -> None:
        forecast, now = Forecast(0.5), manual_clock.micros()
        for took in [100] * 60 + [900] * 40:
            forecast.add(took * 1000, now)
        assert forecast.service(now) == pytest.approx(100_000, rel=0.07)
        sure = Forecast(0.9)
        for took in [100] * 60 + [900] * 40:
            sure.add(took * 1000, now)
        assert sure.service(now) == pytest.approx(900_000, rel=0.07)
        assert sure.turn(10, 10, now) == pytest.approx(420_000)

    @pytest.mark.parametrize("share", [0, 1.1, -1])
    def test_settings_are_checked(self, share: float) -> None:
        with pytest.raises(ValueError, match="foresee"):
            AdaptiveLimiter(foresee=share)


class TestRolling:
    def test_numbers(self) -> None:
        rolling = Rolling(10.0, 10)
        for value in range(1, 101):
            rolling.add(value * 1000, value * 10_000)
        now = SECOND
        assert rolling.count(now) == 100
        assert rolling.mean(now) == 50_500
        assert rolling.least(now) == 1000
        assert rolling.percentile(1.0, now) == 100_000
        assert rolling.percentile(0.5, now) == pytest.approx(50_000, rel=0.0625)
        assert rolling.percentile(0.0, now) == pytest.approx(1000, rel=0.0625)

    def test_percentiles_are_close_to_the_true_ones(self) -> None:
        chance = random.Random(7)
        values = sorted(int(chance.lognormvariate(10, 2)) for _ in range(5000))
        rolling = Rolling()
        for value in values:
            rolling.add(value, 0)
        for share in (0.01, 0.5, 0.9, 0.99, 0.999):
            true = values[round(share * 5000) - 1]
            found = rolling.percentile(share, 0)
            assert found is not None
            assert true <= found <= true * 1.0625 + 1

    def test_what_is_old_passes_away(self) -> None:
        rolling = Rolling(10.0, 10)
        for second in range(20):
            rolling.add(second, second * SECOND)
        assert rolling.count(19 * SECOND) == 10
        assert rolling.least(19 * SECOND) == 10
        assert rolling.count(24 * SECOND) == 5
        assert rolling.count(29 * SECOND) == 0
        assert rolling.mean(29 * SECOND) is None
        assert rolling.percentile(0.5, 29 * SECOND) is None
        assert rolling.pace(29 * SECOND) is None
        assert not any(rolling._all)

    def test_a_clock_that_goes_back_loses_nothing(self) -> None:
        rolling = Rolling(10.0, 10)
        rolling.add(5, 100 * SECOND)
        rolling.add(7, 90 * SECOND)
        assert rolling.count(95 * SECOND) == 2

    def test_pace(self) -> None:
        rolling = Rolling(10.0, 10)
        for value, second in ((30, 0), (50, 0), (20, 1), (60, 1), (70, 1), (90, 2)):
            rolling.add(value, second * SECOND)
        assert rolling.pace(2 * SECOND) == (3, 40.0)
        for _ in range(40):
            rolling.add(100, 3 * SECOND)
        assert rolling.pace(3 * SECOND) == (40, 100.0)  # a few quick ones say little
        early = Rolling(10.0, 10)
        early.add(30, 0)
        assert early.pace(SECOND) is None

    def test_huge_and_negative_values(self) -> None:
        rolling = Rolling()
        rolling.add(2**60, 0)
        rolling.add(-5, 0)
        assert rolling.percentile(1.0, 0) == 2**40 - 1
        assert rolling.least(0) == 0
        assert len(rolling._all) == STEPS

    def test_settings_are_checked(self) -> None:
        with pytest.raises(ValueError, match="seconds"):
            Rolling(0)
        with pytest.raises(ValueError, match="slices"):
            Rolling(1, 0)
        with pytest.raises(ValueError, match="share"):
            Rolling().percentile(99, 0)
