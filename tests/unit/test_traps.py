"""Mistakes seen in well-meant limiters, each as a regression test: time, counting, memory."""

from __future__ import annotations

import gc
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from headgate import Limit, Limiter, ManualClock, MemoryStore

DAY = 86_400


def passed(limiter: Limiter, calls: int, key: str = "k", cost: int = 1) -> int:
    return sum(limiter.hit(key, cost).allowed for _ in range(calls))


class TestTime:
    def test_fractions_of_a_second_refill(self, manual_clock: ManualClock) -> None:
        limiter = Limiter("1/second burst 5", clock=manual_clock)
        passed(limiter, 5)
        manual_clock.advance(1.9)
        assert passed(limiter, 5) == 1
        manual_clock.advance(0.1)
        assert passed(limiter, 5) == 1

    def test_fractions_of_a_rate_are_kept(self, manual_clock: ManualClock) -> None:
        limiter = Limiter("3/2s", clock=manual_clock, name="rate of 1.5/s")
        bucket = Limiter("3/2s burst 3", clock=manual_clock)
        passed(bucket, 3)
        total = 0
        for _ in range(100):
            manual_clock.advance(1)
            total += passed(bucket, 3)
        assert total == 150
        assert limiter.hit("k")

    def test_62_idle_days_lock_nobody_out(self, manual_clock: ManualClock) -> None:
        for text in ("400/second burst 500", "400/second gcra burst 500", "400/s", "9/s even"):
            limiter = Limiter(text, clock=manual_clock)
            limiter.hit("k")
            manual_clock.advance(62 * DAY)
            decision = limiter.peek("k")
            assert decision.allowed, text
            assert decision.reset_after == 0, text

    @pytest.mark.parametrize("text", ["10/second burst 10", "10/s gcra", "10/s", "10/s cells 5"])
    def test_a_clock_that_goes_back_takes_nothing_away(
        self, text: str, manual_clock: ManualClock
    ) -> None:
        limiter = Limiter(text, clock=manual_clock)
        assert passed(limiter, 3) == 3
        manual_clock.turn_back(0.5)
        meanwhile = passed(limiter, 20)
        manual_clock.advance(0.5)
        # The same half second is not refilled twice.
        assert 3 + meanwhile + passed(limiter, 20) == 10

    @pytest.mark.parametrize(
        "text", ["10/s burst 10", "10/s gcra", "10/s", "10/s cells 5", "10/s sliding-log",
                 "10/s fixed-window", "10/s even", "10/s leaky-bucket burst 9", "10/s warm-up 1s"],
    )  # fmt: skip
    def test_a_time_far_in_the_future_heals(self, text: str, manual_clock: ManualClock) -> None:
        limiter = Limiter(text, clock=manual_clock)
        passed(limiter, 10)
        manual_clock.turn_back(100_000)
        limiter.hit("k")
        manual_clock.advance(2)
        assert limiter.hit("k"), text

    def test_an_interval_of_a_fraction_of_a_millisecond(self, manual_clock: ManualClock) -> None:
        limiter = Limiter("300/second burst 1", clock=manual_clock)
        total = 0
        for _ in range(10_000):
            manual_clock.advance(0.001)
            total += limiter.hit("k").allowed
        # A call every whole ms finds a token at every fourth: 1000/300 = 3.33 rounds up.
        assert total == 2500
        fine = Limiter("300/second burst 300 initial 0", clock=manual_clock)
        fine.hit("k")
        manual_clock.advance(1)
        assert passed(fine, 400) == 300

    def test_more_per_second_than_milliseconds(self, manual_clock: ManualClock) -> None:
        limiter = Limiter("5000/second even", clock=manual_clock)
        assert limiter.hit("k")
        manual_clock.advance(0.0002)
        assert limiter.hit("k")

    def test_a_window_of_half_a_second(self, manual_clock: ManualClock) -> None:
        limiter = Limiter("3/500ms fixed-window", clock=manual_clock)
        assert passed(limiter, 10) == 3
        manual_clock.advance(0.5)
        assert passed(limiter, 10) == 3

    def test_an_hour_idle_is_not_saved_up(self, manual_clock: ManualClock) -> None:
        for text in ("20/second", "20/second cells 10", "20/s fixed-window", "20/s sliding-log"):
            limiter = Limiter(text, clock=manual_clock)
            passed(limiter, 20)
            manual_clock.advance(3600)
            assert passed(limiter, 4000) == 20, text

    def test_cells_are_checked_on_every_call(self, manual_clock: ManualClock) -> None:
        limiter = Limiter("20/second cells 10", clock=manual_clock)
        assert passed(limiter, 100) == 20

    def test_cells_do_not_all_leave_at_once(self, manual_clock: ManualClock) -> None:
        limiter = Limiter("20/second cells 10", clock=manual_clock)
        manual_clock.advance(0.95)
        assert passed(limiter, 100) == 20
        manual_clock.advance(0.1)
        assert passed(limiter, 100) == 0

    @pytest.mark.parametrize("cells", [3, 7, 11, 999])
    def test_cells_that_do_not_divide_the_window(
        self, cells: int, manual_clock: ManualClock
    ) -> None:
        limiter = Limiter(f"100/second cells {cells}", clock=manual_clock)
        for _ in range(3000):
            manual_clock.advance(0.000_997)
            limiter.hit("k")
        assert limiter.peek("k").remaining >= 0

    def test_a_leaky_bucket_drains_under_constant_calls(self, manual_clock: ManualClock) -> None:
        limiter = Limiter("1/second leaky-bucket burst 1", clock=manual_clock)
        total = 0
        for _ in range(20):
            total += limiter.hit("k").allowed
            manual_clock.advance(0.5)
        assert total == 11

    def test_an_empty_bucket_does_not_admit_any_cost(self, manual_clock: ManualClock) -> None:
        limiter = Limiter("1/second leaky-bucket burst 4", clock=manual_clock)
        assert not limiter.hit("k", 6)
        assert limiter.hit("k", 5)

    def test_a_refusal_does_not_count_the_refill_again(self, manual_clock: ManualClock) -> None:
        limiter = Limiter("20/second burst 10 initial 0", clock=manual_clock)
        waited = 0
        while not limiter.hit("k", 10):
            manual_clock.advance(0.001)
            waited += 1
        assert waited == 500

    def test_next_window_is_computed_from_now(self, manual_clock: ManualClock) -> None:
        limiter = Limiter("1/minute fixed-window", clock=manual_clock)
        manual_clock.advance(95)
        decision = limiter.hit("k")
        assert decision.reset_at % 60 == 0
        assert 0 < decision.reset_at - manual_clock.now() <= 60

    def test_a_window_that_starts_now_is_open(self, manual_clock: ManualClock) -> None:
        limiter = Limiter("1/hour anchor 1970-01-12T13:46:40Z", clock=manual_clock)
        assert manual_clock.now() == 1_000_000
        assert limiter.hit("k")

    def test_a_day_has_23_or_25_hours_where_the_zone_says_so(self) -> None:
        # Berlin leaves summer time on 2026-10-25, a day of 25 hours that begins at 22:00 UTC.
        clock = ManualClock(1_792_879_200)
        limiter = Limiter("1/day tz Europe/Berlin", clock=clock)
        assert limiter.hit("k").reset_after == 25 * 3600
        clock.advance(24.5 * 3600)
        assert not limiter.hit("k")
        clock.advance(0.5 * 3600)
        assert limiter.hit("k").reset_after == 24 * 3600

    def test_windows_do_not_overlap(self, manual_clock: ManualClock) -> None:
        limiter = Limiter("1/minute sliding-log", clock=manual_clock)
        assert limiter.hit("k")
        manual_clock.advance(59.999_999)
        assert not limiter.hit("k")
        manual_clock.advance(0.000_001)
        assert limiter.hit("k")

    def test_alignment_is_the_same_for_first_and_later_windows(
        self, manual_clock: ManualClock
    ) -> None:
        limiter = Limiter("5/minute fixed-window", clock=manual_clock)
        ends = set()
        for _ in range(300):
            ends.add(limiter.hit("k").reset_at)
            manual_clock.advance(7)
        assert all(end % 60 == 0 for end in ends)

    def test_counts_beyond_16_bits(self, manual_clock: ManualClock) -> None:
        for text in ("70000/hour fixed-window", "70000/hour cells 60", "70000/hour"):
            limiter = Limiter(text, clock=manual_clock)
            assert limiter.hit("k", 65_536)
            assert limiter.hit("k", 4_464).remaining == 0, text

    def test_a_log_does_not_wrap_every_hour(self, manual_clock: ManualClock) -> None:
        limiter = Limiter("1/2h sliding-log", clock=manual_clock)
        assert limiter.hit("k")
        manual_clock.advance(3601)
        assert not limiter.hit("k")

    def test_resolution_is_finer_than_a_second(self, manual_clock: ManualClock) -> None:
        limiter = Limiter("100/second burst 1", clock=manual_clock)
        total = 0
        for _ in range(3000):
            total += limiter.hit("k").allowed
            manual_clock.advance(0.001)
        assert total == 300


