"""`headgate loadcheck`: N threads x M requests against each algorithm, and what passed.

The preset is 20/s in 10 cells, capacity 100, 4 threads x 1,000 requests with pauses of 0 to
10 ms. What may pass follows from each algorithm's guarantee and the time the run took; the
verdict compares it with what did pass.
"""

from __future__ import annotations

import argparse
import json
import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from ..errors import HeadgateError
from ..limit import Limit
from ..limiter import Limiter

__all__ = ["Report", "check", "main", "register"]

BAR = 30


class Report(NamedTuple):
    """What one algorithm let pass."""

    limit: str
    seconds: float
    passed: int
    limited: int
    least: int
    most: int

    @property
    def good(self) -> bool:
        return self.least <= self.passed <= self.most


def presets(rate: int, cells: int, capacity: int) -> dict[str, str]:
    """Each algorithm by its plain name, as a limit's text."""
    return {
        "fixed window": f"{rate}/second fixed-window",
        "sliding window": f"{rate}/second",
        "sliding cells": f"{rate}/second cells {cells}",
        "sliding log": f"{rate}/second sliding-log",
        "leaky bucket": f"{rate}/second leaky-bucket burst {capacity - 1}",
        "token bucket": f"{rate}/second burst {capacity}",
        "gcra": f"{rate}/second gcra burst {capacity}",
        "even": f"{rate}/second even",
    }


def bounds(limit: Limit, seconds: float, asked: int) -> tuple[int, int]:
    """The least and the most that may pass in a run that asks all the time.

    The most is the algorithm's guarantee. The least allows for the pauses: nobody may have
    asked at the very moment something was free.
    """
    rate = limit.amount / limit.per
    if limit.algorithm in ("token-bucket", "gcra", "leaky-bucket"):
        least = most = limit.capacity + rate * seconds
    elif limit.algorithm == "even":
        least = most = rate * seconds + 1
    else:  # whole windows, of which the run may touch one more at each end
        least, most = rate * (seconds - limit.per), rate * (seconds + 2 * limit.per)
    return min(asked, max(0, int(0.85 * least) - 2)), int(most) + 1


def check(
    limit: str,
    *,
    threads: int = 4,
    requests: int = 1000,
    pause: float = 0.010,
    drained: bool = False,
    store: str | None = None,
    seconds: float | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> Report:
    """Run the load against one limit; with `seconds`, as many requests as fit into them."""
    limiter = Limiter(limit, store=store)
    if drained:
        while limiter.hit("load", partial=True, cost=1):
            pass
    drained_at = time.monotonic()
    counts = [[0, 0] for _ in range(threads)]
    ready = threading.Barrier(threads + 1)

    def work(count: list[int], seed: int) -> None:
        draw = random.Random(seed)
        ready.wait()
        end = None if seconds is None else time.monotonic() + seconds
        while count[0] + count[1] < requests if end is None else time.monotonic() < end:
            count[0 if limiter.hit("load") else 1] += 1
            if pause:
                sleep(draw.uniform(0, pause))

    workers = [
        threading.Thread(target=work, args=(count, seed)) for seed, count in enumerate(counts)
    ]
    for worker in workers:
        worker.start()
    ready.wait()
    start = time.monotonic()
    for worker in workers:
        worker.join()
    spent = time.monotonic() - start
    passed, limited = (sum(column) for column in zip(*counts, strict=True))
    least, most = bounds(limiter.limits[0], spent, passed + limited)
    if drained and limiter.limits[0].algorithm in ("token-bucket", "gcra", "leaky-bucket"):
        # What flows in between the draining and the first request may pass too.
        full = limiter.limits[0].capacity
        most = bounds(limiter.limits[0], time.monotonic() - drained_at, 0)[1] - full + 1
        least = max(0, least - full)
    limiter.close()
    return Report(limit, spent, passed, limited, least, most)


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command and its options."""
    parser = commands.add_parser("loadcheck", help="load every algorithm and check what passes")
    parser.add_argument("limits", nargs="*", metavar="LIMIT", help="limits to try instead")
    parser.add_argument("--rate", type=int, default=20, help="per second (20)")
    parser.add_argument("--cells", type=int, default=10, help="cells of the sliding window (10)")
    parser.add_argument("--capacity", type=int, default=100, help="of the buckets (100)")
    parser.add_argument("--threads", type=int, default=4, help="(4)")
    parser.add_argument("--requests", type=int, default=1000, help="per thread (1000)")
    parser.add_argument("--pause", type=float, default=10.0, help="longest pause in ms (10)")
    parser.add_argument("--seconds", type=float, help="run for so long instead of --requests")
    parser.add_argument("--drained", action="store_true", help="empty the buckets first")
    parser.add_argument("--store", help="a store's URL (memory://)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=main)


def main(options: argparse.Namespace) -> int:
    """Run every check at the same time, print the table; 1 if a verdict is bad."""
    texts = {text: text for text in options.limits} or presets(
        options.rate, options.cells, options.capacity
    )
    try:
        for text in texts.values():
            Limit.parse(text)
    except HeadgateError as error:
        print(f"headgate loadcheck: {error}")
        return 2
    if not options.json:
        load = f"{options.seconds:g} s" if options.seconds else f"{options.requests:,} requests"
        print(f"{options.threads} threads x {load}, pauses of 0 to {options.pause:g} ms\n")
        print(
            f"{'':15}{'expected/s':>13}{'actual/s':>10}{'passed':>8}{'limited':>9}  verdict  "
            "passed of the most that may"
        )

    def one(text: str) -> Report:
        return check(
            text,
            threads=options.threads,
            requests=options.requests,
            pause=options.pause / 1000,
            drained=options.drained,
            store=options.store,
            seconds=options.seconds,
        )

    reports = {}
    with ThreadPoolExecutor(len(texts)) as pool:
        for name, report in zip(texts, pool.map(one, texts.values()), strict=True):
            reports[name] = report
            if not options.json:
                print(_row(name, report), flush=True)
    if options.json:
        rows = {name: {**r._asdict(), "good": r.good} for name, r in reports.items()}
        print(json.dumps(rows, indent=1))
    return 0 if all(report.good for report in reports.values()) else 1


def _row(name: str, report: Report) -> str:
    share = min(1.0, report.passed / max(1, report.most))
    bar = "#" * round(BAR * share) + "." * (BAR - round(BAR * share))
    seconds = report.seconds or 1.0
    expected = f"{report.least / seconds:.1f}-{report.most / seconds:.1f}"
    verdict = "good" if report.good else "BAD"
    return (
        f"{name[:14]:15}{expected:>13}{report.passed / seconds:10.1f}{report.passed:8}"
        f"{report.limited:9}  {verdict:7}  {bar}"
    )
