"""The guard: turns calls away while the machine has more to do than it can."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any, Self

from ...clock import Clock, ticks_of
from ..adaptive.partitions import Ladder
from ..deadlines import SYSTEM
from ..entrance import Entrance, Permit, Wants
from ..forking import begin_anew
from ..notices import Listener, tell
from ..overload import Refusal
from ..rolling import Rolling
from .pulse import LoopPulse, start_thread
from .signals import Machine, Reading, Source

__all__ = ["LADDER", "SystemGuard"]

LADDER = {-2: 0.8, -1: 0.9, 0: 1.0, 1: 1.1}
"""By priority: at which part of a bound it is turned away."""
SLICE = 500_000
SATURATES = frozenset(("cpu", "load", "lag"))
"""What may be high although all goes well; then it counts only if there is too much under way."""


class SystemGuard(Entrance):
    """Lets calls in while the machine is well. Bounds that are not given are not looked at.

    cpu         the busy share of the CPUs, such as 0.9
    load        the load average for each CPU, such as 1.5
    memory      the used share of memory, such as 0.95
    lag         seconds that the event loop is behind, such as 0.1; see `watch_loop`
    in_flight   calls under way through this guard
    response    seconds that they take on average
    priorities  at which part of a bound a priority is turned away, {-1: 0.9, 0: 1.0, 1: 1.1}
    calm        elastic limits have all their room below this part of the bounds
    every       how often the machine is looked at, in seconds
    source      where readings come from
    listeners   called with each Notice: refusals, and when strain begins and ends
    """

    def __init__(
        self,
        *,
        cpu: float | None = None,
        load: float | None = None,
        memory: float | None = None,
        lag: float | None = None,
        in_flight: int | None = None,
        response: float | None = None,
        name: str = "system",
        priorities: Mapping[int, float] | None = None,
        calm: float = 0.5,
        every: float = 1.0,
        source: Source | None = None,
        listeners: Iterable[Listener] = (),
        clock: Clock | None = None,
    ) -> None:
        given = {
            "in_flight": in_flight, "response": response, "memory": memory, "cpu": cpu,
            "load": load, "lag": lag,
        }  # fmt: skip
        self.bounds = {word: _bound(word, value) for word, value in given.items() if value}
        for word, value in given.items():
            if value is not None and word not in self.bounds:
                raise ValueError(f"{word} is a bound above 0, or None to leave it out: {value!r}")
        if not 0 <= calm < 1:
            raise ValueError(f"calm is at least 0 and below 1, not {calm!r}")
        self.name = name
        self.listeners: list[Listener] = list(listeners)
        self._ladder = Ladder(LADDER if priorities is None else priorities, most=100.0)
        self._calm = calm
        self._every = ticks_of(every, "every")
        if self._every < 1000:
            raise ValueError(f"every is at least a millisecond, not {every!r}")
        self._clock = clock or SYSTEM
        self._source: Source = source or Machine()
        self._lock = threading.Lock()
        self._looking = threading.Lock()
        self._reading = Reading()
        self._next = 0
        self._total = 0
        self._birth = 0
        self._lost: deque[tuple[int, str]] = deque()
        self._rolling = Rolling(10.0, 10_000_000 // SLICE)
        self._counts = {"admitted": 0, "refused": 0}
        self._strained = False
        self._pulse: LoopPulse | None = None
        self._thread: threading.Event | None = None
        self._threaded = False
        begin_anew(self)

    # -- looking

    def start(self) -> Self:
        """Look at the machine in a thread of our own; without it, calls do it in passing."""
        self._threaded = True
        with self._lock:  # or the thread might look first, find none noted, and start another
            if self._thread is None:
                self._thread = start_thread(self, SystemGuard.look, self._every / 1_000_000)
        return self

    def watch_loop(self, every: float = 0.1) -> Self:
        """Watch how late the event loop is that runs now; for `lag`."""
        self._stop_pulse()
        self._pulse = LoopPulse(every)
        self._pulse.start()
        return self

    def close(self) -> None:
        """End the thread and the task; the guard can be used and started again."""
        self._threaded = False
        if self._thread is not None:
            self._thread.set()
            self._thread = None
        self._stop_pulse()

    def _stop_pulse(self) -> None:
        if self._pulse is not None:
            self._pulse.stop()
            self._pulse = None

    def look(self) -> None:
        """Look at the machine now."""
        if not self._looking.acquire(blocking=False):  # somebody does
            return
        try:
            if self._threaded and self._thread is None:  # that of a parent process
                self.start()
            # With a thread, calls look only if it does not come to it.
            self._next = self._clock.micros() + self._every * (2 if self._threaded else 1)
            self._reading = self._source.read()
        except Exception:  # a broken reading turns nobody away
            self._reading = Reading()
        finally:
            self._looking.release()
        self._strain()

    def _strain(self) -> None:
        """Tell when the machine comes under strain, and when it has recovered."""
        pressure, now = self.pressure(), self._clock.micros()
        if self._strained != (pressure >= 1):
            self._strained = not self._strained
            kind = "system.strained" if self._strained else "system.relieved"
            tell(self.listeners, kind, self.name, now, pressure=pressure, **self.values())

    def values(self) -> dict[str, float | None]:
        """What is known now, by the words of the bounds; None: unknown."""
        if self._clock.micros() >= self._next:
            self.look()
        return self._values()

    def _values(self) -> dict[str, float | None]:
        reading, pulse = self._reading, self._pulse
        mean = self._rolling.mean(self._clock.micros()) if "response" in self.bounds else None
        return {
            "cpu": reading.cpu, "load": reading.load, "memory": reading.memory,
            "lag": None if pulse is None else pulse.lag(), "in_flight": float(self._total),
            "response": None if mean is None else mean / 1_000_000,
        }  # fmt: skip

    def pressure(self) -> float:
        """The largest value beside its bound: from 1 on calls may be turned away."""
        values, found = self._values(), 0.0
        for word, bound in self.bounds.items():
            value = values[word]
            if value is not None:
                found = max(found, value / bound)
        return found

    def room(self) -> float:
        """How much room elastic limits have, from 0 to 1: `Limiter(..., room=guard.room)`."""
        if self._clock.micros() >= self._next:
            self.look()
        return max(0.0, min(1.0, (1 - self.pressure()) / (1 - self._calm)))

    def capacity(self) -> float | None:
        """How many calls at once the machine has been seen to manage: the most that ended in any
        half second of the last ten, by their least mean time in one; None: not seen yet."""
        found = self._rolling.pace(self._clock.micros())
        return None if found is None else found[0] * found[1] / SLICE

    def saturated(self) -> bool:
        """Whether more calls are under way than that: the rest of them only wait."""
        if self._total <= 1:
            return False
        capacity = self.capacity()
        return capacity is not None and self._total > capacity

    # -- letting in

    def check(self, priority: int = 0) -> Refusal | None:
        """Why a call would be turned away now; None if it would be let in."""
        values, part = self.values(), self._ladder.part(priority)
        for word, bound in self.bounds.items():
            value = values[word]
            if value is None:
                continue
            if word == "in_flight":
                over = value + 1 > max(1.0, bound * part)
            else:
                # Somebody has to find out whether it is over: one call is always let in.
                over = value > bound * part and self._total > 0
            if over and (word not in SATURATES or self.saturated()):
                return Refusal(word, self.name, value, bound, self._every / 1_000_000)
        return None

    def admit(self, priority: int = 0) -> Permit | Refusal:
        """A permit, or a refusal; never waits, never raises."""
        now = self._clock.micros()
        if self._lost:
            self._reclaim()
        refusal = self.check(priority)
        bound = self.bounds.get("in_flight")
        with self._lock:
            if refusal is None and bound is not None:  # again, as others came in meanwhile
                most = max(1.0, bound * self._ladder.part(priority))
                if self._total + 1 > most:
                    wait = self._every / 1_000_000
                    refusal = Refusal("in_flight", self.name, self._total, bound, wait)
            if refusal is None:
                self._total += 1
                self._counts["admitted"] += 1
                return Permit(self, "", now, self._total, self._birth)
            self._counts["refused"] += 1
        if self.listeners:
            tell(
                self.listeners, "system.refused", self.name, now, reason=refusal.reason,
                value=refusal.value, bound=refusal.bound, priority=priority,
            )  # fmt: skip
        return refusal

    def _take(self, wants: Wants) -> Permit:
        found = self.admit(wants.priority)
        if isinstance(found, Permit):
            return found
        raise found.error()

    async def _take_async(self, wants: Wants) -> Permit:
        return self._take(wants)

    def _judge(self, error: BaseException) -> str:
        return "ignored"

    def _give(self, permit: Permit, outcome: str) -> bool:
        now = self._clock.micros()
        with self._lock:
            ours = permit._open and permit._birth == self._birth
            permit._open = False
            if not ours:
                return False
            self._total -= 1
        if outcome == "success":
            self._rolling.add(max(0, now - permit.started), now)
        return True

    def _reclaim(self) -> None:
        """Count permits no more that were thrown away unreleased."""
        with self._lock:
            while self._lost:
                if self._lost.popleft()[0] == self._birth:
                    self._total -= 1

    def snapshot(self) -> dict[str, Any]:
        """What there is to see: values, bounds, pressure, room, what was counted."""
        values = self.values()
        return {
            "name": self.name, **values, "bounds": dict(self.bounds), "room": self.room(),
            "pressure": self.pressure(), "saturated": self.saturated(), **self._counts,
        }  # fmt: skip

    def after_fork(self) -> None:
        """In a child: the calls, the thread and the task of the parent are not there."""
        self._lock = threading.Lock()
        self._looking = threading.Lock()
        self._birth += 1
        self._total = 0
        self._lost.clear()
        self._rolling.clear()
        self._pulse = self._thread = None
        self._next = 0

    def __repr__(self) -> str:
        bounds = ", ".join(f"{word} {bound:g}" for word, bound in self.bounds.items())
        return f"<SystemGuard {self.name!r}: {bounds or 'no bounds'}>"


def _bound(word: str, value: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{word} is a number, not {value!r}")
    if not value > 0 or value == float("inf"):
        raise ValueError(f"{word} is a bound above 0, not {value!r}")
    if word in ("cpu", "memory") and value > 1:
        raise ValueError(f"{word} is a share, at most 1 (0.9 for 90 %), not {value!r}")
    return float(value)
