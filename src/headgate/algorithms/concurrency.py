"""Concurrency: at most so many at once; each permit is given back, or its lease runs out.

State: the permits in use by their token, each with its cost and the instant of its expiry (0:
none), and a heap of expiries. A release names its token, so releasing twice, or after the
lease ran out, changes nothing. Where processes share the state, a permit without a lease also
says which of them holds it.
"""

from __future__ import annotations

import heapq
from array import array
from typing import TYPE_CHECKING

from .base import NEVER, REFUSED, Spread, State
from .packing import narrowest, number, pack, unpack, whole

if TYPE_CHECKING:
    from ..limit import Limit

__all__ = ["Concurrency", "Permits"]


class Permits:
    """The permits of one key."""

    __slots__ = ("expiries", "held", "holders", "owner", "total")

    def __init__(self) -> None:
        self.held: dict[int, tuple[int, int]] = {}
        self.total = 0
        self.expiries: list[tuple[int, int]] = []
        self.owner = 0
        """The process that takes permits now; 0 if that is not to be noted."""
        self.holders: dict[int, int] = {}


class Concurrency(Spread):
    """A counted set of leases."""

    def __init__(self, limit: Limit, permille: int = 0) -> None:
        super().__init__(limit, permille)
        self.shape = (limit.algorithm, self.tick)

    def empty(self) -> Permits:
        return Permits()

    def roll(self, state: Permits, now: int) -> int:
        """Take back what was not renewed in time."""
        while state.expiries and state.expiries[0][0] <= now:
            expires, token = state.expiries[0]
            if state.held.get(token, (0, 0))[1] == expires:
                self.release(state, token)
            # Last, so an interrupt before this leaves the expiry to be met again.
            if state.expiries and state.expiries[0] == (expires, token):
                heapq.heappop(state.expiries)
        return now

    def take(self, state: Permits, now: int, cost: int) -> int:
        self.roll(state, now)
        return 0 if state.total + cost <= self.quota else REFUSED

    def put(self, state: Permits, now: int, cost: int, token: int = 0, expires: int = 0) -> None:
        if token in state.held:  # the same client-made id again: nothing new is taken
            return
        state.held[token] = (cost, expires)
        state.total += cost
        if state.owner and not expires:  # a lease is its holder's, wherever that one is
            state.holders[token] = state.owner
        if expires:
            heapq.heappush(state.expiries, (expires, token))

    def release(self, state: Permits, token: int) -> bool:
        """Give a permit back; False if it was not held any more."""
        held = state.held.get(token)
        if held is None:
            return False
        # No call between these two: a signal handler's exception would part them for ever.
        del state.held[token]
        state.total -= held[0]
        if state.holders:
            state.holders.pop(token, None)
        if len(state.expiries) > 16 + 2 * len(state.held):
            live = [(end, name) for name, (_, end) in state.held.items() if end]
            heapq.heapify(live)
            state.expiries = live
        return True

    def renew(self, state: Permits, token: int, expires: int) -> bool:
        """Let a held permit live until `expires`; False if it was not held any more."""
        if token not in state.held:
            return False
        state.held[token] = (state.held[token][0], expires)
        if expires:
            heapq.heappush(state.expiries, (expires, token))
        return True

    def view(self, state: Permits, now: int, cost: int) -> State:
        ends = [expires for _, expires in state.held.values()]
        last = 0 if not ends else -1 if 0 in ends else max(ends)
        first = 0
        if state.total + cost > self.quota:
            first = min((end for end in ends if end), default=0)
        return state.total, first, last

    def look(self, a: int, b: int, c: int, now: int, cost: int) -> tuple[int, int, int]:
        left = max(0, self.quota - a)
        retry = 0 if cost <= left else b - now if b and cost <= self.quota else NEVER
        return left, retry, c - now if c > 0 else c

    def refund(self, state: Permits, now: int, cost: int, at: int) -> None:
        """Nothing: a permit comes back by its token alone."""

    def forecast(self, state: Permits, now: int, ahead: int, cost: int) -> int:
        return 0  # nobody knows when a holder is done

    def dump(self, state: Permits) -> bytes:
        """The state in few bytes: the widths of tokens, costs, expiries and holders, and then
        those rows; costs only if one is not 1, expiries and holders only if there are any."""
        tokens = array("q", state.held)
        if not tokens:
            return b""
        costs = array("q", [cost for cost, _ in state.held.values()])
        ends = [end for _, end in state.held.values()]
        holders = array("q", [state.holders.get(token, 0) for token in tokens])
        count, first = len(tokens), min(tokens)
        begin = min((end for end in ends if end), default=1) - 1
        late = array("q", [end - begin if end else 0 for end in ends])
        widths = (
            narrowest(max(tokens) - first),
            narrowest(max(costs)) if state.total != count else 0,
            narrowest(max(late)) if any(late) else 0,
            8 if state.holders else 0,
        )
        packed = bytes(widths) + number(first) + number(begin)
        packed += pack(tokens, 0, count, first, widths[0])
        for row, width in zip((costs, late, holders), widths[1:], strict=True):
            if width:
                packed += pack(row, 0, count, 0, width)
        return packed

    def load(self, data: bytes) -> Permits:
        """The state again; ValueError if these are not the bytes of one."""
        state = Permits()
        if not data:
            return state
        widths = tuple(data[:4])
        count, rest = divmod(len(data) - 20, sum(widths) or 1)
        if count < 1 or rest or not widths[0] or not {0, 1, 2, 4, 8}.issuperset(widths):
            raise ValueError("not a set of permits")
        at, begin = 20 + count * widths[0], whole(data, 12)
        tokens = unpack(data, 20, count, whole(data, 4), widths[0])
        rows = []
        for width, missing in zip(widths[1:], (1, 0, 0), strict=True):
            rows.append(unpack(data, at, count, 0, width) if width else [missing] * count)
            at += count * width
        for token, cost, late, holder in zip(tokens, *rows, strict=True):
            end = begin + late if late else 0
            state.held[token] = (cost, end)
            state.total += cost
            if end:
                state.expiries.append((end, token))
            if holder:
                state.holders[token] = holder
        heapq.heapify(state.expiries)
        return state

    def used(self, state: Permits, now: int) -> tuple[int, int]:
        self.roll(state, now)
        return state.total, 1

    def spent(self, now: int, top: int, bottom: int) -> Permits:
        return Permits()  # what another algorithm counted holds no permit