class TestCounting:
    @pytest.mark.parametrize("text", ["5/s", "5/s burst 5", "5/s gcra", "5/s fixed-window"])
    def test_the_first_call_is_not_free(self, text: str, manual_clock: ManualClock) -> None:
        limiter = Limiter(text, clock=manual_clock)
        assert not limiter.hit("k", 6)
        assert passed(limiter, 10) == 5

    @pytest.mark.parametrize("cost", [-1, -1000])
    def test_a_negative_cost_mints_nothing(self, cost: int, manual_clock: ManualClock) -> None:
        limiter = Limiter("5/second burst 5", clock=manual_clock)
        with pytest.raises(ValueError, match="a cost is an int from 0"):
            limiter.hit("k", cost)
        assert passed(limiter, 2000) == 5

    @pytest.mark.parametrize("text", ["3/s", "3/s sliding-log", "3/s cells 3", "3/s fixed-window"])
    def test_hammering_does_not_starve(self, text: str, manual_clock: ManualClock) -> None:
        limiter = Limiter(text, clock=manual_clock)
        total = 0
        for _ in range(1000):
            manual_clock.advance(0.01)
            total += passed(limiter, 5)
        assert 20 <= total <= 33  # the weighted window is the strict one under a constant storm

    def test_two_at_the_last_place_one_passes(self, manual_clock: ManualClock) -> None:
        for _ in range(200):
            limiter = Limiter("2/hour", clock=manual_clock)
            limiter.hit("k")
            barrier = threading.Barrier(2)

            def last(limiter: Limiter = limiter, barrier: threading.Barrier = barrier) -> bool:
                barrier.wait()
                return limiter.hit("k").allowed

            with ThreadPoolExecutor(2) as pool:
                futures = [pool.submit(last) for _ in range(2)]
            assert sum(future.result() for future in futures) == 1

    def test_three_means_three(self, manual_clock: ManualClock) -> None:
        for algorithm in ("sliding-log", "fixed-window", "sliding-window", "gcra", "cells 6"):
            assert passed(Limiter(f"3/minute {algorithm}", clock=manual_clock), 10) == 3

    def test_simultaneous_hits_are_separate_hits(self, manual_clock: ManualClock) -> None:
        limiter = Limiter("10/minute sliding-log", clock=manual_clock)
        assert passed(limiter, 20) == 10

    def test_the_verdict_is_explicit(self, manual_clock: ManualClock) -> None:
        limiter = Limiter("1/minute", clock=manual_clock)
        first, second = limiter.hit("k"), limiter.hit("k")
        assert (first.allowed, bool(first), second.allowed, bool(second)) == (
            True,
            True,
            False,
            False,
        )

    def test_a_refusal_by_the_second_does_not_charge_the_first(
        self, manual_clock: ManualClock
    ) -> None:
        limiter = Limiter("100/hour", "5/minute", clock=manual_clock)
        assert passed(limiter, 50) == 5
        assert limiter.peek("k").parts[0].remaining == 95

    def test_limits_are_per_key(self, manual_clock: ManualClock) -> None:
        limiter = Limiter("1/minute", clock=manual_clock)
        assert limiter.hit("alice")
        assert limiter.hit("bob")


