"""Bulkhead: permits that are given back twice, elsewhere, or in a child; hanging workers."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable
from typing import Any

import pytest

from headgate.resilience import AdaptiveLimiter, Bulkhead, BulkheadFull, Pool, TimeLimitExceeded
from headgate.resilience.adaptive import Fixed


def test_a_permit_given_back_twice_is_one() -> None:
    bulkhead = Bulkhead(1)
    room = bulkhead.enter()
    bulkhead.leave(room)
    bulkhead.leave(room)
    with bulkhead, pytest.raises(BulkheadFull):
        bulkhead.enter()
    held = bulkhead.hold("a")
    with held:
        pass
    held.__exit__()
    with bulkhead.hold("a"), pytest.raises(BulkheadFull):
        bulkhead.enter("a")
    assert bulkhead.in_flight == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_block_that_a_child_leaves_gives_it_nothing() -> None:
    """The permit is the parent's; in the child it would be one too many."""
    bulkhead = Bulkhead(1)
    child = -1
    with bulkhead:
        child = os.fork()
    if not child:
        with bulkhead:
            try:
                bulkhead.enter()
            except BulkheadFull:
                os._exit(0)
        os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    assert bulkhead.in_flight == 0


def test_a_key_that_is_no_key() -> None:
    bulkhead = Bulkhead(1, key=lambda items: items)
    with pytest.raises(TypeError, match="unhashable"):
        bulkhead.call(len, [1])
    assert bulkhead.in_flight == 0
    broken = Bulkhead(1, key=lambda items: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        broken.call(len, [1])
    assert broken.in_flight == 0


def test_a_pool_whose_workers_hang_refuses_and_recovers() -> None:
    """Both threads hang: whoever comes is refused at once, until one of them ends by itself."""
    stop = threading.Event()
    pool = Pool(2, queue=1, timeout=0.02)
    for _ in range(3):  # two that hang, one that waits for a thread in vain
        with pytest.raises(TimeLimitExceeded):
            pool.call(stop.wait, 60)
    assert (pool.abandoned, pool.in_flight, pool.waiting) == (2, 2, 0)

    async def tasks() -> list[object]:
        calls = (pool.call_async(len, "abc") for _ in range(5))
        return list(await asyncio.gather(*calls, return_exceptions=True))

    kinds = sorted(type(each).__name__ for each in asyncio.run(tasks()))
    assert kinds == ["BulkheadFull"] * 4 + ["TimeLimitExceeded"]
    stop.set()
    patient = Pool(1)
    while pool.in_flight:
        patient.call(threading.Event().wait, 0.001)
    assert pool.abandoned == 0
    assert Pool.call(pool, len, "abc") == 3
    pool.close()
    patient.close()


def test_an_exit_in_a_worker_is_the_callers() -> None:
    """It must not end the worker: the pool would have one thread less for ever."""
    pool = Pool(1)
    for error in (SystemExit, KeyboardInterrupt, GeneratorExit, asyncio.CancelledError):

        def leave(error: type[BaseException] = error) -> None:
            raise error

        with pytest.raises(error):
            pool.call(leave)
    assert pool.call(len, "ab") == 2
    assert pool.in_flight == 0
    pool.close()


class Interrupt(BaseException):
    """What a handler of a signal raises, as Celery's soft time limits do."""


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="no such signals")
@pytest.mark.parametrize("kind", ["bulkhead", "adaptive", "pool"])
def test_an_interrupted_wait_leaves_nothing_behind(kind: str) -> None:
    """A real signal, in the thread that stands in line; the next one is served."""
    parts: dict[str, Any] = {
        "bulkhead": Bulkhead(1, timeout=None),
        "adaptive": AdaptiveLimiter(Fixed(1), queue=5, timeout=60),
        "pool": Pool(1, queue=5),
    }
    part = parts[kind]
    stop, me = threading.Event(), threading.get_ident()
    holder = threading.Thread(target=part.call, args=(stop.wait, 60), daemon=True)
    holder.start()
    wait_for(lambda: part.in_flight == 1)

    def interrupt() -> None:
        wait_for(lambda: part.waiting == 1)
        signal.pthread_kill(me, signal.SIGUSR1)

    def raised(*_: object) -> None:
        raise Interrupt

    before = signal.signal(signal.SIGUSR1, raised)
    try:
        threading.Thread(target=interrupt, daemon=True).start()
        with pytest.raises(Interrupt):
            part.call(len, "abc")
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert (part.in_flight, part.waiting) == (1, 0)
    stop.set()
    holder.join(60)
    assert part.call(len, "abc") == 3
    wait_for(lambda: part.in_flight == 0)


def wait_for(true: Callable[[], bool]) -> None:
    for _ in range(60_000):
        if true():
            return
        threading.Event().wait(0.001)
    raise AssertionError("it did not happen")
