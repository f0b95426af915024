"""A simulated server: so many workers, a queue in front of them, and clients that never rest.

It runs on a ManualClock, from one ending call to the next, so minutes pass in no time and every
run is the same. With it one can see what a limiter makes of a server whose capacity is known.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from random import Random
from typing import Any

from ...clock import ManualClock

__all__ = ["SimulatedServer"]


class SimulatedServer:
    """`workers` calls at once, each of about `service` seconds; further ones stand in a queue.

    workers  its capacity, which may be changed at any time
    service  seconds of work in a call
    spread   by which share of it calls differ from each other
    """

    def __init__(
        self,
        clock: ManualClock,
        workers: int,
        service: float = 0.05,
        spread: float = 0.2,
        seed: int = 1,
    ) -> None:
        self.clock = clock
        self.workers = workers
        self.service = service
        self.spread = spread
        self.done = 0
        """Calls that have ended."""
        self._random = Random(seed)
        self._queue: deque[Callable[[], object]] = deque()
        self._running: list[tuple[float, int, Callable[[], object]]] = []
        self._sequence = 0

    @property
    def in_flight(self) -> int:
        """Calls in the queue or at work."""
        return len(self._queue) + len(self._running)

    def submit(self, ended: Callable[[], object]) -> None:
        """A call arrives; `ended` is called when it is done."""
        self._queue.append(ended)
        self._begin()

    def _begin(self) -> None:
        while self._queue and len(self._running) < self.workers:
            self._sequence += 1
            work = self.service * self._random.uniform(1 - self.spread, 1 + self.spread)
            entry = (self.clock.now() + work, self._sequence, self._queue.popleft())
            heapq.heappush(self._running, entry)

    def step(self) -> bool:
        """Go on to the end of the next call; False if there is none."""
        if not self._running:
            return False
        at, _, ended = heapq.heappop(self._running)
        self.clock.advance(max(0.0, at - self.clock.now()))
        self.done += 1
        ended()
        self._begin()
        return True

    def run(self, limiter: Any, seconds: float, clients: int = 1000) -> list[int]:
        """Keep `clients` busy for a while, through a limiter; its limit after each call."""
        limits = []
        end = self.clock.now() + seconds
        while self.clock.now() < end:
            while self.in_flight < clients:
                permit = limiter.admit()
                if not permit:
                    break
                self.submit(permit.release)
            if not self.step():
                raise RuntimeError("the limiter lets nobody in, and nobody is inside")
            limits.append(limiter.limit)
        return limits
