"""Patience: how a take that may wait is made, by a thread or by a task.

In front of a store that does not block, a line asks for its waiters (`waiting`); in front of
one that does, each asks in its turn (`turns`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .answers import FOREVER, too_large, turned_away
from .callers import TaskCaller, ThreadCaller
from .clock import ticks_of
from .decision import Ask, Decision, joined
from .errors import LimitExceeded, NeverFits
from .flows import run, run_async
from .keys import Key, canonical
from .queues import Queues
from .turns import Turn
from .waiters import AsyncWaiter, ThreadWaiter, Waiter

if TYPE_CHECKING:
    from .front import Front

__all__ = ["take", "take_async"]


def take(front: Front, key: Key, asks: list[Ask], timeout: float | None, priority: int) -> Decision:
    """Take, blocking this thread until it can be."""
    _check_priority(priority)
    if front.store.blocking:
        turn = _turn(front, ThreadCaller, key, asks, timeout, priority)
        try:
            return _verdict(front, run(turn.steps(), front.store), key)
        finally:
            turn.over()
    started = _start(
        front, lambda deadline: ThreadWaiter(asks, deadline, priority), key, asks, timeout, priority
    )
    if isinstance(started, ThreadWaiter):
        try:
            started.block(front.store.clock)
        except BaseException:
            front._lines.leave(started)
            raise
    return _done(front, started, key)


async def take_async(
    front: Front, key: Key, asks: list[Ask], timeout: float | None, priority: int
) -> Decision:
    """Take, letting other tasks run until it can be."""
    import asyncio

    _check_priority(priority)
    loop, clock = asyncio.get_running_loop(), front.store.clock
    if front.store.blocking:
        turn = _turn(
            front, lambda store, kick: TaskCaller(store, kick, loop), key, asks, timeout, priority
        )
        try:
            return _verdict(front, await run_async(turn.steps(), front.store), key)
        finally:
            turn.over()
    started = _start(
        front, lambda deadline: AsyncWaiter(loop, asks, deadline, priority, clock),
        key, asks, timeout, priority,
    )  # fmt: skip
    if isinstance(started, AsyncWaiter):
        try:
            await started.future
        except BaseException:
            front._lines.leave(started)
            raise
    return _done(front, started, key)


def _turn(
    front: Front, caller: Any, key: Key, asks: list[Ask], timeout: float | None, priority: int
) -> Turn:
    timeout = _timeout(timeout)
    most = None if timeout is None else ticks_of(timeout, "timeout")
    form = canonical(key)
    lines = front._lines
    assert isinstance(lines, Queues)
    who = caller(front.store, lambda: lines.kick(front.name, form))
    return Turn(lines, (front.name, form, front._ids), asks, most, priority, who)


def _start(
    front: Front,
    make: Callable[[int | None], Waiter],
    key: Key,
    asks: list[Ask],
    timeout: float | None,
    priority: int,
) -> Decision | Waiter:
    """Take at once if nobody waits who goes first; otherwise a waiter in its line."""
    timeout, store, lines = _timeout(timeout), front.store, front._lines
    name = (front.name, canonical(key), front._ids)
    queues = any(limit.queues for limit in run(front.getting(key), store))
    if (
        queues
        or timeout == 0
        or asks[0].cost == 0
        or not (lines.waiting(name) or lines.outranked(asks, priority))
    ):
        if queues:  # a queue limit is its own line: everybody asks at once
            most = FOREVER if timeout is None else ticks_of(timeout, "timeout")
            asks = [ask._replace(max_wait=most) for ask in asks]
        decision = joined(tuple(store.decide(asks)))
        if decision.allowed and decision.delay:
            waiter = make(None)
            lines.sleep(waiter, decision)
            return waiter
        if decision.allowed or timeout == 0 or too_large(decision) or turned_away(decision):
            return decision
    deadline = None
    if timeout is not None:
        deadline = store.clock.micros() + ticks_of(timeout, "timeout")
    waiter = make(deadline)
    lines.join(name, waiter)
    return waiter


def _done(front: Front, done: Decision | Waiter, key: Key) -> Decision:
    """What came of it: the decision, or an exception."""
    if isinstance(done, Waiter):
        if done.error is not None:
            raise done.error
        assert done.decision is not None
        done = done.decision
    return _verdict(front, done, key)


def _verdict(front: Front, decision: Decision, key: Key) -> Decision:
    decision = front.let_some_pass(decision)
    if decision.allowed:
        return decision
    raise (NeverFits if too_large(decision) else LimitExceeded)(decision, key)


def _check_priority(priority: int) -> None:
    if isinstance(priority, bool) or not isinstance(priority, int):
        raise TypeError(f"priority is a whole number, not {priority!r}")


def _timeout(timeout: float | None) -> float | None:
    if timeout is None or timeout == math.inf:
        return None
    if isinstance(timeout, bool) or not isinstance(timeout, int | float):
        raise TypeError(f"timeout is a number of seconds or None, not {timeout!r}")
    if not timeout >= 0:
        raise ValueError(f"timeout is at least 0 seconds, not {timeout!r}")
    return timeout
