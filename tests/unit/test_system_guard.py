"""System protection: what is read, who is turned away when, and what ends with its owner."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from headgate import Facts, Gate, Limiter, ManualClock
from headgate.resilience.entrance import Permit
from headgate.resilience.overload import Overloaded
from headgate.resilience.system import LoopPulse, Machine, Reading, SystemGuard
from headgate.resilience.system.signals import cpus

CALM = Reading(0.1, 0.1, 0.1)


class Told:
    """A source of readings that is told what to say."""

    def __init__(self, reading: Reading = CALM) -> None:
        self.reading = reading
        self.looks = 0

    def read(self) -> Reading:
        self.looks += 1
        return self.reading


def taken(guard: SystemGuard, count: int, priority: int = 0) -> list[Permit]:
    permits = []
    for _ in range(count):
        permit = guard.admit(priority)
        if isinstance(permit, Permit):
            permits.append(permit)
    return permits


def practised(guard: SystemGuard, clock: ManualClock) -> None:
    """Ten at once, 20 ms each, for a second: 500 a second, so ten is what it can."""
    for _ in range(50):
        permits = taken(guard, 10)
        clock.advance(0.02)
        for permit in permits:
            permit.release()


class TestThresholds:
    @pytest.mark.parametrize(
        ("word", "reading"),
        [
            ("cpu", Reading(cpu=0.95)),
            ("load", Reading(load=3.0)),
            ("memory", Reading(memory=0.95)),
        ],
    )
    def test_readings(self, word: str, reading: Reading, manual_clock: ManualClock) -> None:
        told = Told()
        bounds = {"cpu": 0.9, "load": 2.0, "memory": 0.9}
        guard = SystemGuard(source=told, clock=manual_clock, **{word: bounds[word]})  # type: ignore[arg-type] # a bound by name
        practised(guard, manual_clock)
        practised(guard, manual_clock)
        permits = taken(guard, 12)
        assert len(permits) == 12
        told.reading = reading
        manual_clock.advance(1.0)
        refusal = guard.admit()
        assert not refusal
        assert refusal.reason == word  # type: ignore[union-attr] # a refusal
        told.reading = CALM
        manual_clock.advance(1.0)
        assert guard.admit()

    def test_calls_under_way(self, manual_clock: ManualClock) -> None:
        guard = SystemGuard(in_flight=10, source=Told(), clock=manual_clock)
        taken(guard, 20)  # permits that are thrown away come back
        permits = taken(guard, 20)
        assert len(permits) == 10
        permits[0].release()
        permits[0].release()
        assert len(taken(guard, 20)) == 1

    def test_response_time(self, manual_clock: ManualClock) -> None:
        guard = SystemGuard(response=0.5, source=Told(), clock=manual_clock)
        with guard:
            manual_clock.advance(0.6)
        slow = pytest.raises(Overloaded, match=r"0.6 s on average, at most 0.5 s")
        with guard, slow:  # one is let in, to find out whether it is over
            guard.call(print)
        manual_clock.advance(11)  # what was slow is forgotten
        with guard, guard:
            pass

    def test_what_is_unknown_turns_nobody_away(self, manual_clock: ManualClock) -> None:
        guard = SystemGuard(
            cpu=0.1, load=0.1, memory=0.1, lag=0.1, source=Told(Reading()), clock=manual_clock
        )
        assert len(taken(guard, 100)) == 100
        assert guard.room() == 1.0

    def test_a_source_that_breaks_turns_nobody_away(self, manual_clock: ManualClock) -> None:
        class Broken:
            def read(self) -> Reading:
                raise OSError("no such file")

        guard = SystemGuard(memory=0.1, source=Broken(), clock=manual_clock)
        with guard, guard:
            pass

    def test_the_machine_is_looked_at_once_a_second(self, manual_clock: ManualClock) -> None:
        told = Told()
        guard = SystemGuard(cpu=0.9, source=told, clock=manual_clock)
        for _ in range(100):
            with guard:
                manual_clock.advance(0.0301)
        assert told.looks == 3

    @pytest.mark.parametrize(
        "settings",
        [{"cpu": 90}, {"cpu": 0}, {"memory": 1.5}, {"lag": -1}, {"calm": 1}, {"every": 0}],
    )
    def test_settings_are_checked(self, settings: dict[str, float]) -> None:
        with pytest.raises(ValueError, match=next(iter(settings))):
            SystemGuard(**settings)  # type: ignore[arg-type] # on purpose


class TestSaturation:
    """Sentinel's test: more under way than the most that passed, by the least time it took."""

    def test_a_busy_machine_that_keeps_up_turns_nobody_away(
        self, manual_clock: ManualClock
    ) -> None:
        guard = SystemGuard(cpu=0.8, source=Told(Reading(cpu=1.0)), clock=manual_clock)
        practised(guard, manual_clock)
        practised(guard, manual_clock)
        assert guard.capacity() == pytest.approx(10, rel=0.05)
        permits = taken(guard, 100)
        assert 10 <= len(permits) <= 11
        assert guard.saturated()
        permits.pop().release()
        permits.pop().release()
        assert not guard.saturated()
        assert guard.admit()

    def test_one_call_is_always_let_in(self, manual_clock: ManualClock) -> None:
        guard = SystemGuard(cpu=0.1, memory=0.1, clock=manual_clock, source=Told(Reading(1, 9, 1)))
        with guard:
            assert not guard.admit()

    def test_a_machine_that_can_do_more_is_let_do_more(self, manual_clock: ManualClock) -> None:
        """What was seen while there was little to do does not bind for ever."""
        guard = SystemGuard(cpu=0.8, source=Told(Reading(cpu=1.0)), clock=manual_clock)
        most = []
        for _ in range(20):
            with guard:
                manual_clock.advance(0.1)
        for _ in range(400):
            permits = taken(guard, 20)
            most.append(len(permits))
            manual_clock.advance(0.02)
            for permit in permits:
                permit.release()
        assert most[0] <= 2
        assert most[-1] == 20

    def test_without_experience_nobody_is_turned_away(self, manual_clock: ManualClock) -> None:
        guard = SystemGuard(cpu=0.1, source=Told(Reading(cpu=1.0)), clock=manual_clock)
        assert len(taken(guard, 50)) == 50


