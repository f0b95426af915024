"""Pool: calls in threads of its own, so many at once."""

from __future__ import annotations

import asyncio
import gc
import os
import threading

import pytest
from bulkhead_tools import thread, until

from headgate.resilience.deadlines import deadline_in, time_left
from headgate.resilience.errors import BulkheadFull, TimeLimitExceeded
from headgate.resilience.pools import Pool


def test_a_pool_calls_in_its_own_threads_with_the_callers_context() -> None:
    with Pool(1, name="db") as pool, deadline_in(60):
        name, left = pool.call(lambda: (threading.current_thread().name, time_left()))
        assert name == "headgate-db"
        assert left is not None
        with pytest.raises(KeyError):
            pool.call({}.__getitem__, "x")
        assert pool(lambda x: x + 1)(1) == 2


def test_a_hanging_call_is_abandoned_and_counted() -> None:
    stop = threading.Event()
    with Pool(1, queue=1, timeout=0.02, name="slow") as pool:
        with pytest.raises(TimeLimitExceeded, match=r"slow: no result.*runs on in its thread"):
            pool.call(stop.wait, 10)
        assert (pool.in_flight, pool.abandoned) == (1, 1)
        began: list[int] = []
        with pytest.raises(TimeLimitExceeded, match="it was not begun"):
            pool.call(began.append, 1)
        assert pool.waiting == 0
        with thread(pool.call, lambda: 5) as came:
            until(lambda: pool.waiting == 1)
            with pytest.raises(BulkheadFull, match=r"1 of them nobody waits for.*1 wait already"):
                pool.call(print)
            stop.set()
        assert came == [5]
        until(lambda: pool.in_flight == 0)
        assert pool.abandoned == 0
        assert began == []


def test_a_pool_for_tasks() -> None:
    stop = threading.Event()

    async def main() -> None:
        with Pool(2) as pool:
            assert await pool.call_async(lambda x: x, 3) == 3
            task = asyncio.create_task(pool.call_async(stop.wait, 10))
            while pool.in_flight == 0:
                await asyncio.sleep(0.001)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            assert pool.abandoned == 1
            assert await pool.call_async(lambda: "free") == "free"
            stop.set()
            while pool.in_flight:
                await asyncio.sleep(0.001)
            assert pool.abandoned == 0

            async def coloured() -> None: ...

            with pytest.raises(TypeError, match="coloured is async"):
                pool(coloured)

    asyncio.run(main())


def test_threads_end_with_their_pool() -> None:
    pool = Pool(3, name="short-lived")
    pool.call(print, end="")
    del pool
    gc.collect()
    until(lambda: not [t for t in threading.enumerate() if t.name == "headgate-short-lived"])


def test_a_closed_pool_says_so() -> None:
    pool = Pool(1)
    pool.close()
    with pytest.raises(RuntimeError, match="is closed"):
        pool.call(print)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_pool_works_in_a_child() -> None:
    with Pool(1) as pool:
        pool.call(print, end="")
        child = os.fork()
        if not child:
            os._exit(pool.call(lambda: 0))
        assert os.waitpid(child, 0)[1] == 0
