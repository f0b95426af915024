"""Holds a permit, or reserves a cost, until it is killed.

Run as `python -m fault.support_redis_holder FORM URL WAY TTL`. Prints a line once it holds.
"""

from __future__ import annotations

import asyncio
import sys
import time

from headgate import AsyncLimiter, Limiter
from headgate.stores.redis import RedisStore

from .support import check_form, say

__all__ = ["LIMITS"]

LIMITS = {
    "thread": "1 concurrent", "task": "1 concurrent", "given": "1 concurrent",
    "reservation": "1/30d fixed-window",
}  # fmt: skip
"""What is held in each way: by a thread or a task and renewed, for a given time, or reserved."""
FOREVER = 1000.0


def main(form: str, url: str, way: str, ttl: str) -> None:
    check_form(form)
    store = RedisStore(url, budget=30, connect_timeout=30)
    seconds = float(ttl)
    if way in ("thread", "task"):
        store.lease_ttl = seconds
    if way == "task":
        asyncio.run(hold(AsyncLimiter(LIMITS[way], store=store, name=way)))
    limiter = Limiter(LIMITS[way], store=store, name=way)
    if way == "reservation":
        with limiter.reserve("door", ttl=seconds):
            hold_on()
    with limiter.hold("door", ttl=seconds if way == "given" else None):
        hold_on()


async def hold(limiter: AsyncLimiter) -> None:
    async with limiter.hold("door"):
        say("held")
        sys.stdout.flush()
        await asyncio.sleep(FOREVER)


def hold_on() -> None:
    say("held")
    sys.stdout.flush()
    time.sleep(FOREVER)


if __name__ == "__main__":
    main(*sys.argv[1:])
