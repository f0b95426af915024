"""Reach: whether a store that lies elsewhere answers, asked for those who want to know it now.

A store in front of which a Failover stands is known to be away only after calls have failed; a
service that nobody has called yet has no such calls. So it is asked, in place of a caller, by a
look that takes nothing: at most once a second however many want to know, and within a bound.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

from ..decision import Ask
from ..errors import StoreError
from ..limit import Limit

__all__ = ["Reach"]

FRESH = 1.0
"""Seconds that an answer holds."""
BOUND = 1.0
"""Seconds that asking may take."""
TRIES, PAUSE = 3, 0.05
"""A first connection may take longer than a call's budget: so often, and so far apart."""
LOOK = Ask(
    "check", Limit.parse("1/second fixed-window"), "readyz", 1, "headgate.readyz", on_error="allow"
)


class Reach:
    """Whether a store answers."""

    def __init__(self, store: Any) -> None:
        while store is not None and not hasattr(store, "degraded"):
            store = getattr(store, "store", None)  # a tier in front of another
        self._store = store
        """The Failover; None in front of a store that is within reach."""
        self._there = True
        self._until = float("-inf")
        self._asking: asyncio.Task[bool] | None = None

    async def there(self) -> bool:
        """Whether it answers; all who ask at the same time wait for one answer."""
        store = self._store
        if store is None:
            return True
        if time.monotonic() >= self._until:
            if self._asking is None:
                self._asking = asyncio.get_running_loop().create_task(self._ask())
                self._asking.add_done_callback(self._asked)
            await asyncio.shield(self._asking)  # whoever hangs up does not take it along
        return self._there and not store.degraded

    def _asked(self, task: asyncio.Task[bool]) -> None:
        self._asking = None
        self._there = not task.cancelled() and task.exception() is None and task.result()
        self._until = time.monotonic() + FRESH

    async def _ask(self) -> bool:
        try:
            async with asyncio.timeout(BOUND):
                for number in range(TRIES):
                    if number:
                        await asyncio.sleep(PAUSE)
                    (found,) = await self._store.decide_async([LOOK])
                    if not found.degraded:
                        return True
        except (TimeoutError, StoreError):
            pass
        return False
