"""aiolimiter: one leaky bucket for asyncio, without keys; it waits and never refuses."""

from aiolimiter import AsyncLimiter

from benchmarks.loops import Factory, Hit, awaited

KEYED = False
ASYNC = True
LOOP = awaited


def _limiter(amount: int, seconds: int) -> Hit:
    hit: Hit = AsyncLimiter(amount, seconds).acquire
    return hit


ALGORITHMS: dict[str, Factory] = {"leaky-bucket": _limiter}


def allowed(answer: object) -> bool:
    return True
