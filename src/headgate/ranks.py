"""Ranks: a line of those who wait, and which line gives way to which.

Calls that meet different rules stand in different lines, and may still want the same limit of
the same key. A line does not ask as long as the first of another is more important and waits for
a limit that both want. Being held up by anything else, say by a limit of its own, is no reason:
nobody waits for those who could not go ahead anyway. What was promised to somebody stays his.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

from .decision import Ask, Decision
from .keys import canonical
from .waiters import Waiter

__all__ = ["Line", "Name", "Ranks", "short_of"]

Name: TypeAlias = tuple[str, Any, tuple[str, ...]]
"""A line: namespace, key, and the ids of the limits that are waited for."""
Want: TypeAlias = tuple[str, str, Any]
"""One limit of one key: namespace, id and key."""
NOTHING: frozenset[Want] = frozenset()


def want_of(ask: Ask) -> Want:
    """What an ask is about."""
    return ask.space, ask.limit.id, canonical(ask.key)


def short_of(asks: Sequence[Ask], decision: Decision) -> frozenset[Want]:
    """What a call has to wait for: of all that is short, what takes longest."""
    waits = [part.delay if part.allowed else part.retry_after for part in decision.parts]
    longest = max(waits)
    if not longest:
        return NOTHING
    pairs = zip(asks, waits, strict=True)
    return frozenset(want_of(ask) for ask, wait in pairs if wait == longest)


class Line:
    """The waiters of one key, the most important first, then the longest waiting."""

    __slots__ = (
        "again", "booked", "marked", "moving", "name", "pause", "queue", "queued", "short",
        "timer", "wants",
    )  # fmt: skip

    def __init__(self, name: Name | None, pause: int = 0) -> None:
        self.name = name
        self.queue: list[tuple[int, int, Waiter]] = []
        self.queued: dict[int, int] = {}
        self.booked: Waiter | None = None
        self.timer: Any = None
        self.moving = self.again = False
        self.pause = pause
        self.wants = self.short = NOTHING
        """What its waiters want, and what the last of them who asked had to wait for."""
        self.marked: tuple[int, frozenset[Want]] | None = None
        """What Ranks knows of it: how important its first is, and what is short."""

    def ahead(self, priority: int) -> int:
        """How much is asked for by those who go before a newcomer."""
        return sum(cost for other, cost in self.queued.items() if other >= priority)

    def enqueue(self, waiter: Waiter, serial: int) -> None:
        if not self.wants:
            self.wants = frozenset(map(want_of, waiter.asks))
        heapq.heappush(self.queue, (-waiter.priority, serial, waiter))
        self.queued[waiter.priority] = self.queued.get(waiter.priority, 0) + waiter.cost
        waiter.line = self
        waiter.queued = True

    def unqueue(self, waiter: Waiter) -> None:
        """Count a waiter out; its entry goes when it comes to the front."""
        if waiter.queued:
            waiter.queued = False
            self.queued[waiter.priority] -= waiter.cost
            if not self.queued[waiter.priority]:
                del self.queued[waiter.priority]

    def first(self) -> Waiter | None:
        """Whose turn it is; those who are gone are passed over."""
        while self.queue:
            waiter = self.queue[0][2]
            if waiter.queued and not waiter.gone():
                return waiter
            self.unqueue(waiter)
            heapq.heappop(self.queue)
        return None

    def rank(self) -> tuple[int, int]:
        """Which of several lines goes first: that of the most important, then longest waiting."""
        return (0, 0) if self.first() is None else self.queue[0][:2]


class Ranks:
    """Which lines wait for what, and how important their first ones are.

    Nothing is locked here: the lines in front of a store have a lock. An interrupt may come in
    the middle of anything, so everything can be done once more.
    """

    def __init__(self) -> None:
        self._levels: dict[Want, dict[int, dict[Line, None]]] = {}
        self._yielding: dict[Line, None] = {}
        self._changes = self._told = 0
        """How often somebody may have become free to go, and up to where they were told."""

    def __bool__(self) -> bool:
        """Whether anybody waits to whom others might give way."""
        return bool(self._levels)

    def mark(self, line: Line) -> None:
        """Note how a line stands now."""
        first = line.first()
        marked = None if first is None or not line.short else (first.priority, line.short)
        if marked != line.marked:
            self._erase(line)
            line.marked = marked
        if marked is not None:
            for want in marked[1]:
                self._levels.setdefault(want, {}).setdefault(marked[0], {})[line] = None
        if first is None:
            self._yielding.pop(line, None)

    def gives_way(self, line: Line) -> bool:
        """Whether a line is not to ask now; `relieve` wakes it when it may."""
        self.mark(line)
        first = line.first()
        short = NOTHING if first is None else self._above(line.wants, first.priority)
        if not short:
            self._yielding.pop(line, None)
            return False
        self._yielding[line] = None
        line.short = short
        self.mark(line)
        return True

    def outranked(self, asks: Sequence[Ask], priority: int) -> bool:
        """Whether somebody who is about to ask would have to give way."""
        return bool(self._above(map(want_of, asks), priority))

    def ahead(self, ask: Ask, priority: int) -> int:
        """How much of an ask's limit is wanted by those to whom it gives way."""
        levels = self._levels.get(want_of(ask), {}) if self._levels else {}
        return sum(
            line.ahead(priority + 1)
            for level, lines in levels.items()
            if level > priority
            for line in lines
        )

    def relieve(self, wake: Callable[[Any], object]) -> None:
        """Wake the lines that have given way and need not do so any more, the first to go first.

        They stay among those who give way until they ask, or have nobody left.
        """
        while self._told < self._changes:
            upto = self._changes
            free = [line for line in list(self._yielding) if self._is_free(line)]
            try:
                self._told = upto  # before, as those who are woken may be the reason for more
                for line in sorted(free, key=Line.rank):
                    wake(line)
            except BaseException:
                self._told = -1  # who was not woken is the next time
                raise

    def _is_free(self, line: Line) -> bool:
        first = line.first()
        return first is None or not self._above(line.wants, first.priority)

    def _above(self, wants: Iterable[Want], priority: int) -> frozenset[Want]:
        """What somebody more important waits for."""
        return frozenset(want for want in wants if self._topped(want, priority))

    def _topped(self, want: Want, priority: int) -> bool:
        levels = self._levels.get(want)
        if not levels or max(levels) <= priority:
            return False
        higher = [line for level, lines in levels.items() if level > priority for line in lines]
        for line in higher:
            first = line.first()
            if first is not None and first.priority > priority:
                return True
            self.mark(line)  # its waiters are gone, and nobody was there to say so
        return False

    def _erase(self, line: Line) -> None:
        if line.marked is None:
            return
        priority, wants = line.marked
        for want in wants:
            levels = self._levels.get(want, {})
            lines = levels.get(priority, {})
            if not lines.keys() - {line}:
                self._changes += 1  # before, so that it is never missed
                levels.pop(priority, None)
            lines.pop(line, None)
            if not levels:
                self._levels.pop(want, None)
