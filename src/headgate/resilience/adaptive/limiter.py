"""The limiter: lets in as many calls as its estimator says, and tells it how they went."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from ...clock import Clock, ticks_of
from ..deadlines import SYSTEM, time_left
from ..entrance import Entrance, Permit, Wants
from ..forking import begin_anew
from ..notices import Listener, tell
from ..overload import Refusal
from ..waiters import TaskWaiter, ThreadWaiter
from .aimd import AIMD
from .deadline import Forecast
from .estimator import Estimator, checked
from .gradient2 import Gradient2
from .hall import Hall, Visit
from .line import Line, Place
from .partitions import Partitions
from .samples import Samples
from .vegas import Vegas

__all__ = ["AdaptiveLimiter"]

LONG = 1e9
"""So many seconds are for ever."""
W = TypeVar("W", ThreadWaiter, TaskWaiter)

ESTIMATORS: dict[str, Callable[[], Estimator]] = {
    "aimd": AIMD, "vegas": Vegas, "gradient2": Gradient2,
}  # fmt: skip


class AdaptiveLimiter(Entrance):
    """Lets in as many calls at once as the estimator finds right, and no more.

    estimator   "gradient2", "vegas", "aimd", or one of your own settings
    partitions  guaranteed shares by name, {"checkout": 0.5}; what is not used is lent
    lend        False: what is guaranteed stays free for whom it is guaranteed to
    priorities  which part of the limit a priority may fill, {-1: 0.8, 0: 1.0}
    queue       how many calls may wait when it is full
    timeout     how long they wait, in seconds, unless the call says
    window      calls are put together for so long, in seconds, before the estimator hears of them
    samples     and at least so many of them
    foresee     a call with a deadline is let in if this share of calls would finish in time
    drops       exceptions which mean that a call was given up; others say nothing about load
    listeners   called with each Notice: changes of the limit, refusals, drops
    """

    def __init__(
        self,
        estimator: str | Estimator = "gradient2",
        *,
        name: str = "",
        partitions: Mapping[str, float] | None = None,
        lend: bool = True,
        priorities: Mapping[int, float] | None = None,
        queue: int = 0,
        timeout: float = 1.0,
        window: float = 0.1,
        samples: int = 10,
        foresee: float = 0.9,
        drops: tuple[type[BaseException], ...] = (TimeoutError,),
        listeners: Iterable[Listener] = (),
        clock: Clock | None = None,
    ) -> None:
        if isinstance(estimator, str):
            if estimator not in ESTIMATORS:
                raise ValueError(f"an estimator is one of {', '.join(ESTIMATORS)}: {estimator!r}")
            estimator = ESTIMATORS[estimator]()
        elif not isinstance(estimator, Estimator):
            raise TypeError(f"an estimator has a limit and hears samples, not {estimator!r}")
        self.estimator: Estimator = estimator
        self.name = name
        self.listeners: list[Listener] = list(listeners)
        self._drops = drops
        self._timeout = _patience(timeout)
        self._clock = clock or SYSTEM
        self._lock = threading.Lock()
        if (width := ticks_of(window, "window")) < 0:
            raise ValueError(f"window is at least 0 seconds, not {window!r}")
        self._hall = Hall(
            self, estimator, Partitions(partitions, lend, priorities),
            Line(checked("queue", queue, 0)), Samples(width, checked("samples", samples)),
            Forecast(foresee),
        )  # fmt: skip
        self._lost = self._hall.lost
        begin_anew(self)

    # -- asking

    def admit(
        self,
        partition: str = "",
        priority: int = 0,
        deadline: float | None = None,
    ) -> Permit | Refusal:
        """A permit if there is a seat now, else a refusal; never waits, never raises."""
        found = self._ask(Wants(partition, priority, 0, deadline), None)
        assert not isinstance(found, Place)  # who does not wait is answered at once
        return found

    @property
    def limit(self) -> int:
        """How many calls may be under way now."""
        return self._hall.seats.limit

    @property
    def in_flight(self) -> int:
        """How many are."""
        return self._hall.seats.total

    @property
    def waiting(self) -> int:
        """How many stand in line."""
        return len(self._hall.line)

    def snapshot(self) -> dict[str, Any]:
        """What there is to see: the limit, who is inside, what was counted, times in seconds."""
        hall, now = self._hall, self._clock.micros()
        with self._lock:
            hall.reclaim()
            seats = hall.seats
            found: dict[str, Any] = {
                "name": self.name, "limit": seats.limit, "in_flight": seats.total,
                "waiting": len(hall.line), **hall.counts,
                "partitions": {
                    name: {"in_flight": seats.busy[name], "guaranteed": own}
                    for name, own in seats.seats.items()
                },
            }  # fmt: skip
        for word, part in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99)):
            value = hall.forecast.rolling.percentile(part, now)
            found[word] = None if value is None else value / 1_000_000
        return found

    # -- letting in

    def _take(self, wants: Wants) -> Permit:
        found = self._ask(wants, ThreadWaiter)
        if isinstance(found, Place):
            try:
                found.waiter.block(self._clock, found.until)
            except BaseException:
                self._abandon(found)
                raise
            found = self._answer(found)
        return _permit(found)

    async def _take_async(self, wants: Wants) -> Permit:
        import asyncio

        loop = asyncio.get_running_loop()
        found = self._ask(wants, lambda: TaskWaiter(loop))
        if isinstance(found, Place):
            try:
                await found.waiter.block(self._clock, found.until)
            except BaseException:
                self._abandon(found)
                raise
            found = self._answer(found)
        return _permit(found)

    def _ask(self, wants: Wants, waiter: Callable[[], W] | None) -> Permit | Refusal | Place[W]:
        """An answer at once, or a place in the line."""
        left, ambient = wants.deadline, time_left()
        if ambient is not None and (left is None or ambient < left):
            left = ambient
        patience = self._timeout
        if wants.timeout is not None:
            patience = _patience(wants.timeout) if wants.timeout else 0
        hall, now = self._hall, self._clock.micros()
        partition = hall.seats.known(wants.partition)
        visit = Visit(partition, wants.priority, left, waiter is not None and patience > 0)
        with self._lock:
            found: Permit | Refusal | Place[W] | None = hall.admit(visit, now)
            if found is None:
                assert waiter is not None
                due = None if left is None else now + round(min(left, LONG) * 1_000_000)
                until = now + patience if due is None else min(due, now + patience)
                found = Place(waiter(), partition, wants.priority, until, due)
                hall.join(found)
        if hall.refused:
            self._tell_refused(now)
        return found

    def _answer(self, place: Place[Any]) -> Permit | Refusal:
        """What came of waiting."""
        with self._lock:
            found: Permit | Refusal | None = place.waiter.answer
            if found is not None:
                return found
            refusal = self._hall.give_up(place)
        self._tell_refused(self._clock.micros())
        return refusal

    def _abandon(self, place: Place[Any]) -> None:
        """The waiting ended by an exception: leave the line, give back what came meanwhile."""
        with self._lock:
            self._hall.line.leave(place)
            found = place.waiter.answer
        if isinstance(found, Permit):
            found.release("ignored")

    # -- letting go

    def _judge(self, error: BaseException) -> str:
        return "dropped" if isinstance(error, self._drops) else "ignored"

    def _give(self, permit: Permit, outcome: str) -> bool:
        hall, now = self._hall, self._clock.micros()
        with self._lock:
            before = hall.seats.limit
            done = hall.record(permit, outcome, now)
            after = hall.seats.limit
        if before != after:
            tell(self.listeners, "adaptive.limit", self.name, now, before=before, after=after)
        if done and outcome == "dropped":
            took = max(0, now - permit.started) / 1_000_000
            tell(
                self.listeners,
                "adaptive.dropped",
                self.name,
                now,
                took=took,
                partition=permit.partition,
            )
        if hall.refused:
            self._tell_refused(now)
        return done

    def _tell_refused(self, now: int) -> None:
        with self._lock:
            refused, self._hall.refused = self._hall.refused, []
        for refusal, partition, priority in refused:
            tell(
                self.listeners, "adaptive.refused", self.name, now, reason=refusal.reason,
                partition=partition, priority=priority, retry_after=refusal.retry_after,
            )  # fmt: skip

    def after_fork(self) -> None:
        """In a child: the calls and the lines of the parent are not there."""
        self._lock = threading.Lock()
        self._hall.leave_parent()

    def __repr__(self) -> str:
        return f"<AdaptiveLimiter {self.name!r}: {self.in_flight} of {self.limit}>"


def _permit(found: Permit | Refusal) -> Permit:
    if isinstance(found, Permit):
        return found
    raise found.error()


def _patience(timeout: float) -> int:
    """A time to wait in microseconds, or an error that says what it must be."""
    if timeout == float("inf"):
        timeout = LONG
    micros = ticks_of(timeout, "timeout")
    if micros < 0:
        raise ValueError(f"timeout is at least 0 seconds, not {timeout!r}")
    return micros
