"""Who goes first where calls that meet different rules wait for the same limit."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from far_store import FarStore, settled
from gate_tools import START, NoShortcuts, rule, rules, until

from headgate import AsyncGate, AsyncLimiter, Facts, Gate, ManualClock, MemoryStore, NeverFits
from headgate.callers import errands_done
from headgate.rules.model import Match

STORES = [MemoryStore, NoShortcuts, FarStore]
every_store = pytest.mark.parametrize("kind", STORES)
RATES = ["1/second token-bucket burst 1", "1/second gcra", "1/second fixed-window", "1/second even",
         "1/second sliding-log"]  # fmt: skip
PRIORITIES = {"batch": -5, "shop": 5, "admin": 9}


def of(origin: str, *limits: str, **more: Any) -> Any:
    return rule(origin, *limits, match=Match(origins=(origin,)), **more)


def three(text: str, **more: Any) -> tuple[Any, ...]:
    """Rules of three who call, and one that all of them meet."""
    own = [of(name, "1000/second", priority=level) for name, level in PRIORITIES.items()]
    return *own, rule("all", text, wait=60.0, **more)


def run(kind: Any, main: Callable[[ManualClock, Any], Awaitable[None]]) -> None:
    clock = ManualClock(START)
    asyncio.run(main(clock, kind(clock=clock)))  # type: ignore[arg-type] # a coroutine in fact


async def step_through(clock: ManualClock, tasks: list[asyncio.Task[Any]]) -> None:
    for _ in range(10):
        await settled()
    while not all(task.done() for task in tasks):
        wakeup = clock.next_wakeup()
        assert wakeup is not None, "somebody waits for nothing"
        clock.advance(max(0.0, wakeup - clock.now()))
        for _ in range(10):
            await settled()


def nothing_left(gate: Any) -> bool:
    lines = gate._desk._lines
    ranks = lines._ranks
    return not (lines._lines or ranks._levels or ranks._yielding or gate._desk._places)


class Callers:
    """Tasks that call, one after the other, and the order in which they are served."""

    def __init__(self, gate: AsyncGate) -> None:
        self.gate = gate
        self.served: list[str] = []
        self.tasks: list[asyncio.Task[None]] = []

    async def come(self, *names: str, **known: Any) -> None:
        for name in names:
            origin = name.rstrip("0123456789")
            self.tasks.append(asyncio.create_task(self._work(name, origin, known)))
            await settled()

    async def _work(self, name: str, origin: str, known: dict[str, Any]) -> None:
        verdict = await self.gate.check(Facts(origin=origin, **known))
        self.served.append(name if verdict else f"{name} refused")


@every_store
@pytest.mark.parametrize("text", RATES)
def test_a_rule_says_who_gets_a_rate_first(text: str, kind: Any) -> None:
    async def main(clock: ManualClock, store: Any) -> None:
        gate = AsyncGate(rules(*three(text)), store)
        assert await gate.check(Facts())
        callers = Callers(gate)
        await callers.come("batch1", "batch2", "batch3", "shop1", "shop2", "admin1", "shop3")
        await step_through(clock, callers.tasks)
        order = ["admin1", "shop1", "shop2", "shop3", "batch1", "batch2", "batch3"]
        # Whoever was given the next instant before the others came keeps it.
        booked = [] if text.endswith(("window", "log")) else ["batch1"]
        assert callers.served == booked + [name for name in order if name not in booked]
        assert clock.now() == START + 7  # and not an instant is lost
        assert nothing_left(gate)

    run(kind, main)


@every_store
def test_nobody_gives_way_to_those_who_could_not_go_ahead(kind: Any) -> None:
    """The shop waits for a limit of its own; what it shares with the others is there."""

    async def main(clock: ManualClock, store: Any) -> None:
        gate = AsyncGate(
            rules(
                of("shop", "1/minute fixed-window", priority=5, wait=60.0),
                rule("all", "1/second fixed-window", wait=60.0),
            ),
            store,
        )
        assert await gate.check(Facts(origin="shop"))
        callers = Callers(gate)
        await callers.come("shop1", "batch1", "batch2", "batch3")
        await step_through(clock, callers.tasks[1:])
        assert callers.served == ["batch1", "batch2", "batch3"]
        assert clock.now() == START + 3
        await step_through(clock, callers.tasks)
        assert nothing_left(gate)

    run(kind, main)


@every_store
@pytest.mark.parametrize("text", ["1/second gcra", "1/second fixed-window"])
def test_whoever_gives_up_is_not_waited_for(text: str, kind: Any) -> None:
    async def main(clock: ManualClock, store: Any) -> None:
        gate = AsyncGate(rules(*three(text)), store)
        assert await gate.check(Facts())
        callers = Callers(gate)
        await callers.come("shop1", "shop2", "shop3", "batch1", "batch2")
        for task in callers.tasks[:3]:
            task.cancel()
        await asyncio.gather(*callers.tasks[:3], return_exceptions=True)
        await errands_done()
        await step_through(clock, callers.tasks)
        assert callers.served == ["batch1", "batch2"]
        assert clock.now() <= START + 3  # what was taken for those who left is back
        assert nothing_left(gate)

    run(kind, main)


@every_store
def test_whoever_has_waited_long_enough_is_told(kind: Any) -> None:
    async def main(clock: ManualClock, store: Any) -> None:
        own = [of(name, "1000/second", priority=level) for name, level in PRIORITIES.items()]
        shared = rule("all", "1/10s fixed-window", wait=25.0)
        gate = AsyncGate(rules(*own, shared), store)
        assert await gate.check(Facts())
        callers = Callers(gate)
        await callers.come("batch1")
        await callers.come("shop1", "shop2")
        assert callers.served == []
        await callers.come("batch2")  # and in time it could not be: told at once
        assert callers.served == ["batch2 refused"]
        await step_through(clock, callers.tasks)
        assert callers.served[1:] == ["shop1", "shop2", "batch1 refused"]
        assert clock.now() == START + 20  # when that became plain
        assert nothing_left(gate)

    run(kind, main)


@every_store
def test_limiters_that_share_a_limit(kind: Any) -> None:
    async def main(clock: ManualClock, store: Any) -> None:
        high = AsyncLimiter("1/second fixed-window", store=store)
        low = AsyncLimiter("1/second fixed-window", "1000/second", store=store)
        assert await high.hit("k")
        served: list[str] = []

        async def work(limiter: AsyncLimiter, name: str, cost: int, priority: int) -> None:
            try:
                await limiter.wait("k", cost, priority=priority)
            except NeverFits:
                name += " never"
            served.append(name)

        given = [
            (low, "low", 1, 0),
            (high, "high", 1, 5),
            (high, "high", 1, 5),
            (low, "much", 2, 0),
        ]
        tasks = []
        for each in given:
            tasks.append(asyncio.create_task(work(*each)))
            await settled()
        await step_through(clock, tasks)
        assert [name for name in served if name != "much never"] == ["high", "high", "low"]
        assert "much never" in served
        assert clock.now() == START + 3

    run(kind, main)


@every_store
def test_lines_of_many_keys_share_one_rate(kind: Any) -> None:
    """Everybody has a line of his own, and one limit is everybody's."""

    async def main(clock: ManualClock, store: Any) -> None:
        gate = AsyncGate(
            rules(
                rule("user", "1000/second", key="user"),
                *three("5/second fixed-window"),
            ),
            store,
        )
        for _ in range(5):
            assert await gate.check(Facts())
        callers = Callers(gate)
        for number in range(20):
            await callers.come(f"batch{number}", user=f"b{number}")
        for number in range(20):
            await callers.come(f"shop{number}", user=f"s{number}")
        await step_through(clock, callers.tasks)
        kinds = [name.rstrip("0123456789") for name in callers.served]
        assert kinds == ["shop"] * 20 + ["batch"] * 20
        assert [name for name in callers.served if "shop" in name] == [
            f"shop{number}" for number in range(20)
        ]  # and first come, first served
        assert nothing_left(gate)

    run(kind, main)


