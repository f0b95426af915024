"""Line: calls that wait for a seat, the most important first, then first come, first served."""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator
from typing import Any, Generic, TypeVar

from ..waiters import Waiter

__all__ = ["Line", "Place"]

W_co = TypeVar("W_co", bound=Waiter, covariant=True)


class Place(Generic[W_co]):
    """A place in the line: who waits there, for what, and until when."""

    __slots__ = ("due", "order", "partition", "priority", "until", "waiter")

    def __init__(
        self, waiter: W_co, partition: str, priority: int, until: int, due: int | None
    ) -> None:
        self.waiter = waiter
        self.partition = partition
        self.priority = priority
        self.until = until
        """When its patience ends, in microseconds."""
        self.due = due
        """When its call must be done; None: nobody said."""
        self.order = (0, 0)


class Line:
    """Who waits, in order; the limiter's lock is held."""

    __slots__ = ("_places", "_sequence", "most")

    def __init__(self, most: int) -> None:
        self.most = most
        self._places: list[Place[Any]] = []
        self._sequence = 0

    def __len__(self) -> int:
        return len(self._places)

    def __iter__(self) -> Iterator[Place[Any]]:
        return iter(list(self._places))

    def ahead(self, priority: int) -> int:
        """How many would stand before a newcomer."""
        return sum(place.priority >= priority for place in self._places)

    def room(self, priority: int) -> bool:
        """Whether a newcomer may join, if need be in place of the least important one."""
        places = self._places
        return len(places) < self.most or bool(places and places[-1].priority < priority)

    def join(self, place: Place[Any]) -> Place[Any] | None:
        """Stand in line; returns who has to leave for it."""
        self._sequence += 1
        place.order = (-place.priority, self._sequence)
        insort(self._places, place, key=lambda each: each.order)
        return self._places.pop() if len(self._places) > self.most else None

    def leave(self, place: Place[Any]) -> None:
        """Stand in line no more."""
        if place in self._places:
            self._places.remove(place)

    def clear(self) -> None:
        """Forget everybody."""
        self._places.clear()
