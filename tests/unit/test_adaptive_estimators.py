"""Estimators: the published numbers, and what they find in a server whose capacity is known."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from headgate import ManualClock
from headgate.resilience.adaptive import AIMD, AdaptiveLimiter, Estimator, Fixed, Gradient2, Vegas
from headgate.resilience.adaptive.gradient2 import Average
from headgate.resilience.adaptive.samples import Sample, Samples
from headgate.resilience.adaptive.simulation import SimulatedServer

MS = 1000


class TestAIMD:
    """The shared vectors: Netflix/concurrency-limits."""

    def test_a_fast_sample_adds_one(self) -> None:
        assert AIMD(20).sample(10 * MS, 10) == 21

    def test_a_drop_leaves_a_share(self) -> None:
        assert AIMD(30).sample(0, 0, dropped=True) == 27

    def test_a_slow_call_is_a_drop(self) -> None:
        estimator = AIMD(30, timeout=0.5)
        assert estimator.sample(500 * MS, 15) == 31
        assert estimator.sample(501 * MS, 15) == 27

    def test_a_limit_that_was_not_tried_does_not_grow(self) -> None:
        assert AIMD(20).sample(10 * MS, 9) == 20

    def test_bounds(self) -> None:
        estimator = AIMD(11, least=10, most=12)
        assert [estimator.sample(MS, 12) for _ in range(3)] == [12, 12, 12]
        assert [estimator.sample(MS, 12, dropped=True) for _ in range(2)] == [10, 10]


class TestVegas:
    def vegas(self, **more: object) -> Vegas:
        settings = {"initial": 10, "most": 20, "alpha": 3, "beta": 6, "random": Random(1), **more}
        return Vegas(**settings)  # type: ignore[arg-type] # settings of many kinds

    def test_grows_while_there_is_no_queue(self) -> None:
        estimator = self.vegas()
        assert estimator.sample(10 * MS, 10) == 10
        assert estimator.sample(10 * MS, 11) == 16

    def test_falls_when_the_queue_is_long(self) -> None:
        estimator = self.vegas()
        assert [estimator.sample(10 * MS, 10), estimator.sample(50 * MS, 11)] == [10, 9]

    def test_stays_in_between(self) -> None:
        estimator = self.vegas()
        assert [estimator.sample(10 * MS, 10), estimator.sample(14 * MS, 14)] == [10, 10]

    @pytest.mark.parametrize(("smoothing", "limits"), [(0.5, [100, 75, 56]), (1.0, [100, 50, 25])])
    def test_smoothing(self, smoothing: float, limits: list[int]) -> None:
        estimator = Vegas(
            100, most=200, smoothing=smoothing, decrease=lambda limit: limit / 2, random=Random(1)
        )
        assert [estimator.sample(rtt * MS, 100) for rtt in (10, 20, 20)] == limits

    def test_a_limit_that_was_not_tried_stays(self) -> None:
        estimator = self.vegas()
        assert [estimator.sample(10 * MS, 10), estimator.sample(10 * MS, 4)] == [10, 10]

    def test_a_quick_drop_is_not_taken_for_a_quick_server(self) -> None:
        estimator = self.vegas()
        estimator.sample(10 * MS, 10)
        assert estimator.sample(1, 10, dropped=True) == 9
        assert estimator.quickest == 10 * MS

    def test_measures_anew_with_a_dry_queue(self) -> None:
        estimator = self.vegas(probe=1)
        estimator.sample(10 * MS, 10)
        limits = [estimator.sample(14 * MS, 10) for _ in range(8)]
        assert limits[0] == 10
        assert limits[-1] == 5
        assert estimator.sample(99 * MS, 10) == 5  # a call from before: not yet
        assert estimator.sample(12 * MS, 5) == 10
        assert estimator.quickest == 12 * MS


class TestGradient2:
    def test_steady_calls_let_it_grow_by_the_queue(self) -> None:
        estimator = Gradient2(20, smoothing=0.2)
        assert [estimator.sample(10 * MS, 20) for _ in range(3)] == [20, 21, 22]  # + 4 * 0.2

    def test_slow_calls_let_it_fall(self) -> None:
        estimator = Gradient2(100, smoothing=0.2)
        for _ in range(10):
            estimator.sample(10 * MS, 1)
        # gradient 0.5: 0.8 * 100 + 0.2 * (50 + 4)
        assert estimator.sample(100 * MS, 100) == 90

    def test_tolerance(self) -> None:
        estimator = Gradient2(100, smoothing=1.0, tolerance=1.5, window=10**9)
        for _ in range(10):
            estimator.sample(10 * MS, 1)
        assert estimator.sample(15 * MS, 100) == 104
        assert estimator.sample(20 * MS, 104) == 82  # 104 * 0.75 + 4

    def test_a_limit_that_was_not_tried_stays(self) -> None:
        assert Gradient2(20).sample(10 * MS, 9) == 20

    def test_long_time_comes_down_quickly(self) -> None:
        estimator = Gradient2(20)
        for _ in range(10):
            estimator.sample(1000 * MS, 1)
        estimator.sample(10 * MS, 1)
        expected = (1000 + (10 - 1000) * 2 / 601) * 0.95 * MS
        assert estimator.long.value == pytest.approx(expected)

    def test_average(self) -> None:
        average = Average(100)
        for expected, sample in enumerate(range(10, 20)):
            assert average.add(sample) == pytest.approx(10 + expected / 2)
        assert average.add(100) == pytest.approx(14.5 + (100 - 14.5) * 2 / 101)


@pytest.mark.parametrize(
    "estimator", [Vegas(100, most=100, probe=1), Gradient2(100, most=100, drain=20)]
)
def test_a_queue_that_cannot_run_dry_is_not_waited_for(estimator: Estimator) -> None:
    """Calls that are let in above the limit, as guarantees are, must not halve it for ever."""
    halved = [estimator.sample(10 * MS + step, 150) < 90 for step in range(400)]
    assert 0 < sum(halved) < 200
    assert halved[-1] is False or halved[-12] is False


class TestSamples:
    def test_calls_are_put_together(self) -> None:
        samples = Samples(100 * MS, 3)
        assert samples.add(0, 10 * MS, 5) is None
        assert samples.add(0, 30 * MS, 9) is None
        assert samples.add(60 * MS, 109 * MS, 7, dropped=True) is None
        assert samples.add(100 * MS, 120 * MS, 2) == Sample(20 * MS, 9, dropped=True)

    def test_few_calls_wait_for_more(self) -> None:
        samples = Samples(100 * MS, 3)
        assert [samples.add(at, at, 1) for at in (0, 10**6, 2 * 10**6)][:2] == [None, None]

    def test_calls_from_before_a_fall_are_left_out(self) -> None:
        samples = Samples(1, 1)
        samples.fell(100 * MS)
        assert samples.add(99 * MS, 200 * MS, 50, dropped=True) is None
        samples.add(100 * MS, 200 * MS, 5)
        assert samples.add(200 * MS, 500 * MS, 5) == Sample(200 * MS, 5)

    def test_each_call_by_itself(self) -> None:
        assert Samples(0, 10).add(0, 7, 1) == Sample(7, 1)


FOUND: dict[str, Callable[[], Estimator]] = {
    "aimd": lambda: AIMD(timeout=0.06, most=1000),
    "vegas": lambda: Vegas(random=Random(1)),
    "vegas, often measured anew": lambda: Vegas(random=Random(1), probe=1),
    "gradient2": lambda: Gradient2(tolerance=1.05, most=1000, drain=100),
}


class TestClosedLoop:
    """A server with 100 workers, then 50, then 100 again, and clients without end."""

    def run(
        self, estimator: Estimator, capacity: tuple[int, ...] = (100, 50, 100)
    ) -> list[tuple[int, float, float]]:
        clock = ManualClock(1_000_000.0)
        server = SimulatedServer(clock, 100)
        limiter = AdaptiveLimiter(estimator, clock=clock)
        found = []
        for workers in capacity:
            server.workers = workers
            server.run(limiter, 10)  # to find it
            done = server.done
            limits = server.run(limiter, 5)
            throughput = (server.done - done) / 5 / (workers / server.service)
            found.append((workers, sum(limits) / len(limits), throughput))
        return found

    @pytest.mark.parametrize("name", FOUND)
    def test_finds_the_capacity_and_follows_it(self, name: str) -> None:
        for workers, limit, throughput in self.run(FOUND[name]()):
            assert workers * 0.8 <= limit <= workers * 1.2, (workers, limit)
            assert throughput > 0.95

    def test_the_same_each_time(self) -> None:
        assert self.run(AIMD(timeout=0.06), (50,)) == self.run(AIMD(timeout=0.06), (50,))

    def test_fixed_stays(self) -> None:
        assert [limit for _, limit, _ in self.run(Fixed(30))] == [30, 30, 30]

    def test_creeps_up_unless_the_queue_runs_dry(self) -> None:
        """Why `drain` is there: the queue would be taken for the server's own time."""
        creeping = self.run(Vegas(random=Random(1), probe=1, drain=False))
        assert creeping[-1][1] > self.run(Vegas(random=Random(1), probe=1))[-1][1] + 5

    def test_few_clients_do_not_let_it_grow(self) -> None:
        clock = ManualClock(1_000_000.0)
        server = SimulatedServer(clock, 100)
        limiter = AdaptiveLimiter(AIMD(20), clock=clock)
        assert set(server.run(limiter, 5, clients=5)) == {20}


@pytest.mark.parametrize(
    "make",
    [
        lambda: AIMD(0),
        lambda: AIMD(20, most=10),
        lambda: AIMD(backoff=1.0),
        lambda: AIMD(timeout=0),
        lambda: Vegas(smoothing=0),
        lambda: Gradient2(tolerance=0.5),
        lambda: Gradient2(drain=-1),
        lambda: Fixed(0),
    ],
)
def test_settings_are_checked(make: Callable[[], object]) -> None:
    with pytest.raises(ValueError, match=r"is|lies"):
        make()


def test_numbers_of_calls_are_whole() -> None:
    with pytest.raises(TypeError, match="whole number"):
        Fixed("7")  # type: ignore[arg-type] # on purpose
    with pytest.raises(TypeError, match="whole number"):
        AIMD(1.5)  # type: ignore[arg-type] # on purpose
