"""Queues: the lines in front of a store that blocks.

There is one line per key in this process, as in front of any store, and nobody asks but its
head. But here the head asks in its own thread or task, which takes a while, and no lock is held
meanwhile. The turn is a baton: whoever is served, gives up or fails hands it to the next.
"""

from __future__ import annotations

import itertools
import os
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from .answers import forecast
from .decision import Ask, Decision
from .ranks import Line, Name, Ranks, short_of

if TYPE_CHECKING:
    from .stores.base import Store
    from .turns import Turn

__all__ = ["Queue", "Queues", "queues_of"]

Result = TypeVar("Result")
_queues: weakref.WeakKeyDictionary[Any, Queues] = weakref.WeakKeyDictionary()
_making = threading.Lock()


def queues_of(store: Store) -> Queues:
    """The lines in front of a store, shared by everybody who waits for it in this process."""
    with _making:
        queues = _queues.get(store)
        if queues is None:
            queues = _queues[store] = Queues()
        return queues


class Queue(Line):
    """A line whose head asks by itself."""

    __slots__ = ("busy", "head", "known", "told")

    def __init__(self, name: Name) -> None:
        super().__init__(name)
        self.head: Turn | None = None
        self.told: Turn | None = None
        """The head, once it has been woken."""
        self.busy: Turn | None = None
        """Who asks, or has been booked: nobody goes before."""
        self.known: tuple[Decision, int] | None = None
        """The last decision and when it came, once somebody has to wait."""


