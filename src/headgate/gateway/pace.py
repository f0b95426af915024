"""Pace: bytes per second, kept by waiting between the pieces of a body."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from ..errors import HeadgateError
from ..integrations.common import rules_of
from ..limit import Limit
from ..limiter import AsyncLimiter
from ..rules.keys import key_reader

if TYPE_CHECKING:
    from ..facts import Facts

__all__ = ["Flow", "Pace", "bandwidth"]

SMALLEST, LARGEST = 1 << 10, 64 << 10
"""Of the pieces in which a body is paced."""
PER_SECOND = 20
"""A piece is at most what flows in the twentieth part of a second."""
SLACK = 0.05
"""Seconds that a body may be behind, and catch up."""


def bandwidth(text: str | Limit) -> Limit:
    """A limit on bytes; `10MiB/second` alone is a bucket that holds a tenth of a second.

    A window would let a second's bytes pass at once, and then nothing for a second.
    """
    limit = Limit.of(text)
    if limit.algorithm == "concurrency":
        raise ValueError(f"a bandwidth is an amount per second, as 10MiB/second; not {text}")
    if limit.algorithm != "sliding-window" or limit.cells is not None:
        return limit
    burst = max(2 * _piece(limit), round(limit.amount / limit.per / 10))
    return Limit(limit.amount, per=limit.per, algorithm="token-bucket", burst=burst,
                 unit=limit.unit, name=limit.name)  # fmt: skip


def _piece(limit: Limit) -> int:
    rate = limit.amount / limit.per
    return max(1, min(LARGEST, max(SMALLEST, int(rate / PER_SECOND))))


class Pace:
    """A bandwidth for the bodies of one direction: for each key together, for each body alone.

    shared   a limit of all bodies of a key together
    key      what is counted together, as in rules; a call that lacks it is not held up
    single   a limit of each body, as nginx's limit_rate
    after    so many bytes of a body pass freely first, as limit_rate_after
    """

    def __init__(
        self,
        shared: str | Limit | None = None,
        *,
        key: str = "ip",
        single: str | Limit | None = None,
        after: int = 0,
        store: Any = None,
        name: str = "bandwidth",
        clock: Any = None,
    ) -> None:
        self._limiter: AsyncLimiter | None = None
        self._piece = LARGEST
        if shared is not None:
            limit = bandwidth(shared)
            self._limiter = AsyncLimiter(limit, store=store, name=name, clock=clock)
            self._piece = min(self._piece, _piece(limit), limit.capacity)
        self._read = key_reader(rules_of((), key).rules[0].key)
        self._rate = 0.0
        if single is not None:
            limit = bandwidth(single)
            self._rate = limit.amount / limit.per
            self._piece = min(self._piece, _piece(limit))
        self._after = after

    def flow(self, facts: Facts) -> Flow | None:
        """The pace of one body; None if nothing holds it up."""
        limiter = self._limiter
        key = "" if limiter is None or self._read is None else self._read(facts)
        if not key:
            limiter = None
        if limiter is None and not self._rate:
            return None
        return Flow(limiter, key, self._rate, self._after, self._piece)

    async def close(self) -> None:
        """Let go of the store."""
        if self._limiter is not None:
            await self._limiter.close()


class Flow:
    """One body on its way, at its pace."""

    __slots__ = ("_due", "_free", "_key", "_limiter", "_loop", "_piece", "_rate")

    def __init__(
        self, limiter: AsyncLimiter | None, key: Any, rate: float, after: int, piece: int
    ) -> None:
        self._limiter, self._key = limiter, key
        self._rate, self._free, self._piece = rate, after, piece
        self._loop = asyncio.get_running_loop()
        self._due = 0.0

    async def pieces(self, chunk: bytes) -> AsyncIterator[bytes]:
        """A chunk in pieces, each when its time has come."""
        for place in range(0, len(chunk), self._piece):
            piece = chunk[place : place + self._piece]
            if self._rate:
                await self._alone(len(piece))
            if self._limiter is not None:
                await self._together(self._limiter, len(piece))
            yield piece

    async def _alone(self, size: int) -> None:
        if self._free > 0:
            self._free -= size
            return
        now = self._loop.time()
        # What a slow upstream left unused is not saved up, or hardly.
        due = max(self._due, now - SLACK)
        self._due = due + size / self._rate
        if due > now:
            await asyncio.sleep(due - now)

    async def _together(self, limiter: AsyncLimiter, size: int) -> None:
        try:
            await limiter.wait(self._key, size)
        except HeadgateError:  # a body under way is not broken off for that
            logging.getLogger("headgate").warning("a body is not paced", exc_info=True)
            self._limiter = None
