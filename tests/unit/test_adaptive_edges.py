"""Adaptive limits at their edges: other published numbers, bounds that leave no room, no traffic,
nothing but drops, one very long call; and guarantees as Netflix's partitioned limiter has them."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from headgate import ManualClock
from headgate.resilience.adaptive import AIMD, AdaptiveLimiter, Estimator, Fixed, Gradient2, Vegas
from headgate.resilience.adaptive.samples import Sample, Samples
from headgate.resilience.entrance import Permit

MS = 1000

BOUND: dict[str, Callable[[int, int, int], Estimator]] = {
    "aimd": lambda initial, least, most: AIMD(initial, least, most),
    "vegas": lambda initial, least, most: Vegas(initial, least, most, probe=1, random=Random(1)),
    "gradient2": lambda initial, least, most: Gradient2(initial, least, most, drain=20),
}


def taken(limiter: AdaptiveLimiter, partition: str, count: int) -> list[Permit]:
    """The permits of those, of so many, who are let in."""
    found = (limiter.admit(partition) for _ in range(count))
    return [permit for permit in found if isinstance(permit, Permit)]


each = pytest.mark.parametrize("name", BOUND)


class TestPublished:
    """Further cases of Netflix/concurrency-limits."""

    def test_aimd_stops_at_its_bound(self) -> None:
        assert AIMD(21, least=1, most=21).sample(MS, 10) == 21

    def test_vegas_takes_larger_steps_at_larger_limits(self) -> None:
        estimator = Vegas(10_000, most=20_000, random=Random(1))
        assert estimator.sample(10_000 * MS, 5000) == 10_000
        assert estimator.sample(10_000 * MS, 6000) == 10_024

    def test_gradient2_by_hand(self) -> None:
        """Its formula, written once more and plainly, on times that come and go."""
        estimator = Gradient2(20, 20, 200, drain=0)
        random, limit, total, long = Random(7), 20.0, 0.0, 0.0
        for step in range(500):
            rtt = random.randint(5, 50 if step % 100 < 50 else 500) * MS
            in_flight = random.randint(1, int(limit))
            if step < 10:
                total += rtt
                long = total / (step + 1)
            else:
                long += (rtt - long) * 2 / 601
            late = long
            if long / rtt > 2:
                long *= 0.95
            if in_flight >= limit / 2:
                gradient = max(0.5, min(1.0, 1.5 * late / rtt))
                limit = max(20, min(200, limit * 0.8 + (limit * gradient + 4) * 0.2))
            assert estimator.sample(rtt, in_flight) == int(limit), step


class TestBounds:
    @each
    def test_no_room_between_the_bounds(self, name: str) -> None:
        """Not even while the queue is let run dry."""
        estimator, random = BOUND[name](8, 8, 8), Random(1)
        for step in range(500):
            rtt = random.randint(1, 100_000)
            assert estimator.sample(rtt, random.randint(0, 16), step % 7 == 0) == 8
            assert estimator.limit == 8

    @each
    def test_never_outside_of_them(self, name: str) -> None:
        estimator, random = BOUND[name](20, 5, 40), Random(2)
        for step in range(3000):
            rtt = random.choice([0, 1, 10 * MS, 10_000 * MS, 2**45])
            dropped = random.random() < (0.9 if step % 1000 < 200 else 0.05)
            assert 5 <= estimator.sample(rtt, random.choice([0, 1, 20, 500]), dropped) <= 40

    @each
    def test_nothing_but_drops(self, name: str) -> None:
        """Down to the least, and no further; back up when the first calls go well."""
        estimator = BOUND[name](50, 4, 200)
        clock = ManualClock(1_000_000.0)
        limiter = AdaptiveLimiter(estimator, clock=clock)
        for _ in range(1000):
            permits = taken(limiter, "", 20)
            clock.advance(0.05)
            for permit in permits:
                permit.release("dropped")
        assert 4 <= limiter.limit <= 8
        assert limiter.in_flight == 0
        for _ in range(1000):
            permits = taken(limiter, "", limiter.limit)
            assert permits  # somebody is always let in
            clock.advance(0.05)
            for permit in permits:
                permit.release()
        assert limiter.limit >= 40

    @each
    def test_a_day_without_a_call(self, name: str) -> None:
        clock = ManualClock(1_000_000.0)
        limiter = AdaptiveLimiter(BOUND[name](20, 1, 200), clock=clock)
        for _ in range(3):
            before = limiter.limit
            clock.advance(86_400)
            assert limiter.limit == before
            assert len([found for _ in range(500) if (found := limiter.admit())]) == before
            limiter.snapshot()

    @each
    def test_errors_that_are_no_drops_teach_nothing(self, name: str) -> None:
        clock = ManualClock(1_000_000.0)
        limiter = AdaptiveLimiter(BOUND[name](20, 1, 200), clock=clock, window=0)
        for _ in range(200):
            with pytest.raises(ZeroDivisionError), limiter:
                clock.advance(3 // 0)
        assert limiter.limit == 20


class TestSamples:
    def test_one_long_call_does_not_stop_the_learning(self) -> None:
        """A first call of two hours: the next ones are heard after a minute, not after four."""
        samples, hour = Samples(100 * MS, 2), 3_600_000_000
        assert samples.add(0, 2 * hour, 1) is None
        now = 2 * hour + 60_000_000
        assert samples.add(now - 10 * MS, now, 5) == Sample((2 * hour + 10 * MS) // 2, 5)

    def test_a_width_above_a_minute_is_kept(self) -> None:
        samples = Samples(300_000_000, 1)
        assert samples.add(0, 10 * MS, 1) is None
        assert samples.add(60_000_000, 60_000_000, 1) is None
        assert samples.add(300_000_000, 300_010_000, 1) is not None


class TestPartitions:
    """Netflix's partitioned limiter: batch has 0.3 and live 0.7 of ten."""

    def limiter(self) -> AdaptiveLimiter:
        return AdaptiveLimiter(Fixed(10), partitions={"batch": 0.3, "live": 0.7})

    def test_guaranteed(self) -> None:
        partitions = self.limiter().snapshot()["partitions"]
        assert {name: part["guaranteed"] for name, part in partitions.items()} == {
            "batch": 3,
            "live": 7,
        }

    def test_what_is_free_is_used_until_all_is(self) -> None:
        limiter = self.limiter()
        assert len(taken(limiter, "batch", 11)) == 10
        assert limiter.in_flight == 10

    def test_an_unused_guarantee_goes_above_all(self) -> None:
        limiter = self.limiter()
        batch = taken(limiter, "batch", 10)
        assert len(taken(limiter, "live", 8)) == 7
        assert len(batch) == 10

    def test_refused_once_all_is_used(self) -> None:
        limiter = self.limiter()
        kept = taken(limiter, "batch", 3) + taken(limiter, "live", 7)
        assert len(kept) == 10
        assert not limiter.admit("batch")
        assert not limiter.admit("live")

    def test_given_back(self) -> None:
        limiter = self.limiter()
        batch = taken(limiter, "batch", 10)
        assert not limiter.admit("batch")
        batch.pop().release()
        assert limiter.in_flight == 9
        assert limiter.admit("batch")