class Queues:
    """Every line in front of one store."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._lines: dict[tuple[str, Any], dict[tuple[str, ...], Queue]] = {}
        self._ranks = Ranks()
        self._serial = itertools.count()
        self._within = False
        self._later: list[tuple[Callable[..., Any], tuple[Any, ...]]] = []
        self.put_off: list[tuple[str, Any]] = []
        self.kicks = 0
        """How often something came back."""

    # -- what a turn does

    def lead(self, turn: Turn) -> bool:
        """Whether nobody is there, so that the turn is the head of a new line."""
        return bool(self._alone(self._lead, turn))

    def known(self, name: Name) -> tuple[Decision, int] | None:
        """The last decision of a line in which somebody has to wait, and when it came."""
        line = self._line(name)
        return None if line is None else line.known

    def outranked(self, asks: Sequence[Ask], priority: int) -> bool:
        """Whether somebody more important waits, in another line, for some of it."""
        return bool(self._ranks) and bool(self._alone(self._ranks.outranked, asks, priority))

    def join(self, turn: Turn, known: tuple[Decision, int], now: int) -> bool:
        """Go to the end of a line; False if it is known not to be served in time."""
        return bool(self._alone(self._join, turn, known, now))

    def begin(self, turn: Turn) -> bool:
        """Whether it is this one's turn to ask; nobody else does until `end` or `leave`."""
        return bool(self._alone(self._begin, turn))

    def end(self, turn: Turn, decision: Decision, now: int) -> None:
        """The head was answered: it keeps its turn if it was booked, and else waits on."""
        self._alone(self._end, turn, decision, now)

    def leads(self, turn: Turn) -> bool:
        """Whether a turn is still the head of its line."""
        return turn.line is not None and turn.line.head is turn

    def leave(self, turn: Turn) -> None:
        """A turn is over, however it ended: on to the next."""
        self._surely(self._leave, turn)

    # -- what others do

    def kick(self, space: str, key: Any) -> None:
        """Something came back for a key: whoever waits for it may ask again."""
        self.kicks += 1
        if self._lines:
            self._surely(self._kick, (space, key))

    def kick_all(self) -> None:
        """The store has changed as a whole, or was closed."""
        for space, key in list(self._lines):
            self.kick(space, key)

    def catch_up(self) -> None:
        """Do what was put off."""
        while self.put_off:
            self.kick(*self.put_off.pop())

    def abandon(self) -> None:
        """Forget every line, in a new process that has none of the waiters."""
        self._lock = threading.RLock()
        self._within = False
        self._lines = {}
        self._ranks = Ranks()

    # -- what holds while the lock is held

    def _alone(self, call: Callable[..., Result], *arguments: Any) -> Result | None:
        with self._lock:
            if self._within:  # a finaliser, in the middle of a change of this thread's
                self._later.append((call, arguments))
                return None
            try:
                self._within = True
                result = call(*arguments)
                while self._later:
                    later, others = self._later.pop(0)
                    later(*others)
                return result
            finally:
                self._within = False

    def _surely(self, call: Callable[..., None], *arguments: Any) -> None:
        """Do what others wait for, once more if an interrupt came in the middle."""
        try:
            self._alone(call, *arguments)
        except BaseException:
            self._alone(call, *arguments)
            raise

    def _lead(self, turn: Turn) -> bool:
        if self._line(turn.name) is not None:
            return False
        line = self._open(turn.name)
        line.enqueue(turn, next(self._serial))
        line.head = line.told = turn
        return True

    def _join(self, turn: Turn, known: tuple[Decision, int], now: int) -> bool:
        line = self._line(turn.name)
        if turn.deadline is not None:
            ahead = 0 if line is None else line.ahead(turn.priority)
            above = [self._ranks.ahead(ask, turn.priority) for ask in turn.asks]
            wait = forecast(turn.asks, known[0], max(0, now - known[1]), ahead, above)
            if now + wait > turn.deadline:
                return False
        if line is None:
            line = self._open(turn.name)
        line.known = known
        line.enqueue(turn, next(self._serial))
        self._settle(line)
        self._relieve(line)
        return True

    def _begin(self, turn: Turn) -> bool:
        line: Queue = turn.line
        self._settle(line)
        if line.head is not turn or line.busy is not None or self._ranks.gives_way(line):
            self._relieve(line)
            return False
        line.busy = turn
        turn.kicked = False
        return True

    def _end(self, turn: Turn, decision: Decision, now: int) -> None:
        line: Queue = turn.line
        line.short = short_of(turn.asks, decision)
        if decision.allowed:
            line.unqueue(turn)
            if decision.delay or line.known is not None:
                line.known = decision, now
        else:
            line.known = decision, now
            line.busy = None
            self._settle(line)
        self._relieve(line)

    def _relieve(self, line: Queue) -> None:
        """Wake the heads of those lines that have given way to this one until now."""
        self._ranks.mark(line)
        self._ranks.relieve(_wake_head)

    def _line(self, name: Name) -> Queue | None:
        return self._lines.get(name[:2], {}).get(name[2])

    def _open(self, name: Name) -> Queue:
        line = self._lines.setdefault(name[:2], {})[name[2]] = Queue(name)
        return line

    def _settle(self, line: Queue) -> None:
        """Let the first of a line be its head, or drop the line if nobody is left."""
        if line.busy is not None:
            if not line.busy.gone():
                return
            line.unqueue(line.busy)
            line.busy = None
        while True:
            first: Any = line.first()
            if first is None:
                break
            if first is line.told:
                return
            overtaken, line.head = line.head, first
            if overtaken is not None and overtaken.queued:
                overtaken.wake()
            if first.wake():
                line.told = first
                return
            line.unqueue(first)
        line.head = line.told = None
        if line.name is not None:
            place = line.name[:2]
            lines = self._lines.get(place, {})
            lines.pop(line.name[2], None)
            if not lines:
                self._lines.pop(place, None)
            line.name = None

    def _leave(self, turn: Turn) -> None:
        line: Queue | None = turn.line
        if line is None:
            return
        line.unqueue(turn)
        if line.busy is turn:
            line.busy = None
        self._settle(line)
        self._relieve(line)
        turn.line = None  # last, as an interrupt may have all of it done once more

    def _kick(self, place: tuple[str, Any]) -> None:
        for line in sorted(self._lines.get(place, {}).values(), key=Line.rank):
            self._settle(line)
            self._relieve(line)
            if line.head is not None:
                line.head.kicked = True
                line.head.wake()


def _wake_head(line: Queue) -> None:
    if line.head is not None:
        line.head.wake()


def _after_fork() -> None:
    # Whoever waited stayed behind in the parent, and may have held a lock.
    global _making
    _making = threading.Lock()
    for queues in list(_queues.values()):
        queues.abandon()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
