"""The breaker among many threads and tasks: its bounds hold, and nothing leaks at any point."""

from __future__ import annotations

import asyncio
import contextlib
import linecache
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from headgate import ManualClock
from headgate.resilience.breaker import Breaker, BreakerOpen
from headgate.resilience.breaker.core import Core

THREADS = 64


@pytest.fixture(autouse=True)
def _tiny_switch_interval() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def in_threads(work: Callable[[int], Any], count: int = THREADS) -> list[Any]:
    """What each of many threads found, all of them begun at once."""
    start = threading.Barrier(count)
    found: list[Any] = [None] * count

    def run(number: int) -> None:
        start.wait()
        found[number] = work(number)

    threads = [threading.Thread(target=run, args=(n,)) for n in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def sick(clock: ManualClock, **options: Any) -> Breaker:
    """A breaker whose wait is just over."""
    made = Breaker("db", clock=clock, **{"wait": 5, "probes": 3, "window": 10, **options})
    made.open()
    clock.advance(6)
    return made


@pytest.mark.parametrize("turn", range(10))
def test_half_open_never_exceeds_its_probes(turn: int, manual_clock: ManualClock) -> None:
    found = sick(manual_clock)
    inside, most, lock = 0, 0, threading.Lock()
    let_go = threading.Event()
    done = threading.Barrier(THREADS - 3 + 1)

    def probe() -> None:
        nonlocal inside, most
        with lock:
            inside += 1
            most = max(most, inside)
        let_go.wait(60)
        with lock:
            inside -= 1

    def work(number: int) -> bool:
        if number == THREADS:
            done.wait(60)  # everybody else was refused
            let_go.set()
            return False
        try:
            found.call(probe)
        except BreakerOpen:
            done.wait(60)
            return False
        return True

    passed = in_threads(work, THREADS + 1)
    assert (sum(passed), most) == (3, 3)
    assert found.state == "closed"


def test_probes_that_come_and_go_stay_within_the_bound(manual_clock: ManualClock) -> None:
    found = sick(manual_clock, probes=4)
    inside, most, lock = 0, 0, threading.Lock()

    def cancelled() -> None:
        nonlocal inside, most
        with lock:
            inside += 1
            most = max(most, inside)
        for _ in range(20):
            pass
        with lock:
            inside -= 1
        raise KeyboardInterrupt  # as good as cancelled: its place is free again

    def work(_: int) -> int:
        passed = 0
        for _ in range(50):
            try:
                found.call(cancelled)
            except KeyboardInterrupt:
                passed += 1
            except BreakerOpen:
                pass
        return passed

    passed = sum(in_threads(work))
    seen = found.metrics()
    assert most <= 4
    assert (seen.state, seen.ignored, seen.in_flight) == ("half_open", passed, 0)
    assert seen.refused == THREADS * 50 - passed


@pytest.mark.parametrize("options", [{}, {"slow_after": 100.0}, {"window_seconds": 1000}])
def test_every_call_is_counted_once(options: dict[str, Any]) -> None:
    found = Breaker("db", minimum=10**6, window=10**6, **options)

    def boom() -> None:
        raise OSError

    def work(number: int) -> None:
        for turn in range(150):
            if (number + turn) % 50 == 0:
                with pytest.raises(OSError):
                    found.call(boom)
            else:
                found.call(int)

    in_threads(work)
    seen = found.metrics()
    assert (seen.permitted, seen.failed, seen.in_flight) == (THREADS * 150, THREADS * 3, 0)
    assert (seen.calls, seen.failures) == (THREADS * 150, THREADS * 3)


def test_the_call_that_crosses_the_threshold_trips_it() -> None:
    """However many threads fail at once: it opens, and no failure comes after."""
    for _ in range(20):
        found = Breaker("db", minimum=32, window=64)

        def boom() -> None:
            raise OSError

        def work(_: int, found: Breaker = found) -> bool:
            try:
                found.call(boom)
            except OSError:
                return True
            except BreakerOpen:
                return False
            raise AssertionError

        failed = sum(in_threads(work))
        assert failed >= 32
        assert found.state == "open"
        assert found.metrics().opened == 1


def test_no_lock_is_held_while_the_call_runs(manual_clock: ManualClock) -> None:
    found = Breaker("db", clock=manual_clock)

    def nested(depth: int) -> int:
        assert not found._lock.locked()
        return (
            found.call(nested, depth - 1)
            if depth
            else len(in_threads(lambda _: found.call(int), 4))
        )

    assert found.call(nested, 3) == 4
    found.metrics_only()
    assert found.call(nested, 3) == 4


def test_cancellation_at_every_point_leaks_nothing(manual_clock: ManualClock) -> None:
    found = sick(manual_clock, probes=2)

    @found
    async def probe(steps: int) -> None:
        for _ in range(steps):
            await asyncio.sleep(0)

    async def block(steps: int) -> None:
        async with found:
            for _ in range(steps):
                await asyncio.sleep(0)

    async def main() -> None:
        for kind in (probe, block):
            for steps in range(1, 6):
                for after in range(steps):
                    task = asyncio.create_task(kind(steps))
                    for _ in range(after):
                        await asyncio.sleep(0)
                    task.cancel()
                    await asyncio.wait([task])
                    assert task.cancelled()
                    assert found._machine.probing() == 0
                    assert found.metrics().in_flight == 0
        assert found.state == "half_open"
        await probe(1)
        await block(1)

    asyncio.run(main())
    assert found.state == "closed"


def test_an_exception_from_anywhere_leaks_nothing(manual_clock: ManualClock) -> None:
    """An exception is thrown into each line of the breaker that runs during a call."""
    if "_native" in Core.__module__:
        pytest.skip("C has no lines")

    def thrower(at: int) -> Callable[..., Any]:
        seen = 0

        def trace(frame: Any, event: str, _: Any) -> Any:
            nonlocal seen
            if "breaker" not in frame.f_code.co_filename or "test_" in frame.f_code.co_filename:
                return None
            line = linecache.getline(frame.f_code.co_filename, frame.f_lineno)
            # Where a lock is given back no signal can come in, only a tracer can.
            if event == "line" and not line.lstrip().startswith("with "):
                seen += 1
                if seen == at:
                    sys.settrace(None)
                    raise KeyboardInterrupt
            return trace

        return trace

    for at in range(1, 120):
        found = sick(manual_clock, probes=1, probe_lease=30)
        sys.settrace(thrower(at))
        try:
            found.call(int)
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(None)
        # Whatever was hit, after the lease a probe passes and the breaker comes back.
        assert not found._lock.locked(), at
        for _ in range(3):
            manual_clock.advance(31)
            with contextlib.suppress(BreakerOpen):  # a lost probe has failed: it waits again
                found.call(int)
        assert found.state == "closed", at
