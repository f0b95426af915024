"""throttled-py: `Throttled.limit` over a MemoryStore with room for every key."""

from datetime import timedelta

from throttled import MemoryStore, RateLimiterType, Throttled, per_duration

from benchmarks.loops import Factory, Hit, by_limited

KEYED = True
ASYNC = False
LOOP = by_limited

# The default of 1,024 would evict; sliding windows use two entries for a key.
_MAX_SIZE = 4_000_000


def _throttled(using: RateLimiterType) -> Factory:
    def make(amount: int, seconds: int) -> Hit:
        store = MemoryStore(options={"MAX_SIZE": _MAX_SIZE})
        quota = per_duration(timedelta(seconds=seconds), amount, burst=amount)
        hit: Hit = Throttled(using=using.value, quota=quota, store=store).limit
        return hit

    return make


ALGORITHMS: dict[str, Factory] = {
    "fixed-window": _throttled(RateLimiterType.FIXED_WINDOW),
    "sliding-window": _throttled(RateLimiterType.SLIDING_WINDOW),
    "token-bucket": _throttled(RateLimiterType.TOKEN_BUCKET),
    "gcra": _throttled(RateLimiterType.GCRA),
    "leaky-bucket": _throttled(RateLimiterType.LEAKING_BUCKET),
}


def allowed(answer: object) -> bool:
    return not answer.limited  # type: ignore[attr-defined]
