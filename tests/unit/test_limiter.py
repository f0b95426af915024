"""Limiter and AsyncLimiter: the calls of the front door."""

from __future__ import annotations

import asyncio
import pickle
from math import inf, nan
from typing import Any

import pytest

from headgate import (
    AsyncLimiter,
    HeadgateError,
    Limit,
    Limiter,
    LimitExceeded,
    ManualClock,
    MemoryStore,
    StoreError,
)


class TestHit:
    def test_the_first_thing_anybody_writes(self) -> None:
        decision = Limiter("100/minute").hit("user:42")
        assert decision.allowed
        assert bool(decision)
        assert decision.remaining == 99
        assert decision.retry_after == 0
        assert decision.limit == Limit(100, per=60)
        assert decision.parts == (decision,)
        assert decision.granted == 1
        assert decision.delay == 0
        assert not decision.degraded
        assert decision.reset_at >= decision.reset_after

    def test_the_key_defaults_to_nothing(self, manual_clock: ManualClock) -> None:
        limiter = Limiter("1/minute", clock=manual_clock)
        assert limiter.hit()
        assert not limiter.hit("")

    def test_peek_takes_nothing(self, manual_clock: ManualClock) -> None:
        limiter = Limiter("2/minute", clock=manual_clock)
        for _ in range(10):
            assert limiter.peek("k").remaining == 2
        limiter.hit("k", 2)
        assert not limiter.peek("k")
        assert limiter.peek("k", 0)

    def test_partial(self, manual_clock: ManualClock) -> None:
        limiter = Limiter("30/minute", clock=manual_clock)
        assert limiter.hit("bulk", 50, partial=True).granted == 30
        refused = limiter.hit("bulk", 50, partial=True)
        assert (refused.allowed, refused.granted) == (False, 0)
        assert 0 < refused.retry_after < inf
        assert limiter.hit("other", 5, partial=True).granted == 5

    def test_partial_with_several_limits(self, manual_clock: ManualClock) -> None:
        limiter = Limiter("30/minute", "8/second", clock=manual_clock)
        assert limiter.hit("bulk", 50, partial=True).granted == 8
        assert limiter.peek("bulk").parts[0].remaining == 22

    def test_several_limits(self, manual_clock: ManualClock) -> None:
        limiter = Limiter("500/hour", "10/minute", clock=manual_clock)
        decisions = [limiter.hit("k") for _ in range(12)]
        assert sum(decision.allowed for decision in decisions) == 10
        refused = decisions[-1]
        assert str(refused.limit) == "10/minute"
        assert [part.allowed for part in refused.parts] == [True, False]
        assert [part.remaining for part in refused.parts] == [490, 0]
        assert refused.reset_after == max(part.reset_after for part in refused.parts)

    def test_hit_many(self, manual_clock: ManualClock) -> None:
        for limits in (["2/minute"], ["2/minute", "9/hour"]):
            limiter = Limiter(*limits, clock=manual_clock)
            decisions = limiter.hit_many(["a", "b", "a", "a", ("a", "b")])
            assert [d.allowed for d in decisions] == [True, True, True, False, True]

    def test_hit_on_concurrency_names_hold(self) -> None:
        limiter = Limiter("2 concurrent")
        for call in (limiter.hit, limiter.wait, lambda: limiter.hit_many([""])):
            with pytest.raises(TypeError, match=r"use hold\(\)"):
                call()
        assert limiter.peek().remaining == 2

    @pytest.mark.parametrize("cost", [True, 1.0, nan, "1", None, -1, 2**53])
    def test_bad_costs(self, cost: Any) -> None:
        for limiter in (Limiter("5/s"), Limiter("5/s", "9/min"), Limiter("5/s sliding-log")):
            limiter.hit("k")
            with pytest.raises((TypeError, ValueError), match="a cost is an int"):
                limiter.hit("k", cost)
            with pytest.raises((TypeError, ValueError), match="a cost is an int"):
                limiter.reserve("k", cost)
            assert limiter.hit("k", 0).remaining == 4

    def test_bad_limiters(self) -> None:
        with pytest.raises(TypeError, match="at least one limit"):
            Limiter()
        with pytest.raises(ValueError, match="the same id"):
            Limiter("5/s", "5/second")
        with pytest.raises(StoreError, match="no store for 'redys://x'"):
            Limiter("5/s", store="redys://x")
        with pytest.raises(TypeError, match="a limit is a Limit or its text, not int"):
            Limiter(5)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="clock of its own"):
            Limiter("5/s", store=MemoryStore(), clock=ManualClock())
        with pytest.raises(ValueError, match="refuse_share"):
            Limiter("5/s", refuse_share=2)

    def test_close(self) -> None:
        limiter = Limiter("5/s")
        limiter.hit("k")
        limiter.close()
        with pytest.raises(StoreError, match="closed"):
            limiter.hit("k")
        store = MemoryStore()
        Limiter("5/s", store=store).close()
        assert Limiter("5/s", store=store).hit("k")

    def test_a_subclass_keeps_its_own_hit(self) -> None:
        class Deaf(Limiter):
            def hit(self, key: Any = "", cost: int = 1, *, partial: bool = False) -> Any:
                return None

        assert Deaf("5/s").hit("k") is None

    def test_decisions_can_be_pickled(self, manual_clock: ManualClock) -> None:
        limiter = Limiter("3/minute", "9/hour", clock=manual_clock)
        for decision in (limiter.hit("k"), limiter.hit("k", 5), limiter.hit("k").parts[0]):
            again = pickle.loads(pickle.dumps(decision))
            assert repr(again) == repr(decision)
            assert again.allowed == decision.allowed
            assert again.parts[0].remaining == decision.parts[0].remaining

    def test_refuse_only_a_share(self, manual_clock: ManualClock) -> None:
        limiter = Limiter("10/hour", clock=manual_clock, refuse_share=0.25)
        passed = sum(limiter.hit("k").allowed for _ in range(110))
        assert passed == 10 + 75


