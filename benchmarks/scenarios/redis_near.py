"""What is decided in this process although the limit is the server's, beside an in-process hit.

A leased key is hit within what was taken ahead of it; how much several processes together admit
more than the limit is counted too. A key over its limit is refused by what is known of it.
"""

import json
import subprocess
import sys
from bisect import bisect_left
from itertools import count, repeat
from time import time_ns

from benchmarks import redis_server
from benchmarks.far.headgate_ import NEAR, by_server
from benchmarks.keys import HOT_KEY
from benchmarks.loops import by_truth
from benchmarks.rivals import Rival
from benchmarks.scenarios.speed import in_turn

_WARM, _HITS = 100_000, 100_000
_AMOUNT = 1_000_000
_REFUSALS = 20_000
PROCESSES = 4
_SMALL = 1600
"""A second's limit that several processes share: a chunk of it is a hundred."""
_SECOND = 1_000_000_000


def lease(rival: Rival, make: object, algorithm: str, quick: bool) -> dict[str, float]:
    """Time a leased hot key, beside the same limit in memory; and count what is over the limit.

    A limit of a million is soon used up, so each batch has a key of its own, hit until its
    chunks are as large as they become.
    """
    from headgate import Limiter

    text = f"{_AMOUNT}/minute {algorithm}"
    batches = count()
    with (
        redis_server.started() as port,
        Limiter(f"{text} lease", store=redis_server.url(port) + NEAR) as far,
        Limiter(text) as here,
    ):

        def batch(limiter: Limiter) -> float:
            key = f"{HOT_KEY}:{next(batches)}"
            by_truth(limiter.hit, repeat(key, _WARM))
            spent = by_truth(limiter.hit, repeat(key, _HITS)) / _HITS
            last.append(limiter.hit(key))
            return spent

        last = [far.hit("warm")]
        ns, memory = in_turn(
            lambda: batch(far), lambda: batch(here), seconds=0.25 if quick else 0.5
        )
        right = all(map(by_server, last))
        found = _shared(redis_server.url(port) + NEAR, algorithm, 1.2 if quick else 2.2)
    right = right and not found.pop("strange")
    return {"ns": ns, "yardstick_ns": memory, "right": right} | found


def refused(rival: Rival, make: object, algorithm: str, quick: bool) -> dict[str, float]:
    """Time a hot key whose 5 an hour are used up, beside the same in memory."""
    from headgate import Limiter

    text = f"5/3600s {algorithm}"
    with (
        redis_server.started() as port,
        Limiter(text, store=redis_server.url(port) + NEAR) as far,
        Limiter(text) as here,
    ):
        for limiter in (far, here):
            by_truth(limiter.hit, repeat(HOT_KEY, 10))
        ns, memory = in_turn(
            lambda: by_truth(far.hit, repeat(HOT_KEY, _REFUSALS)) / _REFUSALS,
            lambda: by_truth(here.hit, repeat(HOT_KEY, _REFUSALS)) / _REFUSALS,
        )
        last = far.hit(HOT_KEY)
    return {"ns": ns, "yardstick_ns": memory, "right": not last and not last.degraded}


def _shared(address: str, algorithm: str, seconds: float) -> dict[str, float]:
    """What several processes admit of one small limit, over what it admits by itself."""
    from headgate import Limit
    from headgate.stores.lease import LeaseStore

    text = f"{_SMALL}/second {algorithm} lease"
    command = [sys.executable, "-m", "benchmarks.lease_worker", address, text]
    workers = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(PROCESSES)
    ]
    try:
        for worker in workers:
            assert worker.stdout is not None
            worker.stdout.readline()
        start = time_ns() + 20_000_000
        said = f"{start} {start + round(seconds * _SECOND)}\n"
        for worker in workers:
            assert worker.stdin is not None
            worker.stdin.write(said)
            worker.stdin.flush()
        answers = [json.loads(worker.communicate(timeout=60)[0]) for worker in workers]
    finally:
        for worker in workers:
            worker.kill()
    admitted = sorted(instant for instants, _ in answers for instant in instants)
    return {
        "admitted": len(admitted),
        "excess": _excess(algorithm, admitted),
        "bound": PROCESSES * LeaseStore.bound(Limit.parse(text)),
        "strange": sum(strange for _, strange in answers),
    }


def _excess(algorithm: str, admitted: list[int]) -> float:
    """By how much admissions at these instants go at most over what the algorithm admits.

    They are played back as if each had to be admitted: a bucket is then fuller than it can
    be, or a window counts more than its limit.
    """
    worst = 0.0
    if algorithm in ("gcra", "token-bucket"):
        level, before = 0.0, 0
        for instant in admitted:
            level = max(0.0, level - (instant - before) * _SMALL / _SECOND) + 1
            worst, before = max(worst, level - _SMALL), instant
        return worst
    for number, instant in enumerate(admitted):
        begun = instant - instant % _SECOND
        first = bisect_left(admitted, begun)
        counted = float(number + 1 - first)
        if algorithm == "sliding-window":
            earlier = first - bisect_left(admitted, begun - _SECOND)
            counted += earlier * (begun + _SECOND - instant) / _SECOND
        worst = max(worst, counted - _SMALL)
    return worst
