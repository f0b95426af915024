"""Sliding log: every hit remembered, so no span of a window ever holds more than the limit.

State: the events, an instant and a cost each in one row of whole numbers, with their total and
the instants of the first and the last beside them. Hits of the same instant are one event. An
event counts for exactly one window: at its instant + W it is gone.
"""

from __future__ import annotations

from array import array
from functools import cached_property

from .base import MOST, NEVER, REFUSED, Outcome, Spread, State

__all__ = ["Log", "SlidingLog"]

SPARE = 64
"""How many dead words may stand at the front of the row before it is cut."""


class Log:
    """The events of one key."""

    __slots__ = ("events", "first", "head", "last", "total")

    def __init__(self) -> None:
        self.events = array("q")
        self.head = 0
        self.total = 0
        self.first = 0
        self.last = 0


class SlidingLog(Spread):
    """The sum over the events of the last window."""

    @cached_property
    def shape(self) -> tuple[object, ...]:
        return (self.limit.algorithm, self.tick)  # events are instants: any window can read them

    def empty(self) -> Log:
        return Log()

    def roll(self, state: Log, now: int) -> int:
        """Drop the events that have left the window; the time it is by this log."""
        if not state.total:
            return now
        events = state.events
        if state.last > now:
            if state.last - now <= self.window:
                now = state.last  # the clock went back: it stands still
            else:
                for place in range(state.head, len(events), 2):
                    events[place] = min(events[place], now)
        head, gone = state.head, now - self.window
        while head < len(events) and events[head] <= gone:
            state.total -= events[head + 1]
            head += 2
        if head == len(events) or head > SPARE:
            del events[:head]
            head = 0
        state.head = head
        self.mark(state)
        return now

    def mark(self, state: Log) -> None:
        """Note the first and the last event again."""
        if state.total:
            state.first, state.last = state.events[state.head], state.events[-2]

    def take(self, state: Log, now: int, cost: int) -> int:
        self.roll(state, now)
        return 0 if state.total + cost <= self.quota else REFUSED

    def put(self, state: Log, now: int, cost: int, token: int = 0, expires: int = 0) -> None:
        if not cost:
            return
        cost = min(cost, MOST - state.total)
        if not state.total:
            state.first = state.last = now
            state.events.extend((now, cost))
        elif state.last >= now:
            state.events[-1] += cost
        else:
            state.last = now
            state.events.append(now)
            state.events.append(cost)
        state.total += cost

    def hit(self, state: Log, now: int, cost: int) -> Outcome:
        total, last, leaves = state.total, state.last, state.first + self.window
        if leaves > now >= last and total:  # nothing to drop, and the clock did not go back
            over = total + cost - self.quota
            if over == 1:  # the oldest event is enough to make room
                return REFUSED, total, leaves, last
            if over > 0:
                return REFUSED, total, self.leaving(state, over), last
            self.put(state, now, cost)
            return 0, total + cost, 0, now
        return super().hit(state, now, cost)

    def view(self, state: Log, now: int, cost: int) -> State:
        total = state.total
        over = total + cost - self.quota
        return total, self.leaving(state, over) if over > 0 and total else 0, state.last

    def look(self, a: int, b: int, c: int, now: int, cost: int) -> tuple[int, int, int]:
        retry = NEVER if cost > self.quota else b - now if b else 0
        return max(0, self.quota - a), retry, c + self.window - now if a else 0

    def leaving(self, state: Log, needed: int) -> int:
        """The instant by which `needed` has left the window."""
        events, place = state.events, state.head
        while place < len(events) - 2:
            needed -= events[place + 1]
            if needed <= 0:
                break
            place += 2
        return events[place] + self.window

    def refund(self, state: Log, now: int, cost: int, at: int) -> None:
        self.roll(state, now)
        if state.last > now <= at and state.total:  # the clock went back and stands still
            at = state.last
        place = self.find(state, at)
        if place < 0:
            return
        events = state.events
        cost = min(cost, events[place + 1])
        events[place + 1] -= cost
        state.total -= cost
        if not events[place + 1]:  # every event that is kept counts for something
            del events[place : place + 2]
            self.mark(state)

    def find(self, state: Log, at: int) -> int:
        """The place of the event of an instant, or -1."""
        events, head = state.events, state.head
        low, high = 0, (len(events) - head) // 2
        while low < high:
            middle = (low + high) // 2
            if events[head + 2 * middle] < at:
                low = middle + 1
            else:
                high = middle
        place = head + 2 * low
        return place if place < len(events) and events[place] == at else -1

    def forecast(self, state: Log, now: int, ahead: int, cost: int) -> int:
        later, rest = divmod(ahead + cost - 1, self.quota)
        return max(0, self.read(state, now, rest + 1)[1]) + later * self.window

    def used(self, state: Log, now: int) -> tuple[int, int]:
        self.roll(state, now)
        return state.total, 1
