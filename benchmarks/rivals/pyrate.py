"""pyrate-limiter: keys come from a BucketFactory, as its documentation shows.

`blocking=False` is its way to ask without waiting. It also does not wait for the limiter's lock,
so under threads it refuses calls that the limit would have allowed.
"""

from collections.abc import Callable
from functools import partial

from pyrate_limiter import (
    GCRA,
    AbstractBucket,
    BucketFactory,
    FixedWindow,
    InMemoryBucket,
    Limiter,
    LogAlgorithm,
    MonotonicClock,
    Rate,
    RateItem,
    SlidingWindowLog,
    StateAlgorithm,
    StateBucket,
    TokenBucket,
)

from benchmarks.loops import Factory, Hit, by_truth

KEYED = True
ASYNC = False
LOOP = by_truth

MakeBucket = Callable[[], AbstractBucket]


class _PerKey(BucketFactory):  # type: ignore[misc, unused-ignore] # not installed beside tests
    """A bucket for every key, made when it is first asked for."""

    def __init__(self, make_bucket: MakeBucket, leaks: bool) -> None:
        self.clock = MonotonicClock()
        self.buckets: dict[str, AbstractBucket] = {}
        self.make_bucket = make_bucket
        self.leaks = leaks

    def wrap_item(self, name: str, weight: int = 1) -> RateItem:
        return RateItem(name, self.clock.now(), weight)

    def get(self, item: RateItem) -> AbstractBucket:
        bucket = self.buckets.get(item.name)
        if bucket is None:
            bucket = self.buckets[item.name] = self.make_bucket()
            if self.leaks:
                self.schedule_leak(bucket)
        return bucket


def _limiter(factory: BucketFactory) -> Hit:
    return partial(Limiter(factory).try_acquire, blocking=False)


def _log(kind: type[LogAlgorithm]) -> Factory:
    def make(amount: int, seconds: int) -> Hit:
        rates, algorithm = [Rate(amount, seconds * 1000)], kind()
        return _limiter(_PerKey(lambda: InMemoryBucket(rates, algorithm), leaks=True))

    return make


def _state(kind: type[StateAlgorithm]) -> Factory:
    def make(amount: int, seconds: int) -> Hit:
        rates, algorithm = [Rate(amount, seconds * 1000)], kind()
        # A StateBucket's leak does nothing, so scheduling it would only cost.
        return _limiter(_PerKey(lambda: StateBucket(rates, algorithm), leaks=False))

    return make


ALGORITHMS: dict[str, Factory] = {
    "fixed-window": _log(FixedWindow),
    "sliding-log": _log(SlidingWindowLog),
    "token-bucket": _state(TokenBucket),
    "gcra": _state(GCRA),
}


def allowed(answer: object) -> bool:
    return bool(answer)
