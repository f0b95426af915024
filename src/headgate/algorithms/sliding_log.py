"""Sliding log: every hit remembered, so no span of a window ever holds more than the limit.

State: a row of whole numbers: the total, the place of the oldest event, then an instant and a
cost for each event. Hits of the same instant are one event. An event counts for exactly one
window: at its instant + W it is gone.
"""

from __future__ import annotations

from array import array
from functools import cached_property

from .base import NEVER, REFUSED, Outcome, Spread, State

__all__ = ["SlidingLog"]

TOTAL, OLDEST, FIRST = 0, 1, 2
SPARE = 64
"""How many dead words may stand at the front before the row is cut."""


class SlidingLog(Spread):
    """The sum over the events of the last window."""

    @cached_property
    def shape(self) -> tuple[object, ...]:
        return (self.limit.algorithm, self.tick)  # events are instants: any window can read them

    def empty(self) -> array[int]:
        return array("q", (0, FIRST))

    def roll(self, state: array[int], now: int) -> int:
        """Drop the events that have left the window; the time it is by this log."""
        last = state[-2] if len(state) > FIRST else 0
        if last > now:
            if last - now <= self.window:
                now = last  # the clock went back: it stands still
            else:
                for place in range(state[OLDEST], len(state), 2):
                    state[place] = min(state[place], now)
        oldest, gone = state[OLDEST], now - self.window
        while oldest < len(state) and state[oldest] <= gone:
            state[TOTAL] -= state[oldest + 1]
            oldest += 2
        if oldest == len(state) or oldest > SPARE:
            del state[FIRST:oldest]
            oldest = FIRST
        state[OLDEST] = oldest
        return now

    def take(self, state: array[int], now: int, cost: int) -> int:
        self.roll(state, now)
        return 0 if state[TOTAL] + cost <= self.quota else REFUSED

    def put(self, state: array[int], now: int, cost: int, token: int = 0, expires: int = 0) -> None:
        state[TOTAL] += cost
        if len(state) > FIRST and state[-2] >= now:
            state[-1] += cost
        else:
            state.append(now)
            state.append(cost)

    def view(self, state: array[int], now: int, cost: int) -> State:
        total = state[TOTAL]
        if not total:
            return 0, 0, 0
        over = total + cost - self.quota
        return total, self.leaving(state, over) if over > 0 else 0, state[-2]

    def hit(self, state: array[int], now: int, cost: int) -> Outcome:
        total = state[TOTAL]
        if total:
            leaves, last = state[state[OLDEST]] + self.window, state[-2]
            if leaves > now >= last:  # nothing to drop, and the clock did not go back
                over = total + cost - self.quota
                if over == 1:  # the oldest event is enough to make room
                    return REFUSED, total, leaves, last
                if over > 0:
                    return REFUSED, total, self.leaving(state, over), last
                state[TOTAL] = total = total + cost
                if last == now:
                    state[-1] += cost
                else:
                    state.append(now)
                    state.append(cost)
                return 0, total, 0, now
        return super().hit(state, now, cost)

    def look(self, a: int, b: int, c: int, now: int, cost: int) -> tuple[int, int, int]:
        retry = NEVER if cost > self.quota else b - now if b else 0
        return max(0, self.quota - a), retry, c + self.window - now if a else 0

    def leaving(self, state: array[int], needed: int) -> int:
        """The instant by which `needed` has left the window."""
        place = state[OLDEST]
        while place < len(state) - 2:
            needed -= state[place + 1]
            if needed <= 0:
                break
            place += 2
        return state[place] + self.window

    def refund(self, state: array[int], now: int, cost: int, at: int) -> None:
        self.roll(state, now)
        place = self.find(state, at)
        if place:
            cost = min(cost, state[place + 1])
            state[place + 1] -= cost
            state[TOTAL] -= cost
            if not state[place + 1]:  # every event left counts for something
                del state[place : place + 2]

    def find(self, state: array[int], at: int) -> int:
        """The place of the event of an instant, or 0."""
        low, high = 0, (len(state) - state[OLDEST]) // 2
        while low < high:
            middle = (low + high) // 2
            if state[state[OLDEST] + 2 * middle] < at:
                low = middle + 1
            else:
                high = middle
        place = state[OLDEST] + 2 * low
        return place if place < len(state) and state[place] == at else 0

    def forecast(self, state: array[int], now: int, ahead: int, cost: int) -> int:
        later, rest = divmod(ahead + cost - 1, self.quota)
        return max(0, self.read(state, now, rest + 1)[1]) + later * self.window

    def used(self, state: array[int], now: int) -> tuple[int, int]:
        self.roll(state, now)
        return state[TOTAL], 1
