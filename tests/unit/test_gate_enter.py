"""Entries and the decorator: the gate around a block or a function."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from far_store import FarStore
from gate_tools import START, rule, rules

from headgate import (
    AsyncGate,
    Facts,
    Gate,
    HeadgateError,
    LimitExceeded,
    ManualClock,
    MemoryStore,
    Refused,
)
from headgate.rules.model import Match, Otherwise, Rule


def gate_of(*given: Rule, **more: Any) -> Gate:
    return Gate(rules(*given), clock=ManualClock(START), **more)


def async_gate_of(*given: Rule, **more: Any) -> AsyncGate:
    return AsyncGate(rules(*given), clock=ManualClock(START), **more)


def on(resource: str, **more: Any) -> Match:
    return Match(resources=(resource,), **more)


class TestEnter:
    def test_gives_back_on_the_way_out_and_raises_on_the_way_in(self) -> None:
        gate = gate_of(rule("db", "1 concurrent", match=on("db")))
        for _ in range(2):
            with gate.enter("db") as entry:
                assert entry.verdict.allowed
                with pytest.raises(Refused) as refusal, gate.enter("db"):
                    raise AssertionError("never inside")
                assert isinstance(refusal.value, LimitExceeded)
                assert refusal.value.verdict.rule == "db"
                assert str(refusal.value) == "refused by rule 'db'"

    def test_facts_that_are_given_stay_as_they_are(self) -> None:
        gate = gate_of(rule("via", "1/minute", match=on("db", through=("web",))))
        facts = Facts(resource="db")
        with gate.enter("web", origin="shop"), gate.enter(facts):
            pass
        assert (facts.chain, facts.origin) == ((), "")
        for _ in range(2):  # not through "web"
            with gate.enter(facts):
                pass

    def test_a_chain_of_entries(self) -> None:
        gate = gate_of(rule("via", "1/minute", match=on("db", through=("web",))))
        seen: list[tuple[str, ...]] = []
        gate.on_verdict.append(lambda facts, verdict: seen.append(tuple(facts.chain)))
        for _ in range(3):
            with gate.enter("batch"), gate.enter("db"):
                pass
        with gate.enter("web"), gate.enter("orders"), gate.enter("db"):
            pass
        assert seen[-3:] == [(), ("web",), ("web", "orders")]
        with gate.enter(Facts(route="web")), pytest.raises(Refused), gate.enter("db"):
            pass
        with gate.enter("db"):
            assert seen[-1] == ()

    def test_who_calls_holds_for_what_is_entered_inside(self) -> None:
        gate = gate_of(rule("shop", "1/minute", match=on("db", origins=("shop",))))
        with gate.enter("web", origin="shop"), gate.enter("db"):
            pass
        with gate.enter("web", origin="shop"), gate.enter("db", origin="office"):
            pass
        with gate.enter("web", origin="shop"), pytest.raises(Refused), gate.enter("db"):
            pass
        with gate.enter("db"):
            pass

    def test_arguments(self) -> None:
        gate = gate_of(rule("hot", "1/minute", key="arg:0", match=on("buy")))
        with gate.enter("buy", args=["apple"]), gate.enter("buy", args={"0": "pear"}):
            pass
        with pytest.raises(Refused), gate.enter("buy", args=("apple",)):
            pass
        with pytest.raises(TypeError, match="args are"):
            gate.enter("buy", args="apple")
        with pytest.raises(TypeError, match="colour"):
            gate.enter("buy", colour="red")
        with pytest.raises(TypeError, match="given whole"):
            gate.enter(Facts(), user="anna")

    def test_how_it_ended(self) -> None:
        gate = gate_of(rule("guess", "2/minute", count="failures"))
        for _ in range(5):
            with gate.enter("login"):
                pass
        with pytest.raises(KeyError), gate.enter("login"):
            raise KeyError
        with gate.enter("login") as entry:
            entry.fail()
        with pytest.raises(Refused), gate.enter("login"):
            pass

    @pytest.mark.parametrize("error", [KeyboardInterrupt, asyncio.CancelledError, GeneratorExit])
    def test_an_interrupt_is_neither(self, error: type[BaseException]) -> None:
        gate = gate_of(rule("db", "1 concurrent"))
        for _ in range(2):
            with pytest.raises(error), gate.enter("db"):
                raise error
        with gate.enter("db") as entry:
            entry.ignore()
            with pytest.raises(RuntimeError, match="under way"):
                entry.__enter__()

    def test_tasks_have_chains_of_their_own(self) -> None:
        async def main() -> None:
            gate = async_gate_of(rule("db", "5/minute", match=on("db", through=("web",))))
            seen: dict[str, tuple[str, ...]] = {}
            gate.on_verdict.append(
                lambda facts, _: seen.update({facts.resource: tuple(facts.chain)})
            )

            async def work(name: str) -> None:
                async with gate.enter(name):
                    await asyncio.sleep(0)
                    async with gate.enter(f"{name}-inner") as entry:
                        await asyncio.sleep(0)
                        assert entry.verdict

            await asyncio.gather(work("a"), work("b"))
            assert seen["a-inner"] == ("a",)
            assert seen["b-inner"] == ("b",)

        asyncio.run(main())

    @pytest.mark.parametrize("kind", [MemoryStore, FarStore])
    def test_a_task_that_is_cancelled_inside_gives_back(self, kind: Any) -> None:
        async def main() -> None:
            gate = AsyncGate(rules(rule("db", "1 concurrent")), kind(clock=ManualClock(START)))

            async def work() -> None:
                async with gate.enter("db"):
                    await asyncio.sleep(3600)

            for _ in range(3):
                task = asyncio.create_task(work())
                for _ in range(9):
                    await asyncio.sleep(0)
                with pytest.raises(Refused):
                    await gate.enter("db").__aenter__()
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
            async with gate.enter("db"):
                pass

        asyncio.run(main())


def other(sku: str, count: int = 1) -> str:
    return f"no {sku}"


class TestLimited:
    def test_arguments_by_name_and_by_place(self) -> None:
        gate = gate_of(
            rule("sku", "1/minute", key="arg:sku", match=on("buy")),
            rule("first", "2/minute", key="arg:0", match=on("buy")),
        )

        @gate.limited("buy")
        def buy(sku: str, count: int = 1, **more: int) -> str:
            """Buy."""
            return sku

        assert buy.__doc__ == "Buy."
        assert buy("apple") == "apple"
        with pytest.raises(Refused):
            buy(sku="apple")
        assert buy(sku="pear", weight=1) == "pear"
        with pytest.raises(TypeError):
            buy()  # type: ignore[call-arg] # on purpose

    def test_its_name_is_the_resource_and_users_are_found(self) -> None:
        def download(user: str) -> str:
            return user

        name = download.__qualname__
        gate = gate_of(rule("user", "1/minute", key="user", match=on(name)))
        limited = gate.limited(user=lambda user: user, origin="test")(download)
        assert limited("anna") == "anna"
        assert limited("bert") == "bert"
        with pytest.raises(Refused):
            limited("anna")

    def test_otherwise(self) -> None:
        data = {"items": [1]}
        gate = gate_of(
            rule("a", "1/hour", match=on("a"), otherwise=Otherwise("data", data)),
            rule(
                "b", "1/hour", match=on("b"), otherwise=Otherwise("function", f"{__name__}:other")
            ),
            rule("c", "1/hour", match=on("c"), otherwise=Otherwise("function", "mine")),
            rule("d", "1/hour", match=on("d"), otherwise=Otherwise("redirect", "/later")),
            rule("e", "1/hour", match=on("e"), otherwise=Otherwise("function", "os:none")),
            functions={"mine": lambda sku: f"mine {sku}"},
        )

        def call(resource: str) -> Any:
            return gate.limited(resource)(lambda sku: {"sold": sku})

        for resource in "abcde":
            assert call(resource)("apple") == {"sold": "apple"}
        answer = call("a")("apple")
        assert answer == data
        answer["items"].append(2)
        assert call("a")("apple") == {"items": [1]}
        assert call("b")("apple") == "no apple"
        assert call("c")("apple") == "mine apple"
        with pytest.raises(Refused):
            call("d")("apple")
        with pytest.raises(HeadgateError, match="there is no function 'os:none'"):
            call("e")("apple")

    def test_coroutines_and_generators(self) -> None:
        async def main() -> None:
            gate = async_gate_of(rule("a", "1 concurrent"), rule("b", "2/hour"))

            @gate.limited()
            async def work() -> int:
                return 7

            @gate.limited()
            async def count() -> AsyncIterator[int]:
                yield 1
                yield 2

            assert await work() == 7
            assert [number async for number in count()] == [1, 2]
            with pytest.raises(Refused):
                await work()
            with pytest.raises(TypeError, match=r"AsyncGate\.limited .* use Gate"):
                gate.limited()(lambda: 1)

        asyncio.run(main())
        plain = gate_of(rule("a", "1 concurrent"))

        @plain.limited()
        def numbers() -> Iterator[int]:
            yield 1
            yield 2

        first = numbers()
        assert next(first) == 1
        with pytest.raises(Refused):
            next(numbers())
        first.close()  # type: ignore[attr-defined] # it is a generator
        assert list(numbers()) == [1, 2]

    def test_a_plain_gate_and_async_functions(self) -> None:
        gate = gate_of(rule("a", "1 concurrent"), rule("b", "100/second burst 1", wait=5.0))

        async def work() -> int:
            await asyncio.sleep(0)
            return 7

        async def main() -> None:
            assert await gate.limited()(work)() == 7

        asyncio.run(main())
        far = Gate(rules(), FarStore())
        with pytest.raises(TypeError, match="use AsyncGate"):
            far.limited()(work)

    def test_methods(self) -> None:
        gate = gate_of(rule("a", "1/hour", key="arg:sku"))

        class Shop:
            @gate.limited()
            def buy(self, sku: str) -> str:
                return sku

            @gate.limited("sell")
            @staticmethod
            def sell(sku: str) -> str:
                return sku

        assert Shop().buy("apple") == "apple"
        assert Shop.sell("pear") == "pear"
        with pytest.raises(Refused):
            Shop().buy("apple")
