"""Rooms: the permits of a bulkhead, and the line of those who wait for one.

Free permits lie in a deque, which the interpreter takes from and puts into in one piece: as long
as nobody waits, a call takes no lock. Whoever finds none joins the line, first come, first
served. It joins under the lock and then looks again; whoever gives back puts the permit down
first and then looks whether somebody waits. So one of the two always sees the other.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Hashable
from itertools import repeat

from .waiters import Waiter

__all__ = ["Room"]

GIVEN = "given"


class Room:
    """The permits of one key, and who waits for them."""

    __slots__ = ("_debt", "_line", "_lock", "free", "key", "limit", "pressed", "users")

    def __init__(self, limit: int, key: Hashable = None) -> None:
        self.limit = limit
        self.key = key
        self.free: deque[None] = deque(repeat(None, limit))
        self.pressed = False
        """Whether somebody waits, or permits have to go: then nobody takes one in passing."""
        self.users = 0
        self._debt = 0
        """How many permits are still out that are to vanish when they come back."""
        self._line: OrderedDict[Waiter, None] = OrderedDict()
        # Reentrant, as a finaliser may give back in the middle of anything.
        self._lock = threading.RLock()

    def take(self) -> bool:
        """Take a permit if there is one and nobody waits."""
        if self.pressed:
            return False
        try:
            self.free.pop()
        except IndexError:
            return False
        return True

    def give(self) -> None:
        """Give a permit back."""
        self.free.append(None)
        if self.pressed:
            self.settle()

    def join(self, waiter: Waiter, most: int | None) -> bool:
        """Join the line, if there is place; False if there is nothing to wait for."""
        with self._lock:
            self._line[waiter] = None
            self.pressed = True
            self.settle()
            if waiter.answer is not None:
                return False
            if most is not None and len(self._line) > most:
                self._line.pop(waiter, None)
                self.settle()
                return False
        return True

    def leave(self, waiter: Waiter | None) -> bool:
        """Stop waiting; whether a permit came in the last moment, which is then the waiter's."""
        if waiter is None:
            return False
        with self._lock:
            if waiter.answer is None:
                self._line.pop(waiter, None)
                self.settle()
            return waiter.answer is not None

    def resize(self, limit: int) -> None:
        """Have more permits or fewer; those that are out too many vanish as they come back."""
        with self._lock:
            change, self.limit = limit - self.limit, limit
            if change < 0:
                self._debt -= change
                self.pressed = True
            else:
                paid = min(self._debt, change)
                self._debt -= paid
                self.free.extend(repeat(None, change - paid))
            self.settle()

    @property
    def waiting(self) -> int:
        """How many wait."""
        return len(self._line)

    @property
    def in_flight(self) -> int:
        """How many permits are out."""
        return max(0, self.limit + self._debt - len(self.free))

    def settle(self) -> None:
        """Hand free permits to those who wait, the first first."""
        with self._lock:
            while True:
                try:
                    self.free.pop()
                except IndexError:
                    break
                if self._debt:
                    self._debt -= 1
                    continue
                try:
                    waiter, _ = self._line.popitem(last=False)
                except KeyError:
                    self.free.append(None)
                    break
                if not waiter.tell(GIVEN):  # its loop is closed
                    self.free.append(None)
            self.pressed = bool(self._line) or self._debt > 0
