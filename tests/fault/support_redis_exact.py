"""Processes of threads or tasks take from one server, and count what they were admitted.

Run as `python -m fault.support_redis_exact FORM URL COLOUR WAY CALLS`. Prints, for each set of
limits, the admissions of each key by all processes, and what the server says is left.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from headgate import AsyncLimiter, Limiter
from headgate.stores import open_store
from headgate.stores.redis import RedisStore

from .support import check_form, forked, say

__all__ = ["COLOURS", "EACH", "KEYS", "MORE", "PERMITS", "SETS", "WAYS", "workers_of"]

EVER = "30d"
COLOURS = {"threads": (8, 4), "tasks": (4, 50)}
"""Processes, and threads or tasks in each."""
WAYS = ("one", "keys", "many", "opened")
"""One key, many keys, many keys in one call; and many on a store with all that a URL brings."""
SETS = {
    "window": ["fixed-window"], "sliding": ["sliding-window"], "log": ["sliding-log"],
    "cells": ["sliding-window cells 12"], "gcra": ["gcra"], "bucket": ["token-bucket"],
    "three": ["fixed-window", "gcra", "sliding-log"],
}  # fmt: skip
"""Limits that do not refill while this runs."""
KEYS, EACH = 200, 3
"""Of many keys each admits so many."""
MORE = 7
"""Of several limits each admits so many more than the one before."""
TOGETHER = 10
"""Keys in one call of many."""
PERMITS = 3
BUDGET = 60.0


def workers_of(colour: str) -> int:
    """How many threads or tasks there are in all."""
    processes, each = COLOURS[colour]
    return processes * each


def texts_of(name: str, amount: int) -> list[str]:
    """The limits of a set."""
    return [f"{amount + MORE * n}/{EVER} {text}" for n, text in enumerate(SETS[name])]


def keys_of(way: str, number: int, calls: int) -> list[list[str]]:
    """The keys of each call of one worker; workers begin at different ones."""
    if way == "one":
        return [["one"]] * calls
    if way in ("keys", "opened"):
        return [[f"key {(number * 37 + step) % KEYS}"] for step in range(calls)]
    # Every call asks for some keys twice.
    return [
        [f"key {(number * 37 + step * 7 + n % 7) % KEYS}" for n in range(TOGETHER)]
        for step in range(calls)
    ]


class Process:
    """What one process does: take, and write down what it was admitted."""

    def __init__(self, url: str, colour: str, way: str, calls: int, number: int) -> None:
        self.url, self.colour, self.way, self.calls = url, colour, way, calls
        self.number = number
        self.each = COLOURS[colour][1]

    def run(self, limits: Sequence[str], name: str, result: Path, start: float) -> None:
        """Take by all threads or tasks, which begin together as far as that can be."""
        store: Any = RedisStore(self.url, budget=BUDGET, connect_timeout=BUDGET)
        if self.way == "opened":
            store = open_store(f"{self.url}?budget={BUDGET}&connect_timeout={BUDGET}")
        self.start = start
        counts: Counter[str] = Counter()
        if self.colour == "threads":
            limiter = Limiter(*limits, store=store, name=name)
            sys.setswitchinterval(1e-5)
            found: list[Counter[str]] = [Counter() for _ in range(self.each)]
            wrong: list[BaseException] = []

            def work(n: int) -> None:
                try:
                    found[n] = self.thread(limiter, n)
                except BaseException as error:
                    wrong.append(error)

            threads = [threading.Thread(target=work, args=(n,)) for n in range(self.each)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert not wrong, wrong
            counts = sum(found, counts)
        else:
            counts = asyncio.run(self.tasks(store, limits, name))
        store.close()
        result.write_text(json.dumps(counts))

    def mine(self, worker: int) -> list[list[str]]:
        return keys_of(self.way, self.number * self.each + worker, self.calls)

    def thread(self, limiter: Limiter, worker: int) -> Counter[str]:
        """One thread's calls."""
        counts: Counter[str] = Counter()
        time.sleep(max(0.0, self.start - time.monotonic()))
        for keys in self.mine(worker):
            many = self.way == "many"
            decisions = limiter.hit_many(keys) if many else [limiter.hit(keys[0])]
            counts.update(key for key, d in zip(keys, decisions, strict=True) if d)
        return counts

    async def tasks(self, store: Any, limits: Sequence[str], name: str) -> Counter[str]:
        """All tasks' calls."""
        limiter = AsyncLimiter(*limits, store=store, name=name)
        await asyncio.sleep(max(0.0, self.start - time.monotonic()))
        found = await asyncio.gather(*(self.task(limiter, n) for n in range(self.each)))
        await store.close_async()
        return sum(found, Counter())

    async def task(self, limiter: AsyncLimiter, worker: int) -> Counter[str]:
        counts: Counter[str] = Counter()
        for keys in self.mine(worker):
            many = self.way == "many"
            decisions = await limiter.hit_many(keys) if many else [await limiter.hit(keys[0])]
            counts.update(key for key, d in zip(keys, decisions, strict=True) if d)
        return counts


