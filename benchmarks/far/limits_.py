"""limits: a strategy over its RedisStorage; for tasks over redis-py's asyncio client."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from limits import RateLimitItemPerSecond, aio, strategies
from limits.aio.storage import RedisStorage as AsyncRedisStorage
from limits.storage import RedisStorage

from benchmarks.far import STEPS, AsyncFactory, AsyncWay, Factory, Way, each
from benchmarks.loops import Hit

_KINDS: dict[str, Any] = {
    "fixed-window": strategies.FixedWindowRateLimiter,
    "sliding-window": strategies.SlidingWindowCounterRateLimiter,
    "sliding-log": strategies.MovingWindowRateLimiter,
}
_ASYNC_KINDS: dict[str, Any] = {
    "fixed-window": aio.strategies.FixedWindowRateLimiter,
    "sliding-window": aio.strategies.SlidingWindowCounterRateLimiter,
    "sliding-log": aio.strategies.MovingWindowRateLimiter,
}


def _one(kind: type[strategies.RateLimiter]) -> Factory:
    def make(url: str, amount: int, seconds: int) -> Way:
        limiter, item = kind(RedisStorage(url)), RateLimitItemPerSecond(amount, seconds)

        def whole(key: str) -> None:
            limiter.hit(item, key)
            limiter.get_window_stats(item, key)

        return Way(partial(limiter.hit, item), told=_asking(whole))

    return make


def _asking(whole: Callable[[str], None]) -> Callable[[Hit, Iterable[str]], int]:
    """A loop that asks for the numbers by a call of their own, as its documentation does."""
    return lambda hit, keys: each(whole, keys)


def _three(kind: type[strategies.RateLimiter]) -> Factory:
    """Three hits; one that is refused leaves those before it taken."""

    def make(url: str, amount: int, seconds: int) -> Way:
        limiter = kind(RedisStorage(url))
        items = [RateLimitItemPerSecond(amount * step, seconds * step) for step in STEPS]

        def hit(key: str) -> bool:
            return all(limiter.hit(item, key) for item in items)

        def whole(key: str) -> None:
            hit(key)
            for item in items:
                limiter.get_window_stats(item, key)

        return Way(hit, told=_asking(whole))

    return make


def _async(kind: type[aio.strategies.RateLimiter]) -> AsyncFactory:
    def make(url: str, amount: int, seconds: int) -> AsyncWay:
        storage = AsyncRedisStorage(f"async+{url}", implementation="redispy")
        item = RateLimitItemPerSecond(amount, seconds)
        return AsyncWay(partial(kind(storage).hit, item))

    return make


_SYNC = {name: _one(kind) for name, kind in _KINDS.items()}
TABLES = {
    "sync": _SYNC,
    "three": {name: _three(_KINDS[name]) for name in ("fixed-window", "sliding-window")},
    "async": {name: _async(kind) for name, kind in _ASYNC_KINDS.items()},
    "memory": _SYNC,
}