@every_store
def test_lines_that_share_in_a_circle_all_move_on(kind: Any) -> None:
    async def main(clock: ManualClock, store: Any) -> None:
        pairs = {"a": ("x", "y"), "b": ("y", "z"), "c": ("z", "x")}
        shared = [
            rule(
                name,
                "2/second fixed-window",
                match=Match(origins=tuple(who for who, both in pairs.items() if name in both)),
                wait=600.0,
            )
            for name in "xyz"
        ]
        own = [of(who, "1000/second", priority=level) for level, who in enumerate(pairs)]
        gate = AsyncGate(rules(*own, *shared), store)
        callers = Callers(gate)
        for number in range(10):
            await callers.come(*(f"{who}{number}" for who in pairs))
        await step_through(clock, callers.tasks)
        assert sorted(callers.served) == sorted(f"{who}{n}" for who in pairs for n in range(10))
        assert nothing_left(gate)

    run(kind, main)


@every_store
def test_a_newcomer_does_not_overtake(kind: Any) -> None:
    """The window is open again, and those who wait have not heard of it yet."""

    async def main(clock: ManualClock, store: Any) -> None:
        gate = AsyncGate(rules(*three("1/second fixed-window")), store)
        assert await gate.check(Facts())
        callers = Callers(gate)
        await callers.come("shop1")
        lines = gate._desk._lines
        asks = [ask for line in lines._lines.values() for each in line.values()
                for ask in each.queue[0][2].asks]  # fmt: skip
        assert lines.outranked(asks, -5)
        assert not lines.outranked(asks, 5)
        await step_through(clock, callers.tasks)
        assert not lines.outranked(asks, -5)

    run(kind, main)


