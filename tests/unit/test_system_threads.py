"""System protection: the thread that looks at the machine, the task that watches its loop."""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import pytest

from headgate.resilience.entrance import Permit
from headgate.resilience.overload import Overloaded
from headgate.resilience.system import LoopPulse, Reading, SystemGuard


class Told:
    """A source of readings that counts how often it is asked."""

    def __init__(self, reading: Reading = Reading(0.1, 0.1, 0.1)) -> None:  # noqa: B008 # a tuple
        self.reading = reading
        self.looks = 0

    def read(self) -> Reading:
        self.looks += 1
        return self.reading


def until(condition: Callable[[], bool]) -> bool:
    end = time.monotonic() + 60
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.002)
    return True


def threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "headgate-system"}


class TestThread:
    def test_looks_and_ends_when_closed(self) -> None:
        told, before = Told(), threads()  # of other tests, perhaps, which are about to end
        guard = SystemGuard(cpu=0.9, source=told, every=0.005).start().start()
        (thread,) = threads() - before
        assert until(lambda: told.looks > 2)
        guard.close()
        thread.join(60)
        assert not thread.is_alive()

    def test_a_thread_that_looks_at_once_starts_no_other(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It may run before whoever started it has noted that."""
        started = []

        def start(owner: SystemGuard, look: Callable[[SystemGuard], object], every: float) -> Any:
            started.append(threading.Thread(target=look, args=(owner,)))
            started[-1].start()
            started[-1].join(0.2)
            return threading.Event()

        monkeypatch.setattr("headgate.resilience.system.guard.start_thread", start)
        guard = SystemGuard(cpu=0.9, source=Told()).start()
        started[0].join(60)
        assert len(started) == 1
        guard.close()

    def test_ends_with_its_owner(self) -> None:
        before = threads()
        guard = SystemGuard(cpu=0.9, source=Told(), every=0.005).start()
        (thread,) = threads() - before
        del guard
        gc.collect()
        thread.join(60)
        assert not thread.is_alive()

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
    def test_a_forked_child_has_its_own(self) -> None:
        told = Told()
        guard = SystemGuard(cpu=0.9, source=told, every=0.005).start()
        with guard, guard._lock:
            child = os.fork()
            if not child:
                fine = guard.values()["in_flight"] == 0 and len(threads()) == 1
                seen = told.looks
                fine = fine and until(lambda: told.looks > seen + 1)
                os._exit(0 if fine else 1)
        assert os.waitpid(child, 0)[1] == 0
        guard.close()

    def test_many_threads_count_exactly(self) -> None:
        guard = SystemGuard(in_flight=4, source=Told())
        most = 0

        def work(_: int) -> None:
            nonlocal most
            for _ in range(500):
                permit = guard.admit()
                if isinstance(permit, Permit):
                    most = max(most, permit.in_flight)
                    permit.release()

        before = sys.getswitchinterval()
        sys.setswitchinterval(1e-6)
        try:
            with ThreadPoolExecutor(8) as pool:
                list(pool.map(work, range(8)))
        finally:
            sys.setswitchinterval(before)
        assert most <= 4
        assert guard.values()["in_flight"] == 0


class TestLoop:
    def test_lag_is_seen(self) -> None:
        async def main() -> None:
            guard = SystemGuard(lag=0.03, source=Told()).watch_loop(0.005)
            with ExitStack() as stack:
                for _ in range(3):
                    stack.enter_context(guard.hold())
                for ended in (0, 2_000_000):  # so there is something to compare with
                    guard._rolling.add(1000, guard._clock.micros() - 2_000_000 + ended)
                time.sleep(0.06)  # somebody blocks the loop
                lag = guard.values()["lag"]
                assert lag is not None
                assert lag > 0.03
                with pytest.raises(Overloaded, match="event loop lags"):
                    guard.call(print)
            guard.close()
            assert guard.values()["lag"] is None

        asyncio.run(main())

    def test_the_task_ends_with_its_owner(self) -> None:
        async def main() -> None:
            def beats() -> int:
                return sum(task.get_name() == "headgate-pulse" for task in asyncio.all_tasks())

            pulse = LoopPulse(60.0)
            pulse.start()
            pulse.start()
            assert beats() == 1
            del pulse
            gc.collect()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert beats() == 0
            guard = SystemGuard(lag=1.0, source=Told()).watch_loop()
            guard.close()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert beats() == 0

        asyncio.run(main())

    def test_a_loop_that_ended_says_nothing(self) -> None:
        guard = SystemGuard(lag=0.001, source=Told())

        async def main() -> None:
            guard.watch_loop()

        asyncio.run(main())
        assert guard.values()["lag"] is None
        guard.close()
