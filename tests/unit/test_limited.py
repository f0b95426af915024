"""The decorator, on everything it can stand on."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from headgate import AsyncLimiter, Limiter, LimitExceeded, ManualClock


@pytest.fixture
def limiter(manual_clock: ManualClock) -> Limiter:
    return Limiter("2/minute", clock=manual_clock)


class TestFunctions:
    def test_a_refused_call_raises_with_its_decision(self, limiter: Limiter) -> None:
        @limiter.limited()
        def double(number: int) -> int:
            """Twice as much."""
            return 2 * number

        assert [double(1), double(2)] == [2, 4]
        with pytest.raises(
            LimitExceeded, match=r"limit '2/minute' exceeded; retry after"
        ) as refusal:
            double(3)
        assert not refusal.value.decision.allowed
        assert double.__doc__ == "Twice as much."
        assert list(inspect.signature(double).parameters) == ["number"]

    def test_the_key_is_made_from_the_arguments(self, limiter: Limiter) -> None:
        @limiter.limited(key=lambda user, *_: user, cost=lambda user, size: size)
        def upload(user: str, size: int) -> int:
            return size

        assert upload("alice", 2)
        assert upload("bob", 1)
        with pytest.raises(LimitExceeded) as refusal:
            upload("alice", 1)
        assert refusal.value.key == "alice"

    def test_otherwise(self, limiter: Limiter) -> None:
        @limiter.limited(key="f", otherwise=lambda number: -number)
        def function(number: int) -> int:
            return number

        @limiter.limited(key="g", otherwise="default data")
        def constant() -> str:
            return "fresh data"

        assert [function(1), function(2), function(3)] == [1, 2, -3]
        assert [constant(), constant(), constant()] == ["fresh data"] * 2 + ["default data"]

    def test_methods(self, limiter: Limiter) -> None:
        class Service:
            def __init__(self, name: str) -> None:
                self.name = name

            @limiter.limited(key=lambda self: self.name)
            def call(self) -> str:
                return self.name

            @limiter.limited(key="class")
            @classmethod
            def make(cls) -> str:
                return cls.__name__

            @limiter.limited(key="static")
            @staticmethod
            def plain() -> int:
                return 1

        a, b = Service("a"), Service("b")
        assert [a.call(), a.call(), b.call()] == ["a", "a", "b"]
        with pytest.raises(LimitExceeded):
            a.call()
        assert (Service.make(), Service.plain()) == ("Service", 1)

    def test_waiting(self, manual_clock: ManualClock) -> None:
        limiter = Limiter("100/second even")

        @limiter.limited(timeout=5)
        def call() -> int:
            return 1

        assert [call(), call(), call()] == [1, 1, 1]

    def test_concurrency_is_held_while_the_call_runs(self) -> None:
        limiter = Limiter("1 concurrent")

        @limiter.limited()
        def outer() -> None:
            with pytest.raises(LimitExceeded):
                outer()

        outer()
        assert limiter.peek().remaining == 1

    def test_count_failures(self, limiter: Limiter) -> None:
        @limiter.limited(count="failures", failures=(KeyError,), failed=lambda result: result < 0)
        def pay(amount: int) -> int:
            if amount == 0:
                raise KeyError
            if amount > 99:
                raise ValueError
            return amount

        for _ in range(10):
            assert pay(5) == 5
            with pytest.raises(ValueError):
                pay(100)
        with pytest.raises(KeyError):
            pay(0)
        assert pay(-1) == -1
        with pytest.raises(LimitExceeded):
            pay(5)

    def test_bad_options(self, limiter: Limiter) -> None:
        with pytest.raises(ValueError, match="count is 'all' or 'failures'"):
            limiter.limited(count="some")
        with pytest.raises(TypeError, match="decorates a function, not int"):
            limiter.limited()(5)  # type: ignore[type-var]


class TestGenerators:
    def test_charged_at_the_first_next(self, limiter: Limiter) -> None:
        @limiter.limited()
        def count(to: int) -> Iterator[int]:
            yield from range(to)

        lazy = [count(3) for _ in range(5)]
        assert limiter.peek().remaining == 2
        assert list(lazy[0]) == [0, 1, 2]
        assert next(lazy[1]) == 0
        with pytest.raises(LimitExceeded):
            next(lazy[2])

    def test_otherwise(self, limiter: Limiter) -> None:
        @limiter.limited(cost=2, otherwise=lambda: ["spare"])
        def items() -> Iterator[str]:
            yield "real"

        assert [list(items()), list(items())] == [["real"], ["spare"]]

    def test_a_permit_is_held_until_the_generator_ends(self) -> None:
        limiter = Limiter("1 concurrent")

        @limiter.limited()
        def items() -> Iterator[int]:
            yield 1
            yield 2

        generator = items()
        next(generator)
        assert limiter.peek().remaining == 0
        generator.close()  # type: ignore[attr-defined] # a generator in fact
        assert limiter.peek().remaining == 1


class TestAsync:
    def test_coroutines_on_either_limiter(self) -> None:
        async def main() -> None:
            for kind in (Limiter, AsyncLimiter):
                limiter: Limiter | AsyncLimiter = kind("2/minute", clock=ManualClock(1_000_000))

                async def spare() -> str:
                    return "spare"

                @limiter.limited(otherwise=spare)
                async def call() -> str:
                    await asyncio.sleep(0)
                    return "real"

                assert inspect.iscoroutinefunction(call)
                assert [await call(), await call(), await call()] == ["real", "real", "spare"]

        asyncio.run(main())

    def test_a_coroutine_waits_without_blocking(self) -> None:
        async def main() -> None:
            clock = ManualClock(1_000_000)
            limiter = AsyncLimiter("1/second even", clock=clock)

            @limiter.limited(timeout=None)
            async def call() -> float:
                return clock.now()

            tasks = [asyncio.create_task(call()) for _ in range(3)]
            await asyncio.sleep(0)
            while (wakeup := clock.next_wakeup()) is not None:
                clock.advance(wakeup - clock.now())
                await asyncio.sleep(0)
            assert await asyncio.gather(*tasks) == [1_000_000, 1_000_001, 1_000_002]

        asyncio.run(main())

    def test_async_generators(self) -> None:
        async def main() -> None:
            limiter = AsyncLimiter("1/minute", clock=ManualClock(1_000_000))

            @limiter.limited(otherwise=["spare"])
            async def items() -> AsyncIterator[str]:
                yield "a"
                yield "b"

            assert [item async for item in items()] == ["a", "b"]
            assert [item async for item in items()] == ["spare"]

        asyncio.run(main())

    def test_what_is_sent_and_thrown_reaches_an_async_generator(self) -> None:
        async def main() -> None:
            limiter = AsyncLimiter("9/minute", "1 concurrent")

            @limiter.limited()
            async def echo() -> Any:
                got = None
                while True:
                    try:
                        got = yield got
                    except KeyError:
                        got = "caught"

            generator = echo()
            assert await anext(generator) is None
            assert await generator.asend("x") == "x"
            assert await generator.athrow(KeyError()) == "caught"
            assert (await limiter.peek()).parts[1].remaining == 0
            await generator.aclose()
            assert (await limiter.peek()).parts[1].remaining == 1

        asyncio.run(main())

    def test_count_failures(self) -> None:
        async def main() -> None:
            limiter = AsyncLimiter("3/day", clock=ManualClock(1_000_000))

            @limiter.limited(count="failures")
            async def guess(*, good: bool) -> None:
                await asyncio.sleep(0)
                if not good:
                    raise PermissionError

            for _ in range(10):
                await guess(good=True)
            results = await asyncio.gather(
                *(guess(good=False) for _ in range(100)), return_exceptions=True
            )
            assert sum(isinstance(result, PermissionError) for result in results) == 3

        asyncio.run(main())

    def test_an_async_limiter_refuses_a_plain_function(self) -> None:
        with pytest.raises(TypeError, match="plain is a plain one; use Limiter"):

            @AsyncLimiter("5/s").limited()
            def plain() -> None: ...

    def test_a_blocking_store_refuses_a_coroutine(self) -> None:
        limiter = Limiter("5/s")
        limiter.store.blocking = True

        async def call() -> None: ...

        with pytest.raises(TypeError, match="would block its event loop"):
            limiter.limited()(call)
