"""The front door on a store that blocks: every operation in both colours, permits, options."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from far_store import FarStore

from headgate import AsyncLimiter, Decision, Limit, Limiter, LimitExceeded, ManualClock, StoreError
from headgate.callers import errands_done
from headgate.held import Try


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
