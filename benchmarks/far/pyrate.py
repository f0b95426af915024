"""pyrate-limiter: a Redis bucket for every key, from a BucketFactory as its documentation shows.

Its logs are sorted sets that grow by an entry for each hit, its fixed window too. Tasks share
one lock of its limiter, so their asks go one by one.
"""

from collections.abc import Callable
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from pyrate_limiter import (
    GCRA,
    AbstractBucket,
    BucketFactory,
    FixedWindow,
    Limiter,
    LogAlgorithm,
    Rate,
    RateItem,
    RedisBucket,
    SlidingWindowLog,
    StateAlgorithm,
    StateBucket,
    TokenBucket,
)
from pyrate_limiter.buckets.redis_bucket import LuaScript
from pyrate_limiter.buckets.redis_state import RedisStateStore
from pyrate_limiter.clocks import WallClock

from benchmarks import redis_server
from benchmarks.far import AsyncFactory, AsyncWay, Factory, Way

MakeBucket = Callable[[str], AbstractBucket]
BucketMaker = Callable[[Any, Any, int, int], MakeBucket]
"""From a client, one that answers at once, an amount and a period to buckets by name."""


class _PerKey(BucketFactory):  # type: ignore[misc, unused-ignore] # not installed beside tests
    """A bucket for every key, made when it is first asked for."""

    def __init__(self, make_bucket: MakeBucket) -> None:
        self.clock = WallClock()
        self.buckets: dict[str, AbstractBucket] = {}
        self.make_bucket = make_bucket

    def wrap_item(self, name: str, weight: int = 1) -> RateItem:
        return RateItem(name, self.clock.now(), weight)

    def get(self, item: RateItem) -> AbstractBucket:
        bucket = self.buckets.get(item.name)
        if bucket is None:
            bucket = self.buckets[item.name] = self.make_bucket(item.name)
        return bucket


def _log(kind: type[LogAlgorithm]) -> BucketMaker:
    def maker(client: Any, plain: Any, amount: int, seconds: int) -> MakeBucket:
        rates, algorithm = [Rate(amount, seconds * 1000)], kind()
        loaded = plain.script_load(LuaScript.PUT_ITEM)
        return lambda key: RedisBucket(rates, client, key, loaded, algorithm)

    return maker


def _state(kind: type[StateAlgorithm]) -> BucketMaker:
    def maker(client: Any, plain: Any, amount: int, seconds: int) -> MakeBucket:
        rates, algorithm = [Rate(amount, seconds * 1000)], kind()
        return lambda key: StateBucket(rates, algorithm, RedisStateStore(client, key))

    return maker


def _port(url: str) -> int:
    port = urlsplit(url).port
    assert port is not None
    return port


def _one(maker: BucketMaker) -> Factory:
    def make(url: str, amount: int, seconds: int) -> Way:
        client = redis_server.client(_port(url))
        limiter = Limiter(_PerKey(maker(client, client, amount, seconds)))
        return Way(partial(limiter.try_acquire, blocking=False))

    return make


def _async(maker: BucketMaker) -> AsyncFactory:
    def make(url: str, amount: int, seconds: int) -> AsyncWay:
        port = _port(url)
        client, plain = redis_server.async_client(port), redis_server.client(port)
        make_bucket = maker(client, plain, amount, seconds)
        limiter = Limiter(_PerKey(make_bucket))
        return AsyncWay(partial(limiter.try_acquire_async, blocking=False))

    return make


_KINDS = {
    "fixed-window": _log(FixedWindow),
    "sliding-log": _log(SlidingWindowLog),
    "token-bucket": _state(TokenBucket),
    "gcra": _state(GCRA),
}
_SYNC = {name: _one(maker) for name, maker in _KINDS.items()}
TABLES = {
    "sync": _SYNC,
    "async": {name: _async(maker) for name, maker in _KINDS.items()},
    "memory": _SYNC,
}