class TestMemory:
    def test_strangers_do_not_reset_a_spent_limit(self, manual_clock: ManualClock) -> None:
        limiter = Limiter("1/day", clock=manual_clock)
        assert limiter.hit("k")
        for stranger in range(5000):
            limiter.hit(f"stranger {stranger}")
        assert not limiter.hit("k")

    def test_idle_keys_leave(self, manual_clock: ManualClock) -> None:
        store = MemoryStore(clock=manual_clock)
        limiter = Limiter("1/second", store=store)
        for number in range(20_000):
            limiter.hit(f"user {number}")
            manual_clock.advance(0.01)
        assert store.keys < 1000

    def test_log_keys_leave_too(self, manual_clock: ManualClock) -> None:
        store = MemoryStore(clock=manual_clock)
        limiter = Limiter("5/second sliding-log", store=store)
        for number in range(5000):
            limiter.hit(f"user {number}")
            manual_clock.advance(0.01)
        assert store.keys < 1000

    def test_no_thread_is_started(self) -> None:
        before = threading.active_count()
        limiter = Limiter("5/second")
        limiter.hit_many(str(number) for number in range(1000))
        assert threading.active_count() == before

    def test_joined_keys_do_not_collide(self, manual_clock: ManualClock) -> None:
        limiter = Limiter("1/minute", clock=manual_clock)
        assert limiter.hit(("a", "b/c"))
        assert limiter.hit(("a/b", "c"))
        assert limiter.hit(("a", "b", "c"))
        assert limiter.hit("a/b/c")

    def test_a_limiter_that_is_dropped_leaves_nothing(self) -> None:
        import weakref

        limiter = Limiter("5/second")
        limiter.hit("k")
        store = weakref.ref(limiter.store)
        del limiter
        gc.collect()
        assert store() is None

    def test_windows_start_at_the_same_instants_everywhere(self, manual_clock: ManualClock) -> None:
        one, other = (Limiter("5/minute fixed-window", clock=manual_clock) for _ in range(2))
        one.hit("k")
        manual_clock.advance(7)
        other.hit("k")
        assert one.peek("k").reset_at == other.peek("k").reset_at


def test_limits_are_checked_when_they_are_made() -> None:
    with pytest.raises(ValueError, match="amount is a whole number"):
        Limit(0, per=1)