class TestReserve:
    def test_settle(self, manual_clock: ManualClock) -> None:
        limiter = Limiter("1000/minute", clock=manual_clock)
        with limiter.reserve("org:1", cost=900) as reservation:
            assert limiter.peek("org:1").remaining == 100
            assert reservation.settle(742)
            assert not reservation.settle(1)
        assert limiter.peek("org:1").remaining == 258

    def test_unsettled_keeps_the_estimate_and_an_exception_cancels(
        self, manual_clock: ManualClock
    ) -> None:
        limiter = Limiter("1000/minute", "5000/hour", clock=manual_clock)
        with limiter.reserve("k", 400):
            pass
        assert limiter.peek("k").remaining == 600
        with pytest.raises(KeyError), limiter.reserve("k", 400):
            raise KeyError
        assert limiter.peek("k").remaining == 600
        assert limiter.peek("k").parts[1].remaining == 4600

    def test_cancel(self, manual_clock: ManualClock) -> None:
        limiter = Limiter("10/minute burst 10", clock=manual_clock)
        with limiter.reserve("k", 7) as reservation:
            assert reservation.cancel()
        assert limiter.peek("k").remaining == 10

    def test_more_than_the_estimate(self, manual_clock: ManualClock) -> None:
        limiter = Limiter("10/second burst 10", clock=manual_clock)
        with limiter.reserve("k", 5) as reservation:
            reservation.settle(25)
        assert limiter.hit("k").retry_after == 1.6

    def test_refused_on_entry(self, manual_clock: ManualClock) -> None:
        limiter = Limiter("10/minute", clock=manual_clock)
        reserve = limiter.reserve("k", 11)
        with pytest.raises(LimitExceeded), reserve:
            pass

    def test_abandoned(self, manual_clock: ManualClock) -> None:
        limiter = Limiter("10/hour", clock=manual_clock)
        reservation = limiter.reserve("k", 10, ttl=60).__enter__()
        assert not limiter.hit("k")
        manual_clock.advance(60)
        assert limiter.hit("k", 4)
        reservation.settle(3)  # too late: charged in full
        assert limiter.peek("k").remaining == 3

    def test_not_for_concurrency(self) -> None:
        with pytest.raises(TypeError, match=r"use hold\(\), not reserve\(\)"):
            Limiter("5 concurrent").reserve("k", 3)


