"""rush: `Throttle.check` over DictionaryStore, its only store in memory."""

from datetime import timedelta
from functools import partial

from rush.limiters.base import BaseLimiter
from rush.limiters.gcra import GenericCellRatelimiter
from rush.limiters.periodic import PeriodicLimiter
from rush.quota import Quota
from rush.stores.dictionary import DictionaryStore
from rush.throttle import Throttle

from benchmarks.loops import Factory, Hit, by_limited

KEYED = True
ASYNC = False
LOOP = by_limited


def _throttle(kind: type[BaseLimiter]) -> Factory:
    def make(amount: int, seconds: int) -> Hit:
        quota = Quota(period=timedelta(seconds=seconds), count=amount)
        return partial(Throttle(quota, kind(DictionaryStore())).check, quantity=1)

    return make


ALGORITHMS: dict[str, Factory] = {
    "fixed-window": _throttle(PeriodicLimiter),
    "gcra": _throttle(GenericCellRatelimiter),
}


def allowed(answer: object) -> bool:
    return not answer.limited  # type: ignore[attr-defined]
