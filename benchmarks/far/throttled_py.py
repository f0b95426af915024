"""throttled-py: `Throttled.limit` over its RedisStore; what remains comes with the answer."""

from collections.abc import Iterable
from datetime import timedelta
from time import perf_counter_ns
from typing import Any

from throttled import RateLimiterType, RedisStore, Throttled, asyncio, per_duration

from benchmarks.far import AsyncFactory, AsyncWay, Factory, Way
from benchmarks.loops import Hit, by_limited

_KINDS = {
    "fixed-window": RateLimiterType.FIXED_WINDOW,
    "sliding-window": RateLimiterType.SLIDING_WINDOW,
    "token-bucket": RateLimiterType.TOKEN_BUCKET,
    "gcra": RateLimiterType.GCRA,
    "leaky-bucket": RateLimiterType.LEAKING_BUCKET,
}


def _allowed(answer: Any) -> bool:
    return not answer.limited


def _told(hit: Hit, keys: Iterable[str]) -> int:
    """Nanoseconds for hitting every key and reading two numbers of each answer."""
    start = perf_counter_ns()
    for key in keys:
        answer: Any = hit(key)
        if not answer.limited:
            _ = answer.state.remaining, answer.state.reset_after
    return perf_counter_ns() - start


def _one(using: RateLimiterType) -> Factory:
    def make(url: str, amount: int, seconds: int) -> Way:
        quota = per_duration(timedelta(seconds=seconds), amount, burst=amount)
        limiter = Throttled(using=using.value, quota=quota, store=RedisStore(server=url))
        return Way(limiter.limit, loop=by_limited, told=_told, allowed=_allowed)

    return make


def _async(using: RateLimiterType) -> AsyncFactory:
    def make(url: str, amount: int, seconds: int) -> AsyncWay:
        quota = asyncio.per_duration(timedelta(seconds=seconds), amount, burst=amount)
        store = asyncio.RedisStore(server=url)
        limiter = asyncio.Throttled(using=using.value, quota=quota, store=store)
        return AsyncWay(limiter.limit, allowed=_allowed)

    return make


_SYNC = {name: _one(using) for name, using in _KINDS.items()}
TABLES = {
    "sync": _SYNC,
    "async": {name: _async(using) for name, using in _KINDS.items()},
    "memory": _SYNC,
}