class TestHold:
    def test_concurrency_and_rates(self, manual_clock: ManualClock) -> None:
        limiter = Limiter("2 concurrent", "5/minute", clock=manual_clock)
        with limiter.hold("db"), limiter.hold("db") as permit:
            assert permit.token > 0
            with pytest.raises(LimitExceeded, match="'2 concurrent' exceeded"), limiter.hold("db"):
                pass
        assert [part.remaining for part in limiter.peek("db").parts] == [2, 3]

    def test_release_is_idempotent(self) -> None:
        limiter = Limiter("2 concurrent")
        with limiter.hold("k") as permit:
            assert permit.release()
            assert not permit.release()
            assert limiter.peek("k").remaining == 2
        assert limiter.peek("k").remaining == 2

    def test_a_lease_runs_out(self, manual_clock: ManualClock) -> None:
        limiter = Limiter("1 concurrent", clock=manual_clock)
        with limiter.hold("k", ttl=10) as permit:
            manual_clock.advance(9)
            assert permit.renew(10)
            manual_clock.advance(9)
            assert not limiter.peek("k")
            manual_clock.advance(1)
            with limiter.hold("k") as other:
                assert other.token > permit.token
                assert not permit.renew(10)
        assert limiter.peek("k").remaining == 1

    def test_a_permit_is_back_after_an_exception(self) -> None:
        limiter = Limiter("1 concurrent")
        with pytest.raises(KeyError), limiter.hold("k"):
            raise KeyError
        assert limiter.peek("k").remaining == 1

    def test_fair_waiting(self) -> None:
        async def main() -> None:
            limiter, order = AsyncLimiter("1 concurrent", clock=ManualClock()), list[int]()

            async def work(number: int) -> None:
                async with limiter.hold("k", timeout=None):
                    order.append(number)
                    await asyncio.sleep(0)

            await asyncio.gather(*(work(number) for number in range(200)))
            assert order == list(range(200))
            assert (await limiter.peek("k")).remaining == 1

        asyncio.run(main())

    def test_a_hold_can_be_entered_again(self) -> None:
        limiter = Limiter("3 concurrent")
        hold = limiter.hold("k")
        with hold, hold:
            assert limiter.peek("k").remaining == 1
        assert limiter.peek("k").remaining == 3


class TestAttempt:
    def test_only_failures_count(self, manual_clock: ManualClock) -> None:
        limiter = Limiter("3/day tz UTC", clock=manual_clock)
        for _ in range(100):
            with limiter.attempt("card"):
                pass
        for _ in range(3):
            with pytest.raises(KeyError), limiter.attempt("card"):
                raise KeyError
        with pytest.raises(LimitExceeded), limiter.attempt("card"):
            pass

    def test_an_outcome_without_an_exception(self, manual_clock: ManualClock) -> None:
        limiter = Limiter("3/day", clock=manual_clock)
        with limiter.attempt("card") as attempt:
            attempt.fail()
            attempt.succeed()
        assert limiter.peek("card").remaining == 2

    def test_100_concurrent_failures_against_3(self) -> None:
        async def main() -> int:
            limiter, inside = AsyncLimiter("3/day", clock=ManualClock()), 0

            async def guess() -> None:
                nonlocal inside
                async with limiter.attempt("card"):
                    inside += 1
                    await asyncio.sleep(0)
                    raise KeyError

            results = await asyncio.gather(*(guess() for _ in range(100)), return_exceptions=True)
            assert sum(isinstance(result, KeyError) for result in results) == 3
            assert sum(isinstance(result, LimitExceeded) for result in results) == 97
            return inside

        assert asyncio.run(main()) == 3


def test_errors_have_one_root() -> None:
    assert issubclass(LimitExceeded, HeadgateError)
    assert issubclass(StoreError, HeadgateError)


class TestAsync:
    def test_the_same_names(self) -> None:
        public = {name for name in dir(Limiter) if not name.startswith("_")}
        assert public == {name for name in dir(AsyncLimiter) if not name.startswith("_")}

    def test_every_call(self) -> None:
        async def main() -> None:
            async with AsyncLimiter("5/minute", clock=ManualClock(1_000_000)) as limiter:
                assert (await limiter.hit("k")).remaining == 4
                assert (await limiter.hit("k", 9, partial=True)).granted == 4
                assert not await limiter.peek("k")
                assert [d.allowed for d in await limiter.hit_many(["k", "l"])] == [False, True]
                await limiter.reset("k")
                assert (await limiter.wait("k", timeout=1)).remaining == 4
                async with limiter.reserve("k", 4) as reservation:
                    reservation.settle(1)
                await limiter.set_limit("k", "9/minute")
                assert (await limiter.peek("k")).remaining == 7
                assert (await limiter.get_limit("k"))[0].amount == 9
            with pytest.raises(StoreError):
                await limiter.hit("k")

        asyncio.run(main())
