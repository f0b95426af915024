"""Sliding cells: a window of n cells, of which the oldest leaves as a new one begins.

State: a row of whole numbers: the number of the newest cell, the total, and the n counts, cell
k at place k % n. Cells are aligned to the epoch, and n of them are exactly one window also
where n does not divide it.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

from .base import MOST, NEVER, REFUSED, Outcome, Spread, State
from .packing import narrowest, number, pack, unpack, whole

if TYPE_CHECKING:
    from ..limit import Limit

__all__ = ["SlidingCells"]

NEWEST, TOTAL, FIRST = 0, 1, 2


class SlidingCells(Spread):
    """The sum over the last n cells, the present one included."""

    def __init__(self, limit: Limit, permille: int = 0) -> None:
        super().__init__(limit, permille)
        assert limit.cells is not None
        self.cells = limit.cells
        self.shape = (*self.shape, self.cells)

    def cell(self, now: int) -> int:
        """The number of the cell that holds an instant."""
        windows, rest = now // self.window, now % self.window
        return windows * self.cells + rest * self.cells // self.window

    def begin(self, cell: int) -> int:
        """The first instant of a cell."""
        windows, rest = cell // self.cells, cell % self.cells
        return windows * self.window - (-rest * self.window // self.cells)

    def empty(self) -> array[int]:
        return array("q", bytes(8 * (FIRST + self.cells)))

    def roll(self, state: array[int], now: int) -> int:
        """Drop the cells that have left the window; the number of the present cell."""
        cell, newest = self.cell(now), state[NEWEST]
        if cell > newest:
            if cell - newest >= self.cells:
                state[TOTAL:] = array("q", bytes(8 * (1 + self.cells)))
            elif state[TOTAL]:
                for old in range(newest + 1, cell + 1):
                    place = FIRST + old % self.cells
                    state[TOTAL] -= state[place]
                    state[place] = 0
            state[NEWEST] = cell
        elif newest - cell > self.cells:  # the clock went far back: all of it counts as new
            total = state[TOTAL]
            state[TOTAL:] = array("q", bytes(8 * (1 + self.cells)))
            state[NEWEST], state[TOTAL], state[FIRST + cell % self.cells] = cell, total, total
        return state[NEWEST]

    def take(self, state: array[int], now: int, cost: int) -> int:
        self.roll(state, now)
        return 0 if state[TOTAL] + cost <= self.quota else REFUSED

    def put(self, state: array[int], now: int, cost: int, token: int = 0, expires: int = 0) -> None:
        cost = min(cost, MOST - state[TOTAL])
        state[TOTAL] += cost
        state[FIRST + state[NEWEST] % self.cells] += cost

    def hit(self, state: array[int], now: int, cost: int) -> Outcome:
        row, cell = state, self.cell(now)
        total = row[TOTAL]
        if cell == row[NEWEST] and total + cost <= self.quota:  # `roll`, `take`, `put` and `view`
            row[TOTAL] = total = total + cost
            row[FIRST + cell % self.cells] += cost
            return 0, total, 0, cell + self.cells
        return Spread.hit(self, state, now, cost)

    def view(self, state: array[int], now: int, cost: int) -> State:
        row = state
        newest, total = row[NEWEST], row[TOTAL]
        over = total + cost - self.quota
        last = newest
        if over > 0:
            cell = newest - self.cells + 1
            while cell < newest:
                over -= row[FIRST + cell % self.cells]
                if over <= 0:
                    break
                cell += 1
            cell += self.cells
        else:
            cell = 0
        while total and not row[FIRST + last % self.cells]:
            last -= 1
        return total, cell, last + self.cells

    def look(self, a: int, b: int, c: int, now: int, cost: int) -> tuple[int, int, int]:
        retry = NEVER if cost > self.quota else self.begin(b) - now if b else 0
        return max(0, self.quota - a), retry, self.begin(c) - now if a else 0

    def refund(self, state: array[int], now: int, cost: int, at: int) -> None:
        newest, cell = self.roll(state, now), self.cell(at)
        if newest > self.cell(now) <= cell:  # the clock went back and stands still
            cell = newest
        if newest - self.cells < cell <= newest:
            place = FIRST + cell % self.cells
            cost = min(cost, state[place])
            state[place] -= cost
            state[TOTAL] -= cost

    def forecast(self, state: array[int], now: int, ahead: int, cost: int) -> int:
        # What comes a whole quota later falls at least n cells later.
        later, rest = divmod(ahead + cost - 1, self.quota)
        first = now + self.read(state, now, rest + 1)[1]
        return self.begin(self.cell(first)) + later * self.window - now if later else first - now

    def dump(self, state: array[int]) -> bytes:
        """The state in few bytes: a width, the newest cell's number, and the counts if any."""
        newest = number(state[NEWEST])
        if not state[TOTAL]:
            return b"\0" + newest
        width = narrowest(max(state[FIRST:]))
        return pack(state, FIRST, FIRST + self.cells, 0, width, bytes((width,)) + newest)

    def load(self, data: bytes) -> array[int]:
        """The state again; ValueError if these are not the bytes of one."""
        if len(data) != 9 + data[0] * self.cells or data[0] not in (0, 1, 2, 4, 8):
            raise ValueError("not a row of cells")
        if not data[0]:
            state = self.empty()
        else:
            counts = unpack(data, 9, self.cells, 0, data[0])
            state = array("q", (0, sum(counts))) + counts
        state[NEWEST] = whole(data, 1)
        return state

    def used(self, state: array[int], now: int) -> tuple[int, int]:
        self.roll(state, now)
        return state[TOTAL], 1
