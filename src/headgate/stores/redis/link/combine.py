"""Combining: calls of many threads in one write.

A few threads may speak to a node at the same time, each through its own connection and with no
delay. Those that come while all of them are waiting for replies leave their calls in a queue, and
one of them carries the whole queue as soon as a place is free.

It spares the server: fewer and larger requests, and merged ones. It costs the client: to hand a
reply from thread to thread takes longer than to read it. So only what a good number of threads
have no place for is combined.

No lock is held at any time, only deques used whose steps are atomic; so a signal's handler or a
finalizer may ask in the middle of another call.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Sequence
from time import monotonic, sleep
from typing import Any

from ....errors import StoreUnavailable
from .calls import AnyCall
from .coalesce import Merge
from .routes import Node
from .wire import late

__all__ = ["Turn", "Turns"]

MOST = 128
"""Calls carried together: their replies arrive together too."""


class _Slot:
    """A waiting thread's calls."""

    __slots__ = ("bell", "calls", "leads", "replies", "taken")

    def __init__(self, calls: Sequence[AnyCall]) -> None:
        self.calls = calls
        self.replies: list[Any] = []
        self.taken = False
        self.leads = False
        self.bell = threading.Lock()
        self.bell.acquire()


class Turn:
    """Whose turn it is to speak to one node."""

    def __init__(
        self,
        shown: str,
        carry: Callable[[Sequence[AnyCall], float], list[Any]],
        merge: Merge | None,
        together: int,
    ) -> None:
        self._shown = shown
        self._carry = carry
        self._merge = merge
        self.places: deque[bool] = deque([True] * together)
        self._queue: deque[_Slot] = deque()

    def ask(self, calls: Sequence[AnyCall], deadline: float) -> list[Any]:
        """Replies to calls, carried by this thread or by another."""
        try:
            self.places.pop()
        except IndexError:
            return self.wait(calls, deadline)
        try:
            return self._carry(calls, deadline)
        finally:
            self.leave()

    def leave(self) -> None:
        """Hand a place on to the first in the queue, or give it back."""
        while True:
            try:
                slot = self._queue.popleft()
            except IndexError:
                self.places.append(True)
                if not self._queue:
                    return
                # Somebody queued up between the two steps, and may have found no place.
                try:
                    self.places.pop()
                except IndexError:
                    return  # taken: whoever has it looks after the queue
            else:
                slot.leads = True
                slot.bell.release()
                return

    def wait(self, calls: Sequence[AnyCall], deadline: float) -> list[Any]:
        """Queue up until somebody has carried the calls, or it is this thread's turn to."""
        slot = _Slot(calls)
        self._queue.append(slot)
        if self.places:  # given back by one who saw the queue still empty
            with contextlib.suppress(IndexError):
                self.places.pop()
                self.leave()
        if not slot.bell.acquire(timeout=max(0.0, deadline - monotonic())):
            try:
                self._queue.remove(slot)
            except ValueError:
                while not (slot.leads or slot.taken):  # it was taken out just now
                    sleep(0)
            if slot.leads:
                self.leave()
            return slot.replies or [late(self._shown, sent=slot.taken)] * len(calls)
        return self._lead(slot, deadline) if slot.leads else slot.replies

    def _lead(self, first: _Slot, deadline: float) -> list[Any]:
        """Carry the whole queue."""
        batch = [first]
        calls = list(first.calls)
        replies: list[Any] = []
        try:
            with contextlib.suppress(IndexError):
                while len(calls) < MOST:
                    slot = self._queue.popleft()
                    slot.taken = True
                    batch.append(slot)
                    calls += slot.calls
            replies = self._carried(calls, deadline)
        finally:
            self.leave()
            if not replies:
                problem = f"{self._shown}: the thread that asked was stopped"
                replies = [StoreUnavailable(problem, sent=True)] * len(calls)
            at = 0
            for slot in batch:
                slot.replies = replies[at : at + len(slot.calls)]
                at += len(slot.calls)
                if slot is not first:
                    slot.bell.release()
        return first.replies

    def _carried(self, calls: list[AnyCall], deadline: float) -> list[Any]:
        if self._merge is None or len(calls) < 2:
            return self._carry(calls, deadline)
        fewer, split = self._merge(calls)
        return split(self._carry(fewer, deadline))


class Turns(dict[Node, Turn]):
    """Whose turn it is, for each node."""

    def __init__(self, make: Callable[[Node], Turn]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, node: Node) -> Turn:
        return self.setdefault(node, self._make(node))
