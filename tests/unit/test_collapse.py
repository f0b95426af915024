"""Collapse: calls with the same arguments at the same time become one."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest

from headgate.resilience.collapse import Collapse
from headgate.resilience.deadlines import deadline_in
from headgate.resilience.errors import TimeLimitExceeded


def until(true: Any) -> None:
    end = time.monotonic() + 60
    while not true():
        assert time.monotonic() < end
        time.sleep(0.001)


class Slow:
    """A call that ends when it is told to."""

    def __init__(self, came: Any = "fine") -> None:
        self.came = came
        self.calls = 0
        self.gate = threading.Event()

    def __call__(self, *args: Any) -> Any:
        self.calls += 1
        assert self.gate.wait(60)
        if isinstance(self.came, BaseException):
            raise self.came
        return self.came


def crowd(collapse: Collapse, slow: Slow, count: int, *args: Any) -> list[Any]:
    """What many threads get that call at the same time."""
    came: list[Any] = []

    def run() -> None:
        try:
            came.append(collapse.call(slow, *args))
        except Exception as error:
            came.append(error)

    threads = [threading.Thread(target=run, daemon=True) for _ in range(count)]
    for each in threads:
        each.start()
    until(lambda: collapse.waiting == count - 1)
    slow.gate.set()
    for each in threads:
        each.join(60)
    return came


def test_many_threads_make_one_call() -> None:
    collapse, slow = Collapse(), Slow()
    assert crowd(collapse, slow, 8, 1) == ["fine"] * 8
    assert slow.calls == 1
    assert collapse.under_way == collapse.waiting == 0
    assert collapse.call(slow, 1) == "fine"
    assert slow.calls == 2  # nothing is kept


def test_an_exception_is_shared() -> None:
    error = KeyError("x")
    collapse, slow = Collapse(), Slow(error)
    came = crowd(collapse, slow, 5)
    assert came == [error] * 5
    assert slow.calls == 1
    depth, trace = 0, error.__traceback__
    while trace is not None:
        depth, trace = depth + 1, trace.tb_next
    assert depth < 15  # it has not grown with everybody who raised it


def test_other_arguments_are_other_calls() -> None:
    collapse = Collapse()
    seen: list[int] = []

    async def call(x: int) -> int:
        seen.append(x)
        await asyncio.sleep(0)
        return x

    async def main() -> None:
        get = collapse(call)
        assert await asyncio.gather(*(get(x) for x in (1, 2, 1, 2, 3))) == [1, 2, 1, 2, 3]

    asyncio.run(main())
    assert seen == [1, 2, 3]


def test_a_key() -> None:
    collapse = Collapse(key=lambda x, trace: x)
    calls = 0

    async def call(x: Any, trace: str) -> str:
        nonlocal calls
        calls += 1
        await asyncio.sleep(0)
        return trace

    async def main() -> None:
        get = collapse(call)
        came = await asyncio.gather(*(get(1, trace=trace) for trace in "ab"))
        assert came == ["a", "a"]

    asyncio.run(main())
    assert calls == 1


def test_a_cancelled_leader_hands_over() -> None:
    collapse = Collapse()
    began: list[str] = []
    gate = asyncio.Event()

    async def main() -> None:
        async def call() -> str:
            name = asyncio.current_task().get_name()  # type: ignore[union-attr] # there is one
            began.append(name)
            await gate.wait()
            return name

        get = collapse(call)
        tasks = [asyncio.create_task(get(), name=name) for name in "abcd"]
        await asyncio.sleep(0)
        tasks[0].cancel()
        tasks[2].cancel()  # a follower: nobody minds
        for _ in range(5):
            await asyncio.sleep(0)
        assert began == ["a", "b"]
        assert collapse.waiting == 1
        gate.set()
        came = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(came[0]), came[1], type(came[2]), came[3]] == [
            asyncio.CancelledError, "b", asyncio.CancelledError, "b",
        ]  # fmt: skip

    asyncio.run(main())
    assert collapse.under_way == 0


def test_a_leader_made_and_cancelled_in_the_same_moment_hands_on() -> None:
    collapse = Collapse()

    async def main() -> None:
        gate = asyncio.Event()

        async def call() -> str:
            await gate.wait()
            return "fine"

        get = collapse(call)
        tasks = [asyncio.create_task(get()) for _ in range(3)]
        await asyncio.sleep(0)
        tasks[0].cancel()
        await asyncio.sleep(0)  # the second is told to lead, and has not run yet
        tasks[1].cancel()
        gate.set()
        came = await asyncio.gather(*tasks, return_exceptions=True)
        assert came[2] == "fine"

    asyncio.run(main())
    assert collapse.under_way == collapse.waiting == 0


def test_all_cancelled_leaves_nothing() -> None:
    collapse = Collapse()

    async def main() -> None:
        get = collapse(asyncio.sleep)
        tasks = [asyncio.create_task(get(10)) for _ in range(5)]
        await asyncio.sleep(0)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(main())
    assert collapse.under_way == collapse.waiting == 0


def test_an_interrupted_thread_hands_over() -> None:
    collapse = Collapse()
    calls: list[int] = []
    gate = threading.Event()

    def call() -> str:
        calls.append(1)
        gate.wait(60)
        if len(calls) == 1:
            raise KeyboardInterrupt
        return "fine"

    came: list[Any] = []

    def run() -> None:
        try:
            came.append(collapse.call(call))
        except KeyboardInterrupt:
            came.append("interrupted")

    threads = [threading.Thread(target=run, daemon=True) for _ in range(3)]
    for each in threads:
        each.start()
    until(lambda: collapse.waiting == 2)
    gate.set()
    for each in threads:
        each.join(60)
    assert sorted(came) == ["fine", "fine", "interrupted"]
    assert len(calls) == 2


def test_threads_and_tasks_together() -> None:
    collapse = Collapse(key=lambda *_: "same")
    slow = Slow()

    async def main() -> None:
        leader = threading.Thread(target=collapse.call, args=(slow,), daemon=True)
        leader.start()
        while not slow.calls:
            await asyncio.sleep(0.001)
        follow: Any = collapse._async(slow)  # it will follow, so only its key counts
        task: asyncio.Task[Any] = asyncio.create_task(follow())
        while collapse.waiting == 0:
            await asyncio.sleep(0.001)
        slow.gate.set()
        assert await task == "fine"
        leader.join(60)

    asyncio.run(main())
    assert slow.calls == 1


def test_a_call_inside_itself_is_simply_made() -> None:
    collapse = Collapse()
    depth = 0

    def call() -> str:
        nonlocal depth
        depth += 1
        return "deep" if depth == 3 else str(get())

    get = collapse(call)
    assert get() == "deep"


def test_a_follower_waits_no_longer_than_its_deadline() -> None:
    collapse, slow = Collapse(), Slow()
    leader = threading.Thread(target=collapse.call, args=(slow,), daemon=True)
    leader.start()
    until(lambda: slow.calls == 1)
    with deadline_in(0.01), pytest.raises(TimeLimitExceeded, match="made by somebody else"):
        collapse.call(slow)
    assert collapse.waiting == 0
    slow.gate.set()
    leader.join(60)
