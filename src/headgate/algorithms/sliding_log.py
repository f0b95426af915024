"""Sliding log: every hit remembered, so no span of a window ever holds more than the limit.

State: the instants of the events in one row of whole numbers and, only once one of them is not
1, their costs in another; with their total, the first and last instant, and the latest instant
this log has seen, before which it does not go back. Hits of the same instant are one event. An
event counts for exactly one window: at its instant + W it is gone.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING

from .base import MOST, NEVER, REFUSED, Outcome, Spread, State
from .packing import narrowest, number, pack, span_width, unpack, whole

if TYPE_CHECKING:
    from ..limit import Limit

__all__ = ["Log", "SlidingLog"]

SPARE = 64
"""How many dead words may stand at the front of the row before it is cut."""


class Log:
    """The events of one key."""

    __slots__ = ("costs", "events", "first", "head", "last", "seen", "total")

    def __init__(self) -> None:
        self.events = array("q")
        self.costs: array[int] | None = None
        self.head = 0
        self.total = 0
        self.first = 0
        self.last = 0
        self.seen = 0

    def priced(self) -> array[int]:
        """The costs, written out."""
        if self.costs is None:
            self.costs = array("q", (1,)) * len(self.events)
        return self.costs

    def cut(self, start: int, end: int) -> None:
        """Drop events for good."""
        del self.events[start:end]
        if self.costs is not None:
            del self.costs[start:end]
            if not self.events:
                self.costs = None

    def mark(self) -> None:
        """Note the first and the last event again."""
        if self.total:
            self.first, self.last = self.events[self.head], self.events[-1]


class SlidingLog(Spread):
    """The sum over the events of the last window."""

    def __init__(self, limit: Limit, permille: int = 0) -> None:
        super().__init__(limit, permille)
        self.shape = (limit.algorithm, self.tick)  # events are instants: any window can read them

    def empty(self) -> Log:
        return Log()

    def roll(self, state: Log, now: int) -> int:
        """Drop the events that have left the window; the time it is by this log."""
        events = state.events
        if state.seen > now:
            if state.seen - now <= self.window:
                now = state.seen  # the clock went back: it stands still
            else:
                for place in range(state.head, len(events)):
                    events[place] = min(events[place], now)
        state.seen = now
        if not state.total:
            return now
        head = bisect_right(events, now - self.window, state.head)
        if head > state.head:
            costs = state.costs
            state.total -= head - state.head if costs is None else sum(costs[state.head : head])
            if head == len(events) or head > SPARE:
                state.cut(0, head)
                head = 0
            state.head = head
        state.mark()
        return now

    def take(self, state: Log, now: int, cost: int) -> int:
        self.roll(state, now)
        return 0 if state.total + cost <= self.quota else REFUSED

    def put(self, state: Log, now: int, cost: int, token: int = 0, expires: int = 0) -> None:
        cost = min(cost, MOST - state.total)
        if not cost:
            return
        now = state.seen = max(now, state.seen)
        if state.total and state.last == now:
            state.priced()[-1] += cost
        else:
            if cost != 1 or state.costs is not None:
                state.priced().append(cost)
            state.events.append(now)
            state.last = now
            if not state.total:
                state.first = now
        state.total += cost

    def hit(self, state: Log, now: int, cost: int) -> Outcome:
        total, last, leaves = state.total, state.last, state.first + self.window
        if leaves > now >= state.seen and total:  # nothing to drop; the clock did not go back
            state.seen = now
            over = total + cost - self.quota
            if over == 1:  # the oldest event is enough to make room
                return REFUSED, total, leaves, last
            if over > 0:
                return REFUSED, total, self.leaving(state, over), last
            costs = state.costs
            if costs is None and (cost != 1 or now == last):
                costs = state.priced()
            if now == last:  # `put`, without its frame
                costs[-1] += cost  # type: ignore[index] # written out just now
            else:
                state.events.append(now)
                state.last = now
                if costs is not None:
                    costs.append(cost)
            state.total = total = total + cost
            return 0, total, 0, now
        return Spread.hit(self, state, now, cost)

    def view(self, state: Log, now: int, cost: int) -> State:
        total = state.total
        over = total + cost - self.quota
        return total, self.leaving(state, over) if over > 0 and total else 0, state.last

    def look(self, a: int, b: int, c: int, now: int, cost: int) -> tuple[int, int, int]:
        retry = NEVER if cost > self.quota else b - now if b else 0
        return max(0, self.quota - a), retry, c + self.window - now if a else 0

    def leaving(self, state: Log, needed: int) -> int:
        """The instant by which `needed` has left the window."""
        events, costs, place = state.events, state.costs, state.head
        if costs is None:
            place = min(place + needed, len(events)) - 1
        else:
            while place < len(events) - 1:
                needed -= costs[place]
                if needed <= 0:
                    break
                place += 1
        return events[place] + self.window

    def refund(self, state: Log, now: int, cost: int, at: int) -> None:
        self.roll(state, now)
        if state.seen > now <= at:  # the clock went back and stands still
            at = state.seen
        place = bisect_left(state.events, at, state.head)
        if not cost or place == len(state.events) or state.events[place] != at:
            return
        held = 1 if state.costs is None else state.costs[place]
        cost = min(cost, held)
        state.total -= cost
        if cost == held:  # every event that is kept counts for something
            state.cut(place, place + 1)
            state.mark()
        else:
            state.priced()[place] -= cost

    def forecast(self, state: Log, now: int, ahead: int, cost: int) -> int:
        later, rest = divmod(ahead + cost - 1, self.quota)
        return max(0, self.read(state, now, rest + 1)[1]) + later * self.window

    def dump(self, state: Log) -> bytes:
        """The state in few bytes: widths, the instant last seen, the first event, then all
        events as what they are later than the first, and costs if one of them is not 1."""
        events, head, end = state.events, state.head, len(state.events)
        if head == end:
            return b"\0" + number(state.seen)
        base = events[head]
        width, priced = span_width(events[-1] - base), 0
        costs = state.costs if state.total != end - head else None
        if costs is not None:
            priced = narrowest(max(costs[head:]))
        data = bytes((width << 4 | priced,)) + number(state.seen) + number(base)
        data = pack(events, head, end, base, width, data)
        return data if costs is None else pack(costs, head, end, 0, priced, data)

    def load(self, data: bytes) -> Log:
        """The state again; ValueError if these are not the bytes of one."""
        state = Log()
        state.seen = whole(data, 1)
        width, priced = data[0] >> 4, data[0] & 15
        if not width and len(data) == 9:
            return state
        count, rest = divmod(len(data) - 17, width + priced or 1)
        if count < 1 or rest or width not in (4, 5, 6, 8) or priced not in (0, 1, 2, 4, 8):
            raise ValueError("not a log")
        state.events = unpack(data, 17, count, whole(data, 9), width)
        state.total = count
        if priced:
            state.costs = unpack(data, 17 + count * width, count, 0, priced)
            state.total = sum(state.costs)
        state.mark()
        return state

    def used(self, state: Log, now: int) -> tuple[int, int]:
        self.roll(state, now)
        return state.total, 1
