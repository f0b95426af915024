"""The gate for tasks: waiting, order, and that nothing gets lost when they are cancelled."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from far_store import FarStore, settled
from gate_tools import START, NoShortcuts, rule, rules

from headgate import AsyncGate, Facts, Gate, ManualClock, MemoryStore
from headgate.callers import errands_done
from headgate.rules.model import Cost, Match, Rule

ANNA, BERT = Facts(user="anna", ip="192.0.2.1"), Facts(user="bert", ip="192.0.2.1")
STORES = [MemoryStore, NoShortcuts, FarStore]
every_store = pytest.mark.parametrize("kind", STORES)


def run(kind: Any, main: Callable[[ManualClock, Any], Awaitable[None]]) -> None:
    clock = ManualClock(START)
    asyncio.run(main(clock, kind(clock=clock)))  # type: ignore[arg-type] # a coroutine in fact


async def step_through(clock: ManualClock, tasks: list[asyncio.Task[Any]]) -> None:
    await settled()
    while not all(task.done() for task in tasks):
        wakeup = clock.next_wakeup()
        if wakeup is None:  # some are still on their way
            for _ in range(20):
                await settled()
            if all(task.done() for task in tasks):
                return
            wakeup = clock.next_wakeup()
        assert wakeup is not None, "somebody waits for nothing"
        clock.advance(max(0.0, wakeup - clock.now()))
        await settled()


def gate_of(*given: Rule, store: Any) -> AsyncGate:
    return AsyncGate(rules(*given), store)


def nobody_waits(gate: Any) -> bool:
    return not gate._desk._lines._lines and not gate._desk._places


@every_store
def test_the_names_of_a_gate_awaited(kind: Any) -> None:
    async def main(clock: ManualClock, store: Any) -> None:
        async with gate_of(rule("a", "2/minute", key="user"), rule("b", "1 concurrent"),
                           store=store) as gate:  # fmt: skip
            first = await gate.check(ANNA)
            assert first
            assert (await gate.check(ANNA)).rule == "b"
            assert await first.permit.release()
            assert not await first.permit.release()
            second = await gate.check(ANNA)
            assert second
            await second.permit.release()
            assert (await gate.check(ANNA)).rule == "a"
            gate.reload(rules())
            assert await gate.check(ANNA)
            assert gate.status()["rules"] == 0

    run(kind, main)


@every_store
def test_failures_come_back_on_success(kind: Any) -> None:
    async def main(clock: ManualClock, store: Any) -> None:
        gate = gate_of(rule("guess", "2/minute", count="failures"), store=store)
        verdicts = [await gate.check(ANNA) for _ in range(10)]
        passed = [verdict for verdict in verdicts if verdict]
        assert len(passed) == 2
        await passed[0].permit.release("success")
        await passed[1].permit.release("failure")
        assert await gate.check(ANNA)
        assert not await gate.check(ANNA)

    run(kind, main)


@every_store
@pytest.mark.parametrize(
    "text", ["1/second burst 1", "1/second even", "1/second leaky-bucket queue 9"]
)
def test_first_come_first_served(kind: Any, text: str) -> None:
    async def main(clock: ManualClock, store: Any) -> None:
        gate = gate_of(rule("a", text, wait=60.0), rule("b", "100/minute"), store=store)
        served: list[tuple[int, float]] = []

        async def work(number: int) -> None:
            assert await gate.check(ANNA)
            served.append((number, clock.now() - START))

        tasks = [asyncio.create_task(work(number)) for number in range(6)]
        await step_through(clock, tasks)
        assert served == [(number, float(number)) for number in range(6)]
        assert nobody_waits(gate)
        clock.advance(1)
        assert dict((await gate.check(BERT)).decisions)["b"].remaining == 100 - 7

    run(kind, main)


@every_store
def test_who_is_more_important_goes_first(kind: Any) -> None:
    async def main(clock: ManualClock, store: Any) -> None:
        gate = gate_of(rule("a", "1/second burst 1", wait=60.0), store=store)
        served: list[int] = []

        async def work(priority: int) -> None:
            assert await gate.check(Facts(priority=priority))
            served.append(priority)

        assert await gate.check(ANNA)
        tasks = []
        for priority in (-1, 5, 0, 9):
            tasks.append(asyncio.create_task(work(priority)))
            await settled()
        await step_through(clock, tasks)
        assert served == [-1, 9, 5, 0]  # the first had its turn already when the others came

    run(kind, main)


@every_store
def test_a_rule_says_who_is_more_important(kind: Any) -> None:
    async def main(clock: ManualClock, store: Any) -> None:
        gate = gate_of(
            rule("batch", "100/second", match=Match(origins=("batch",)), priority=-5),
            rule("shop", "100/second", match=Match(origins=("shop",)), priority=5),
            rule("all", "1 concurrent", wait=60.0),
            store=store,
        )
        served: list[str] = []

        async def work(origin: str) -> None:
            verdict = await gate.check(Facts(origin=origin))
            served.append(origin)
            await settled()
            await verdict.permit.release()

        first = await gate.check(ANNA)
        tasks = []
        for origin in ("batch", "batch", "shop", "shop"):
            tasks.append(asyncio.create_task(work(origin)))
            await settled()
        await first.permit.release()
        for _ in range(100):  # the clock stands still
            await settled()
        assert served == ["shop", "shop", "batch", "batch"]
        assert nobody_waits(gate)

    run(kind, main)


@every_store
def test_the_smallest_wait_of_those_that_refuse(kind: Any) -> None:
    async def main(clock: ManualClock, store: Any) -> None:
        gate = gate_of(
            rule("a", "1 concurrent", key="ip", wait=3.0),
            rule("b", "1 concurrent", key="user", wait=1.0),
            rule("c", "100/minute", wait=0.5),
            store=store,
        )
        held = await gate.check(ANNA)
        for facts, most in ((ANNA, 1.0), (BERT, 3.0)):
            began = clock.now()
            task = asyncio.create_task(gate.check(facts))
            await step_through(clock, [task])
            assert not task.result()
            assert clock.now() == began + most
        await held.permit.release()
        assert await gate.check(BERT)
        assert nobody_waits(gate)

    run(kind, main)


@every_store
def test_whoever_waits_is_told_whichever_key_comes_back(kind: Any) -> None:
    async def main(clock: ManualClock, store: Any) -> None:
        gate = gate_of(
            rule("a", "1 concurrent", key="ip", wait=30.0),
            rule("b", "1 concurrent", key="user", wait=30.0),
            store=store,
        )
        first = await gate.check(Facts(ip="192.0.2.1", user="anna"))
        other = asyncio.create_task(gate.check(Facts(ip="192.0.2.2", user="anna")))  # by user
        third = asyncio.create_task(gate.check(Facts(ip="192.0.2.1", user="bert")))  # by ip
        await settled()
        assert not other.done()
        assert not third.done()
        await first.permit.release()
        if kind is FarStore:
            await step_through(clock, [other, third])
        await settled()
        assert other.result()
        assert third.result()
        assert clock.now() < START + 1
        for task in (other, third):
            await task.result().permit.release()
        assert nobody_waits(gate)

    run(kind, main)


@every_store
def test_rules_in_shadow_count_those_who_waited(kind: Any) -> None:
    async def main(clock: ManualClock, store: Any) -> None:
        gate = gate_of(
            rule("a", "1/second burst 1", wait=9.0), rule("new", "2/hour", shadow=True), store=store
        )
        shadowed = []
        for _ in range(4):
            task = asyncio.create_task(gate.check(ANNA))
            await step_through(clock, [task])
            assert task.result()
            shadowed.append(task.result().shadowed)
        assert shadowed == [(), (), ("new",), ("new",)]

    run(kind, main)


@every_store
def test_nobody_overtakes_those_who_wait(kind: Any) -> None:
    async def main(clock: ManualClock, store: Any) -> None:
        gate = gate_of(
            rule("a", "1 concurrent", wait=30.0), rule("b", "100/minute", wait=20.0), store=store
        )
        held = await gate.check(ANNA)
        served: list[int] = []

        async def work(number: int) -> None:
            verdict = await gate.check(ANNA)
            assert verdict
            served.append(number)
            await verdict.permit.release()

        tasks = []
        for number in range(4):
            tasks.append(asyncio.create_task(work(number)))
            await settled()
        await held.permit.release()
        tasks.append(asyncio.create_task(work(4)))
        await step_through(clock, tasks)
        assert served == [0, 1, 2, 3, 4]

    run(kind, main)


@every_store
def test_large_costs_of_one_rule_are_not_those_of_another(kind: Any) -> None:
    async def main(clock: ManualClock, store: Any) -> None:
        gate = gate_of(
            rule("bytes", "1000000/second burst 1000000", cost=Cost("size"), wait=9.0),
            rule("calls", "1/second burst 1", wait=9.0),
            store=store,
        )
        tasks = [asyncio.create_task(gate.check(Facts(size=1000))) for _ in range(5)]
        await step_through(clock, tasks)
        assert all(task.result() for task in tasks)
        assert clock.now() == START + 4

    run(kind, main)


class TestCancelled:
    @every_store
    def test_at_any_moment_nothing_stays_taken(self, kind: Any) -> None:
        async def main(clock: ManualClock, store: Any) -> None:
            gate = gate_of(
                rule("held", "2 concurrent", key="ip", wait=5.0),
                rule("user", "1 concurrent", key="user", wait=5.0),
                rule("new", "3 concurrent", shadow=True),
                rule("guess", "1000000/hour", count="failures"),
                store=store,
            )
            dice = random.Random(7)

            async def work(number: int) -> None:
                verdict = await gate.check((ANNA, BERT)[number % 2])
                for _ in range(dice.randrange(3)):
                    await asyncio.sleep(0)
                await verdict.permit.release()

            for _ in range(60):
                tasks = [asyncio.create_task(work(number)) for number in range(8)]
                for task in dice.sample(tasks, 6):
                    for _ in range(dice.randrange(6)):
                        await asyncio.sleep(0)
                    task.cancel()
                await step_through(clock, tasks)
                await errands_done()
            assert nobody_waits(gate)
            checks = [await gate.check(facts) for facts in (ANNA, BERT)]
            assert all(checks)
            parts = dict(checks[1].decisions)
            assert parts["held"].remaining == 0  # both of two, and no more
            assert parts["new"].remaining == 1
            for check in checks:
                await check.permit.release()

        run(kind, main)

    def test_in_the_middle_of_the_question(self) -> None:
        async def main(clock: ManualClock, store: FarStore) -> None:
            gate = gate_of(rule("a", "1 concurrent"), rule("b", "1/hour", count="failures"),
                           rule("s", "1 concurrent", shadow=True), store=store)  # fmt: skip
            for steps in range(6):
                task = asyncio.create_task(gate.check(ANNA))
                for _ in range(steps):
                    await asyncio.sleep(0)
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
                await errands_done()
                if task.cancelled():
                    verdict = await gate.check(ANNA)
                    assert verdict, steps
                    assert verdict.shadowed == ()
                    await verdict.permit.release()
                else:
                    await task.result().permit.release()

        run(FarStore, main)

    def test_a_release_goes_on(self) -> None:
        async def main(clock: ManualClock, store: FarStore) -> None:
            gate = gate_of(rule("a", "1 concurrent"), store=store)
            for steps in range(5):
                verdict = await gate.check(ANNA)
                assert verdict, steps
                task = asyncio.create_task(verdict.permit.release())
                for _ in range(steps):
                    await asyncio.sleep(0)
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
                await errands_done()
                if steps == 0:  # it had not begun
                    assert await verdict.permit.release()

        run(FarStore, main)


def test_a_lease_of_a_task_is_renewed() -> None:
    async def main(clock: ManualClock, store: FarStore) -> None:
        gate = gate_of(rule("a", "1 concurrent"), store=store)
        verdict = await gate.check(ANNA)
        for _ in range(20):
            wakeup = clock.next_wakeup()
            assert wakeup is not None
            clock.advance(max(0.0, wakeup - clock.now()))
            await settled()
        assert clock.now() > START + 30
        assert not verdict.permit.lost
        assert not await gate.check(ANNA)
        await verdict.permit.release()
        assert clock.next_wakeup() is None

    run(FarStore, main)


def test_gates_of_both_colours_count_together() -> None:
    async def main(clock: ManualClock, store: Any) -> None:
        given = rules(
            rule("a", "1 concurrent", key="ip", wait=5.0), rule("b", "9/minute", key="user")
        )
        gate, plain = AsyncGate(given, store), Gate(given, store)
        held = plain.check(ANNA)
        task = asyncio.create_task(gate.check(ANNA))
        await settled()
        assert not task.done()
        held.permit.release()
        await settled()
        assert task.result()

    run(MemoryStore, main)
