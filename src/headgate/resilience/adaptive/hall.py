"""Hall: who is inside, who stands in line, and what is learnt from those who leave.

It has no clock and no lock, and makes no call: the limiter gives it the time, and keeps others
out meanwhile.
"""

from __future__ import annotations

from collections import deque
from typing import Any, NamedTuple

from ..entrance import Entrance, Permit
from ..overload import Refusal
from .deadline import Forecast
from .estimator import Estimator
from .line import Line, Place
from .partitions import Partitions
from .samples import Samples

__all__ = ["Hall", "Visit"]

COUNTED = ("admitted", "success", "ignored", "dropped", "refused")


class Visit(NamedTuple):
    """Somebody at the door."""

    partition: str
    priority: int
    left: float | None
    """In how many seconds its call must be done; None: nobody said."""
    waits: bool
    """Whether it would stand in line."""


class Hall:
    """The state of a limiter."""

    def __init__(
        self,
        owner: Entrance,
        estimator: Estimator,
        seats: Partitions,
        line: Line,
        samples: Samples,
        forecast: Forecast,
    ) -> None:
        self._owner = owner
        self.estimator = estimator
        self.seats = seats
        self.line = line
        self.samples = samples
        self.forecast = forecast
        self.counts = dict.fromkeys(COUNTED, 0)
        self.birth = 0
        """Which process this is; permits of a parent are not ours."""
        self.lost: deque[tuple[int, str]] = deque()
        """Permits that were thrown away unreleased."""
        self.refused: list[tuple[Refusal, str, int]] = []
        """Refusals that nobody was told of yet, with partition and priority."""
        seats.resize(estimator.limit)

    # -- on the way in

    def admit(self, visit: Visit, now: int) -> Permit | Refusal | None:
        """A permit, a refusal, or None: stand in line."""
        if self.lost:
            self.reclaim()
            self._serve(now)
        seats = self.seats
        if seats.fits(visit.partition, visit.priority):
            refusal = self._too_late(visit.left, 0, now)
            if refusal is None:
                return self._sit(visit.partition, now)
        else:
            ahead = self.line.ahead(visit.priority) + 1
            refusal = self._too_late(visit.left, ahead, now) if visit.waits else None
            if refusal is None:
                retry = self.forecast.turn(ahead, seats.limit, now) / 1_000_000 or None
                name, line = self._owner.name, self.line
                if not visit.waits or not line.most:
                    refusal = Refusal("limit", name, seats.total, seats.limit, retry)
                elif not line.room(visit.priority):
                    refusal = Refusal("line", name, len(line), line.most, retry)
                else:
                    return None
        self._note(refusal, visit.partition, visit.priority)
        return refusal

    def join(self, place: Place[Any]) -> None:
        """Stand in line, if need be in place of somebody less important."""
        pushed = self.line.join(place)
        if pushed is not None:
            self._refuse(pushed, Refusal("pushed", self._owner.name, 0, self.line.most))

    def give_up(self, place: Place[Any]) -> Refusal:
        """The patience of somebody in line has ended."""
        self.line.leave(place)
        refusal = Refusal("timeout", self._owner.name)
        self._note(refusal, place.partition, place.priority)
        return refusal

    def _sit(self, partition: str, now: int) -> Permit:
        self.seats.take(partition)
        self.counts["admitted"] += 1
        return Permit(self._owner, partition, now, self.seats.total, self.birth)

    def _too_late(self, left: float | None, ahead: int, now: int) -> Refusal | None:
        """Whether a call with so much time left has too little, with so many turns before it."""
        if left is None:
            return None
        needs = self.forecast.service(now)
        if ahead:
            needs += self.forecast.turn(ahead, self.seats.limit, now)
        needs /= 1_000_000
        if needs <= left and left > 0:
            return None
        return Refusal("late", self._owner.name, needs, left)

    # -- on the way out

    def record(self, permit: Permit, outcome: str, now: int) -> bool:
        """A call is over; False if that is known, or it was a parent's."""
        ours = permit._open and permit._birth == self.birth
        permit._open = False
        if not ours:
            return False
        self.seats.give(permit.partition)
        self.counts[outcome] += 1
        if outcome != "ignored":
            if outcome == "success":
                self.forecast.add(max(0, now - permit.started), now)
            self._learn(permit, now, outcome == "dropped")
        self.reclaim()
        if len(self.line):
            self._serve(now)
        return True

    def _learn(self, permit: Permit, now: int, dropped: bool) -> None:
        sample = self.samples.add(permit.started, now, permit.in_flight, dropped)
        if sample is None:
            return
        before, after = self.seats.limit, max(1, self.estimator.sample(*sample))
        if after != before:
            self.seats.resize(after)
            if after < before:
                self.samples.fell(now)

    def _serve(self, now: int) -> None:
        """Let those in line sit down as far as there are seats."""
        for place in self.line:
            if not self.seats.fits(place.partition, place.priority):
                if not self.seats.seats:  # without partitions, nobody behind it fits either
                    return
                continue
            self.line.leave(place)
            left = None if place.due is None else (place.due - now) / 1_000_000
            refusal = self._too_late(left, 0, now)
            if refusal is not None:
                self._refuse(place, refusal)
                continue
            permit = self._sit(place.partition, now)
            if not place.waiter.tell(permit):  # its loop was closed over it
                permit._open = False
                self.seats.give(place.partition)
                self.counts["ignored"] += 1

    def reclaim(self) -> None:
        """Take back the seats of permits that were thrown away unreleased."""
        while self.lost:
            birth, partition = self.lost.popleft()
            if birth == self.birth:
                self.seats.give(partition)
                self.counts["ignored"] += 1

    def _refuse(self, place: Place[Any], refusal: Refusal) -> None:
        self._note(refusal, place.partition, place.priority)
        place.waiter.tell(refusal)

    def _note(self, refusal: Refusal, partition: str, priority: int) -> None:
        self.counts["refused"] += 1
        if self._owner.listeners:
            self.refused.append((refusal, partition, priority))

    def leave_parent(self) -> None:
        """In a child: the calls and the line of the parent are not there."""
        self.birth += 1
        self.seats.clear()
        self.line.clear()
        self.forecast.clear()
        self.lost.clear()
        self.refused.clear()
