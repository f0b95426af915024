"""System protection: what is read, who is turned away when, and what ends with its owner."""

from __future__ import annotations

import asyncio

import pytest

from headgate import Facts, Gate, Limiter, ManualClock
from headgate.resilience.entrance import Permit
from headgate.resilience.overload import Overloaded
from headgate.resilience.system import Reading, SystemGuard

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

    @pytest.mark.parametrize(("calls", "seconds", "capacity"), [(5, 0.1, 1.0), (3, 0.4, 2.4)])
    def test_its_numbers(
        self, manual_clock: ManualClock, calls: int, seconds: float, capacity: float
    ) -> None:
        """Refused from the first whole number above calls a second * seconds on."""
        guard = SystemGuard(load=1.0, source=Told(Reading(load=2.0)), clock=manual_clock)
        for _ in range(4):  # so many in each half second, each so long
            permits = taken(guard, calls)
            manual_clock.advance(seconds)
            for permit in permits:
                permit.release()
            manual_clock.advance(0.5 - seconds)
        assert guard.capacity() == pytest.approx(capacity)
        assert len(taken(guard, 20)) == int(capacity) + 1

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
        for _ in range(600):
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