class TestPriorities:
    def test_low_ones_first(self, manual_clock: ManualClock) -> None:
        told = Told()
        guard = SystemGuard(memory=0.8, source=told, clock=manual_clock)
        found = []
        with guard:
            for memory in (0.6, 0.7, 0.75, 0.81, 0.9):
                told.reading = Reading(memory=memory)
                manual_clock.advance(1.0)
                found.append([bool(guard.admit(priority)) for priority in (-2, -1, 0, 1)])
        assert found == [
            [True, True, True, True],
            [False, True, True, True],
            [False, False, True, True],
            [False, False, False, True],
            [False, False, False, False],
        ]

    def test_calls_under_way(self, manual_clock: ManualClock) -> None:
        guard = SystemGuard(in_flight=10, source=Told(), clock=manual_clock)
        held = [taken(guard, 20, priority) for priority in (-2, -1, 0, 1)]
        assert [len(permits) for permits in held] == [8, 1, 1, 1]

    def test_a_face_for_low_ones(self, manual_clock: ManualClock) -> None:
        told = Told(Reading(memory=0.75))
        guard = SystemGuard(memory=0.8, source=told, clock=manual_clock)

        @guard.of(priority=-1)
        async def report() -> str:
            return "done"

        async def main() -> None:
            assert await report() == "done"
            async with guard:
                with pytest.raises(Overloaded, match=r"memory is full \(75%, at most 80%\)"):
                    await report()

        asyncio.run(main())


class TestRoom:
    def test_from_calm_to_the_bound(self, manual_clock: ManualClock) -> None:
        told = Told()
        guard = SystemGuard(cpu=0.8, memory=0.9, source=told, clock=manual_clock)
        rooms = []
        for cpu in (0.0, 0.4, 0.6, 0.8, 1.0):
            told.reading = Reading(cpu=cpu, memory=0.2)
            manual_clock.advance(1.0)
            rooms.append(round(guard.room(), 3))
        assert rooms == [1.0, 1.0, 0.5, 0.0, 0.0]

    def test_elastic_limits_follow(self, manual_clock: ManualClock) -> None:
        told = Told()
        guard = SystemGuard(cpu=0.8, source=told, clock=manual_clock)
        limiter = Limiter("10/second elastic 50%", room=guard.room, clock=manual_clock)
        passed = []
        for cpu in (0.1, 0.6, 0.9):
            told.reading = Reading(cpu=cpu)
            manual_clock.advance(2.0)
            passed.append(sum(limiter.hit().allowed for _ in range(20)))
        assert passed == [15, 12, 10]

    def test_the_gate_follows(self, manual_clock: ManualClock) -> None:
        told = Told()
        guard = SystemGuard(memory=0.8, source=told, clock=manual_clock)
        rules = '{"version": 1, "rules": [{"name": "a", "limit": "10/second elastic 50%"}]}'
        with Gate(rules, room=guard.room, clock=manual_clock) as gate:
            assert sum(gate.check(Facts()).allowed for _ in range(20)) == 15
            told.reading = Reading(memory=0.9)
            manual_clock.advance(2.0)
            assert sum(gate.check(Facts()).allowed for _ in range(20)) == 10


