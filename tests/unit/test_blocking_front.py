"""The front door on a store that blocks: every operation in both colours, permits, options."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from far_store import FarStore, settled

from headgate import AsyncLimiter, Decision, Limit, Limiter, LimitExceeded, ManualClock, StoreError
from headgate.callers import errands_done
from headgate.held import Permit, Try


@pytest.fixture
def store(manual_clock: ManualClock) -> FarStore:
    return FarStore(manual_clock)


class TestOperations:
    def test_every_call_of_a_thread(self, store: FarStore) -> None:
        limiter = Limiter("3/minute fixed-window", store=store, name="n")
        assert [bool(limiter.hit("k")) for _ in range(4)] == [True, True, True, False]
        assert limiter.hit("bulk", 9, partial=True).granted == 3
        assert [bool(d) for d in limiter.hit_many(["k", "a", "a"])] == [False, True, True]
        assert limiter.peek("a").remaining == 1
        limiter.reset("k")
        assert limiter.peek("k").remaining == 3
        limiter.set_limit("k", "5/minute fixed-window")
        assert limiter.get_limit("k") == (Limit.of("5/minute fixed-window").named(limiter._ids[0]),)
        assert limiter.peek("k").remaining == 5
        limiter.set_limit("k", None)
        assert limiter.get_limit("k") == limiter.limits
        assert limiter.wait("w", timeout=1)
        limiter._owns = True
        limiter.close()
        with pytest.raises(StoreError):
            limiter.hit("k")

    def test_every_call_of_a_task(self, store: FarStore) -> None:
        async def main() -> None:
            limiter = AsyncLimiter("3/minute fixed-window", store=store, name="n")
            assert [bool(await limiter.hit("k")) for _ in range(4)] == [True, True, True, False]
            assert (await limiter.hit("bulk", 9, partial=True)).granted == 3
            many = await limiter.hit_many(["k", "a", "a"])
            assert [bool(decision) for decision in many] == [False, True, True]
            assert (await limiter.peek("a")).remaining == 1
            await limiter.reset("k")
            assert (await limiter.peek("k")).remaining == 3
            await limiter.set_limit("k", "5/minute fixed-window")
            assert (await limiter.peek("k")).remaining == 5
            await limiter.set_limit("k", None)
            assert await limiter.get_limit("k") == limiter.limits
            assert await limiter.wait("w", timeout=1)
            limiter._owns = True
            await limiter.close()
            with pytest.raises(StoreError):
                await limiter.hit("k")

        asyncio.run(main())

    def test_nothing_of_a_task_blocks(self, store: FarStore, monkeypatch: Any) -> None:
        def blocks(*arguments: object) -> Any:
            raise AssertionError("a task made a blocking call")

        for name in ("decide", "decide_many", "assign", "assigned", "close"):
            monkeypatch.setattr(store, name, blocks)
        self.test_every_call_of_a_task(store)

        async def main() -> None:
            limiter = AsyncLimiter("3 concurrent", store=FarStore())
            rate = AsyncLimiter("30/second", store=limiter.store)
            for name in ("decide", "decide_many"):
                monkeypatch.setattr(limiter.store, name, blocks)
            async with limiter.hold("k", timeout=1) as permit:
                assert await permit.extend(5)
            async with rate.reserve("k", 5) as reservation:
                reservation.settle(3)
            async with rate.attempt("k"):
                pass

            @rate.limited(count="failures")
            async def work() -> int:
                return 1

            assert await work() == 1

        asyncio.run(main())

    def test_several_limits_and_a_share(self, store: FarStore) -> None:
        limiter = Limiter("2/second", "3/hour", store=store, refuse_share=0.5)
        assert [bool(limiter.hit("k")) for _ in range(6)] == [True] * 3 + [False, True, False]


class Ways:
    """A prepared way that counts."""

    def __init__(self) -> None:
        self.hits = 0

    def hit(self, key: Any = "", cost: int = 1, *, partial: bool = False) -> Any:
        self.hits += 1
        return "a hit"

    def hit_many(self, keys: list[Any], cost: int) -> Any:
        return [self.hit(key) for key in keys]


class AsyncWays(Ways):
    async def hit(self, key: Any = "", cost: int = 1, *, partial: bool = False) -> Any:
        self.hits += 1
        return "a hit"

    async def hit_many(self, keys: list[Any], cost: int) -> Any:
        return [await self.hit(key) for key in keys]


class PreparedStore(FarStore):
    def __init__(self, clock: Any) -> None:
        super().__init__(clock)
        self.ways: list[tuple[Ways, str]] = []

    def quick(self, space: str, limits: Sequence[Limit], on_error: str = "") -> Any:
        self.ways.append((Ways(), on_error))
        return self.ways[-1][0]

    def quick_async(self, space: str, limits: Sequence[Limit], on_error: str = "") -> Any:
        self.ways.append((AsyncWays(), on_error))
        return self.ways[-1][0]


class TestPrepared:
    def test_hits_take_the_short_way(self, manual_clock: ManualClock) -> None:
        store = PreparedStore(manual_clock)
        limiter = Limiter("5/second", store=store, on_error="deny")
        other = AsyncLimiter("5/second", store=store)
        answers: list[Any] = [limiter.hit("k"), *limiter.hit_many(["a", "b"])]

        async def main() -> None:
            answers.append(await other.hit("k"))
            answers.extend(await other.hit_many(iter(["a", "b"])))

        asyncio.run(main())
        assert answers == ["a hit"] * 6
        assert [(way.hits, option) for way, option in store.ways] == [(3, "deny"), (3, "")]
        assert store.crossings == 0

    def test_limits_of_ones_own_go_the_long_way(self, manual_clock: ManualClock) -> None:
        store = PreparedStore(manual_clock)
        limiter = Limiter("5/second", store=store, limit_for={"k": "1/second"})
        assert [bool(limiter.hit("k")) for _ in range(2)] == [True, False]

    def test_a_subclass_keeps_its_own_hit(self, manual_clock: ManualClock) -> None:
        class Mine(Limiter):
            def hit(self, key: Any = "", cost: int = 1, *, partial: bool = False) -> Decision:
                raise NotImplementedError

        with pytest.raises(NotImplementedError):
            Mine("5/second", store=PreparedStore(manual_clock)).hit("k")


class TestOnError:
    def test_it_travels_with_every_ask(self, store: FarStore) -> None:
        limiter = Limiter("5/second", store=store, on_error="allow")
        limiter.hit("k")
        limiter.wait("k")
        with limiter.reserve("k", 2):
            pass
        assert {ask.on_error for asks in store.asked for ask in asks} == {"allow"}

    def test_unless_the_store_does_not_block(self) -> None:
        limiter = Limiter("5/second", on_error="deny")
        assert limiter.asks("take", "k", 1) == Limiter("5/second").asks("take", "k", 1)

    @pytest.mark.parametrize("value", ["ALLOW", "", 1, True])
    def test_other_values(self, value: Any) -> None:
        with pytest.raises(ValueError, match="on_error is 'allow', 'deny' or 'local'"):
            Limiter("5/second", on_error=value)


class TestReservations:
    def test_a_task_settles_when_it_leaves(self, store: FarStore) -> None:
        async def main() -> None:
            limiter = AsyncLimiter("10/minute fixed-window", store=store)
            async with limiter.reserve("k", 8) as reservation:
                crossings = store.crossings
                assert reservation.settle(3)
                assert not reservation.settle(5)
                assert store.crossings == crossings
            assert (await limiter.peek("k")).remaining == 7
            async with limiter.reserve("k", 5) as reservation:
                reservation.cancel()
            assert (await limiter.peek("k")).remaining == 7
            async with limiter.reserve("k", 5):
                pass
            assert (await limiter.peek("k")).remaining == 2
            with pytest.raises(ZeroDivisionError):
                async with limiter.reserve("k", 2):
                    raise ZeroDivisionError
            assert (await limiter.peek("k")).remaining == 2

        asyncio.run(main())

    def test_attempts(self, store: FarStore) -> None:
        async def main() -> None:
            limiter = AsyncLimiter("3/minute fixed-window", store=store)

            async def left(told: Any, error: type[Exception] | None = None) -> int:
                try:
                    async with limiter.attempt("k") as attempt:
                        told(attempt)
                        if error is not None:
                            raise error
                except ZeroDivisionError:
                    pass
                return (await limiter.peek("k")).remaining

            assert await left(lambda attempt: None) == 3
            assert await left(Try.succeed, ZeroDivisionError) == 3
            assert await left(Try.fail) == 2
            assert await left(lambda attempt: None, ZeroDivisionError) == 1

        asyncio.run(main())

    def test_a_cancelled_exit_still_gives_back(self, store: FarStore) -> None:
        async def main() -> None:
            limiter = AsyncLimiter("1 concurrent", store=store)

            async def work() -> None:
                async with limiter.hold("k", timeout=1):
                    pass

            for steps in range(12):
                task = asyncio.create_task(work())
                for _ in range(steps):
                    await asyncio.sleep(0)
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
                await errands_done()
                assert (await limiter.peek("k")).remaining == 1

        asyncio.run(main())


class TestPermits:
    def test_release_in_a_task_is_sent_at_once(self, store: FarStore) -> None:
        async def main() -> None:
            limiter = AsyncLimiter("1 concurrent", store=store)
            async with limiter.hold("k") as permit:
                assert permit.release()
                assert not permit.release()
                await settled()
                assert (await limiter.peek("k")).remaining == 1
                with pytest.raises(TypeError, match=r"await permit\.extend"):
                    permit.renew(5)
                assert not await permit.extend(5)
            assert (await limiter.peek("k")).remaining == 1

        asyncio.run(main())

    def test_extend_works_on_every_store(self) -> None:
        async def main() -> None:
            async with AsyncLimiter("1 concurrent").hold(ttl=5) as permit:
                assert await permit.extend(60)
                assert permit.renew(60)

        asyncio.run(main())

    def test_the_token_is_the_fence(self, store: FarStore) -> None:
        limiter = Limiter("1 concurrent", store=store)
        with limiter.hold("k") as permit, Limiter("1/s", store=store).hold("k") as other:
            assert permit.token > 0
            assert other.token == 0

        class Fenced:
            fence = 77
            parts: Any = ()

        fenced = Fenced()
        fenced.parts = (fenced,)
        assert Permit(limiter, "k", limiter.asks("take", "k", 1), fenced).token == 77  # type: ignore[arg-type] # enough of a decision

    def test_a_held_permit_is_renewed(self, store: FarStore, manual_clock: ManualClock) -> None:
        limiter = Limiter("2 concurrent", store=store)
        with limiter.hold("k") as permit, limiter.hold("k") as other:
            for _ in range(12):
                _beaten(store, lambda: manual_clock.advance(10 / 3))
                assert limiter.peek("k").remaining == 0
            assert store.asked[-2][0].op == "renew"
            assert not permit.lost
            assert not other.lost
        assert limiter.peek("k").remaining == 2
        _until(lambda: "headgate heart" not in {thread.name for thread in threading.enumerate()})
        assert manual_clock.next_wakeup() is None

    def test_with_a_ttl_it_is_not(self, store: FarStore, manual_clock: ManualClock) -> None:
        limiter = Limiter("1 concurrent", store=store)
        with limiter.hold("k", ttl=5) as permit:
            assert manual_clock.next_wakeup() is None
            manual_clock.advance(5)
            assert limiter.peek("k").remaining == 1
            assert not permit.release()

    def test_a_lost_permit_says_so(self, store: FarStore, manual_clock: ManualClock) -> None:
        limiter = Limiter("1 concurrent", store=store)
        with limiter.hold("k") as permit:
            limiter.reset("k")
            _beaten(store, lambda: manual_clock.advance(10 / 3))
            _until(lambda: permit.lost)
            assert not permit.release()

    def test_a_store_that_is_away_for_longer_than_the_lease(
        self, store: FarStore, manual_clock: ManualClock
    ) -> None:
        limiter = Limiter("1 concurrent", store=store)
        with limiter.hold("k") as permit:
            store.broken = StoreError("away")
            _beaten(store, lambda: manual_clock.advance(10 / 3))
            assert not _lost(permit)
            for _ in range(5):
                if _lost(permit):
                    break
                _beaten(store, lambda: manual_clock.advance(5 / 3))
            _until(lambda: permit.lost)
            store.broken = None

    def test_tasks_have_a_heart_too(self, store: FarStore, manual_clock: ManualClock) -> None:
        async def main() -> None:
            limiter = AsyncLimiter("2 concurrent", store=store)
            async with limiter.hold("k") as permit, limiter.hold("k"):
                for _ in range(12):
                    crossings = store.crossings
                    manual_clock.advance(10 / 3)
                    await settled()
                    assert store.crossings == crossings + 1  # both in one
                    assert (await limiter.peek("k")).remaining == 0
                assert not _lost(permit)
                await limiter.reset("k")
                manual_clock.advance(10 / 3)
                await settled()
                assert _lost(permit)
            assert manual_clock.next_wakeup() is None

        asyncio.run(main())

    def test_hearts_on_the_system_clock(self) -> None:
        store = FarStore()
        store.lease_ttl = 0.3
        limiter = Limiter("2 concurrent", store=store)
        other = AsyncLimiter("2 concurrent", store=store)

        async def main() -> None:
            async with other.hold("k") as permit:
                await asyncio.sleep(0.8)
                assert not permit.lost
                assert (await other.peek("k")).remaining == 0

        with limiter.hold("k") as permit:
            asyncio.run(main())
            assert not permit.lost
        assert limiter.peek("k").remaining == 2

    def test_a_lease_begins_when_its_holder_may_act(
        self, store: FarStore, manual_clock: ManualClock
    ) -> None:
        async def main() -> None:
            limiter = AsyncLimiter("1/minute even", "1 concurrent", store=store)
            permits = AsyncLimiter("1 concurrent", store=store)
            async with limiter.hold("k", ttl=2):
                pass
            task = asyncio.create_task(limiter.hold("k", ttl=2, timeout=None).__aenter__())
            await settled()
            for _ in range(60):
                assert not (await permits.peek("k")).remaining
                manual_clock.advance(1)
            await settled()
            assert task.result().decision.allowed
            manual_clock.advance(1.9)
            assert not (await permits.peek("k")).remaining
            manual_clock.advance(0.1)
            assert (await permits.peek("k")).remaining

        asyncio.run(main())

    def test_a_permit_that_nobody_has_any_more_is_let_go(
        self, store: FarStore, manual_clock: ManualClock
    ) -> None:
        limiter = Limiter("1 concurrent", store=store)
        limiter.hold("k").__enter__()
        manual_clock.advance(9)
        _until(lambda: manual_clock.next_wakeup() is None)
        manual_clock.advance(1)
        assert limiter.peek("k").remaining == 1

    def test_an_interrupt_on_the_way_out(self, store: FarStore, monkeypatch: Any) -> None:
        limiter = Limiter("1 concurrent", store=store)
        give = limiter.give

        def interrupted(*what: Any) -> Any:
            monkeypatch.setattr(limiter, "give", give)
            raise KeyboardInterrupt

        def work() -> None:
            with limiter.hold("k"):
                monkeypatch.setattr(limiter, "give", interrupted)

        with pytest.raises(KeyboardInterrupt):
            work()
        assert limiter.peek("k").remaining == 1

    def test_a_call_that_was_let_pass_holds_nothing(self, store: FarStore) -> None:
        limiter = Limiter("1 concurrent", store=store, refuse_share=0)
        with limiter.hold("k"), limiter.hold("k") as passed:
            assert passed._heart is None


class TestLimited:
    def test_both_colours(self, store: FarStore) -> None:
        limiter = Limiter("1 concurrent", store=store)
        other = AsyncLimiter("1 concurrent", store=store)

        @limiter.limited(key="k")
        def plain() -> int:
            return limiter.peek("k").remaining

        @other.limited(key="k")
        async def awaited() -> int:
            return (await other.peek("k")).remaining

        @other.limited(key="k")
        async def items() -> AsyncIterator[int]:
            yield (await other.peek("k")).remaining

        async def main() -> None:
            assert await awaited() == 0
            assert [item async for item in items()] == [0]
            assert (await other.peek("k")).remaining == 1

        assert plain() == 0
        asyncio.run(main())
        with pytest.raises(TypeError, match="would block its event loop; use AsyncLimiter"):

            @limiter.limited()
            async def wrong() -> None: ...

    def test_a_refused_call(self, store: FarStore) -> None:
        async def main() -> None:
            limiter = AsyncLimiter("1 concurrent", store=store)

            @limiter.limited(key="k", timeout=0)
            async def work() -> None: ...

            async with limiter.hold("k"):
                with pytest.raises(LimitExceeded):
                    await work()
            await work()

        asyncio.run(main())


def _lost(permit: Permit) -> bool:
    return permit.lost  # by another thread or task, meanwhile


def _beaten(store: FarStore, move: Any) -> None:
    """Move the clock, and wait until the heart has beaten."""
    crossings = store.crossings
    move()
    _until(lambda: store.crossings > crossings)
    time.sleep(0.005)  # for the answer to be noted


def _until(true: Any) -> None:
    """Spin until another thread has come so far."""
    for _ in range(10_000):
        if true():
            return
        time.sleep(0.001)
    raise AssertionError("the other thread did not come so far")