class Holder(Process):
    """What one process does with permits: hold one, and look how many are held by all."""

    def run(self, limits: Sequence[str], name: str, result: Path, start: float) -> None:
        import redis

        self.seen = redis.Redis.from_url(self.url)
        self.start = start
        super().run(limits, name, result, start)

    def thread(self, limiter: Limiter, worker: int) -> Counter[str]:
        counts: Counter[str] = Counter()
        for _ in range(self.calls):
            with limiter.hold("door", timeout=120):
                counts[f"saw {self.seen.incr('inside')}"] += 1
                time.sleep(0.001)
                self.seen.decr("inside")
            counts["held"] += 1
        return counts

    async def task(self, limiter: AsyncLimiter, worker: int) -> Counter[str]:
        counts: Counter[str] = Counter()
        for _ in range(self.calls):
            async with limiter.hold("door", timeout=120):
                counts[f"saw {self.seen.incr('inside')}"] += 1
                await asyncio.sleep(0.001)
                self.seen.decr("inside")
            counts["held"] += 1
        return counts


def run_all(
    make: Callable[..., Process], limits: Sequence[str], name: str, folder: Path, *how: Any
) -> list[Counter[str]]:
    """What every process counted."""
    url, colour, way, calls = how
    start = time.monotonic() + 0.1
    pids, results = [], []
    for number in range(COLOURS[colour][0]):
        process, result = make(url, colour, way, calls, number), folder / f"{name} {number}"
        pids.append(forked(lambda p=process, r=result: p.run(limits, name, r, start)))  # type: ignore[misc]
        results.append(result)
    ends = [os.waitpid(pid, 0)[1] for pid in pids]
    assert not any(ends), ends
    return [Counter(json.loads(result.read_text())) for result in results]


def main(form: str, url: str, colour: str, way: str, calls: str) -> None:
    check_form(form)
    found: dict[str, Any] = {}
    amount = int(workers_of(colour) * int(calls) * 0.6) if way == "one" else EACH
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if way == "permits":
            door = [f"{PERMITS} concurrent"]
            each = run_all(Holder, door, way, folder, url, colour, way, int(calls))
            found = sum(each, Counter())
        else:
            store = RedisStore(url, budget=BUDGET, connect_timeout=BUDGET)
            for one in SETS:
                limits = texts_of(one, amount)
                each = run_all(Process, limits, one, folder, url, colour, way, int(calls))
                counts = sum(each, Counter())
                limiter = Limiter(*limits, store=store, name=one)
                left = {key: [part.remaining for part in limiter.peek(key).parts] for key in counts}
                found[one] = [amount, counts, left]
            store.close()
    say(found)


if __name__ == "__main__":
    main(*sys.argv[1:])
