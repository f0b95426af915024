"""limits: a strategy over MemoryStorage; `partial` binds the item without a Python frame."""

from functools import partial

from limits import RateLimitItemPerSecond, strategies
from limits.storage import MemoryStorage

from benchmarks.loops import Factory, Hit, by_truth

KEYED = True
ASYNC = False
LOOP = by_truth


def _strategy(kind: type[strategies.RateLimiter]) -> Factory:
    def make(amount: int, seconds: int) -> Hit:
        return partial(kind(MemoryStorage()).hit, RateLimitItemPerSecond(amount, seconds))

    return make


ALGORITHMS: dict[str, Factory] = {
    "fixed-window": _strategy(strategies.FixedWindowRateLimiter),
    "sliding-window": _strategy(strategies.SlidingWindowCounterRateLimiter),
    "sliding-log": _strategy(strategies.MovingWindowRateLimiter),
}


def allowed(answer: object) -> bool:
    return bool(answer)