class TestEvents:
    def test_told(self, manual_clock: ManualClock) -> None:
        told, heard = Told(), []
        guard = SystemGuard(memory=0.8, name="box", source=told, clock=manual_clock)
        guard.listeners.append(lambda notice: heard.append((notice.kind, notice.name)))
        with guard:
            told.reading = Reading(memory=0.9)
            manual_clock.advance(1.0)
            assert not guard.admit()
            told.reading = CALM
            manual_clock.advance(1.0)
            assert guard.admit()
        assert heard == [
            ("system.strained", "box"),
            ("system.refused", "box"),
            ("system.relieved", "box"),
        ]

    def test_snapshot(self, manual_clock: ManualClock) -> None:
        guard = SystemGuard(memory=0.8, source=Told(), clock=manual_clock)
        with guard:
            found = guard.snapshot()
        assert (found["in_flight"], found["memory"], found["room"]) == (1.0, 0.1, 1.0)
        assert (found["admitted"], found["refused"]) == (1, 0)
        assert found["saturated"] is False


class TestMachine:
    @pytest.mark.parametrize("psutil", [True, False])
    def test_reads_something_sensible(self, psutil: bool) -> None:
        machine = Machine(psutil=psutil)
        until = time.monotonic() + 0.02
        while time.monotonic() < until:  # some work
            pass
        reading = machine.read()
        assert reading.cpu is not None
        assert 0 < reading.cpu <= 1
        assert reading.load is None or reading.load >= 0
        assert reading.memory is None or 0 < reading.memory <= 1

    def test_proc(self, tmp_path: Path) -> None:
        stat, memory = tmp_path / "stat", tmp_path / "meminfo"
        stat.write_text("cpu  100 0 100 700 100 0 0 0 0 0\ncpu0 1 1\n")
        memory.write_text("MemTotal: 1000 kB\nMemFree: 100 kB\nMemAvailable: 250 kB\n")
        machine = Machine(psutil=False, proc=tmp_path, group=tmp_path / "none")
        machine._own = (time.monotonic(), time.process_time())
        stat.write_text("cpu  180 0 110 705 105 0 0 0 0 0\ncpu0 1 1\n")
        reading = machine.read()
        assert reading.cpu == pytest.approx(0.9)
        assert reading.memory == 0.75

    def test_a_container(self, tmp_path: Path) -> None:
        (tmp_path / "cpu.max").write_text("50000 100000\n")
        (tmp_path / "memory.max").write_text("1000\n")
        (tmp_path / "memory.current").write_text("990\n")
        assert cpus(tmp_path) == 0.5
        assert Machine(psutil=False, group=tmp_path).read().memory == 0.99
        (tmp_path / "cpu.max").write_text("max 100000\n")
        (tmp_path / "memory.max").write_text("max\n")
        assert cpus(tmp_path) >= 1
        assert Machine(psutil=False, proc=tmp_path, group=tmp_path).read().memory is None

    def test_nothing_to_read(self, tmp_path: Path) -> None:
        machine = Machine(psutil=False, proc=tmp_path, group=tmp_path)
        assert machine.read().memory is None

    def test_without_psutil(self) -> None:
        code = (
            "import sys; sys.modules['psutil'] = None\n"
            "from headgate.resilience.system import SystemGuard\n"
            "guard = SystemGuard(cpu=0.99, memory=0.999, load=1000)\n"
            "with guard: print(guard.snapshot()['memory'] is not None or sys.platform)\n"
        )
        run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert run.returncode == 0, run.stderr


def until(condition: Callable[[], bool]) -> bool:
    end = time.monotonic() + 10
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.002)
    return True


def threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "headgate-system"]


class TestThread:
    def test_looks_and_ends_when_closed(self) -> None:
        told = Told()
        guard = SystemGuard(cpu=0.9, source=told, every=0.005).start().start()
        (thread,) = threads()
        assert until(lambda: told.looks > 2)
        guard.close()
        thread.join(10)
        assert not threads()

    def test_ends_with_its_owner(self) -> None:
        guard = SystemGuard(cpu=0.9, source=Told(), every=0.005).start()
        (thread,) = threads()
        del guard
        gc.collect()
        thread.join(10)
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