@every_store
@pytest.mark.parametrize("seed", range(4))
def test_all_come_to_an_end(seed: int, kind: Any) -> None:
    """Any limits, any priorities, and some give up: nobody is forgotten, nothing stays taken."""

    async def main(clock: ManualClock, store: Any) -> None:
        dice = random.Random(seed)
        texts = ["2/second gcra", "1/second fixed-window", "2 concurrent", "3/second sliding-log"]
        shared = [
            rule(name, text, match=Match(attributes={name: ("*",)}), wait=dice.choice([3.0, 90.0]))
            for name, text in zip("wxyz", texts, strict=True)
        ]
        gate = AsyncGate(rules(*shared), store)

        async def work() -> None:
            some = dict.fromkeys(dice.sample("wxyz", dice.randint(1, 3)), "yes")
            verdict = await gate.check(Facts(attributes=some, priority=dice.randint(-1, 2)))
            try:
                await settled()
            finally:
                await verdict.permit.release()

        tasks = []
        for _ in range(60):
            tasks.append(asyncio.create_task(work()))
            if dice.random() < 0.3:
                await settled()
            if dice.random() < 0.2:
                dice.choice(tasks).cancel()
        await step_through(clock, tasks)
        await errands_done()
        await settled()
        assert nothing_left(gate)
        clock.advance(10)
        again = Facts(attributes=dict.fromkeys("wxyz", "yes"))
        assert await asyncio.wait_for(gate.check(again), 60)  # all permits are back

    run(kind, main)


@pytest.mark.parametrize("kind", [MemoryStore, FarStore])
def test_threads_too(kind: Any) -> None:
    clock = ManualClock(START)
    gate = Gate(rules(*three("1/second fixed-window")), kind(clock=clock))
    assert gate.check(Facts())
    served: list[str] = []

    def work(origin: str) -> None:
        assert gate.check(Facts(origin=origin))
        served.append(origin)

    def waiting() -> int:
        lines = [line for found in gate._desk._lines._lines.values() for line in found.values()]
        return sum(len(line.queue) for line in lines)

    threads = [threading.Thread(target=work, args=(who,)) for who in ["batch"] * 3 + ["shop"] * 3]
    for number, thread in enumerate(threads):
        thread.start()
        until(lambda: waiting() == number + 1)  # noqa: B023 # called at once
    ranks = gate._desk._lines._ranks
    until(lambda: any(5 in levels for levels in list(ranks._levels.values())))  # shop has asked
    for number in range(6):
        until(lambda: (clock.next_wakeup() or 1e99) <= clock.now() + 1)  # the next has asked
        clock.advance(1)
        until(lambda: len(served) > number)  # noqa: B023 # called at once
    for thread in threads:
        thread.join(60)
    assert served == ["shop"] * 3 + ["batch"] * 3
    assert nothing_left(gate)
