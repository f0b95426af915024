"""hit_many: 10,000 known keys in one call, beside a hit for each of the same keys."""

from collections.abc import Callable
from random import Random
from time import perf_counter_ns

from benchmarks.loops import Factory, by_truth
from benchmarks.rivals import Rival
from benchmarks.scenarios.speed import in_turn

_KEYS = 10_000


def _keys() -> list[str]:
    """The keys in random order, new strings each time."""
    numbers = list(range(_KEYS))
    Random(0).shuffle(numbers)
    return [f"user:{number}" for number in numbers]


def _all_at_once(hit_many: Callable[[list[str]], list[object]], keys: list[str]) -> int:
    """Nanoseconds for one call about all keys, each answer asked for its truth."""
    start = perf_counter_ns()
    for answer in hit_many(keys):
        if answer:
            pass
    return perf_counter_ns() - start


def _kept(hit: Callable[[str], object], keys: list[str]) -> int:
    """Nanoseconds for a hit for each key, where every answer is kept before it is read."""
    start = perf_counter_ns()
    for answer in [hit(key) for key in keys]:
        if answer:
            pass
    return perf_counter_ns() - start


def hit_many(rival: Rival, make: Factory, algorithm: str, quick: bool) -> dict[str, float]:
    """Time both ways for each key of one list, the answers read alike.

    Of all the answers that hit_many gives, each is an object in memory; those of hit are gone
    before the next one is made. So hits that keep theirs are timed too, and told apart. And so
    are both ways with keys that were made a moment ago, whose text is in no cache yet.
    """
    from headgate import Limiter

    limiter = Limiter(f"{1000 * _KEYS}/3600s {algorithm}")
    keys = _keys()
    limiter.hit_many(keys)
    ns, one_by_one, kept, new, new_one_by_one = in_turn(
        lambda: _all_at_once(limiter.hit_many, keys) / _KEYS,  # type: ignore[arg-type]
        lambda: by_truth(limiter.hit, keys) / _KEYS,
        lambda: _kept(limiter.hit, keys) / _KEYS,
        lambda: _all_at_once(limiter.hit_many, _keys()) / _KEYS,  # type: ignore[arg-type]
        lambda: by_truth(limiter.hit, _keys()) / _KEYS,
        seconds=0.25 if quick else 0.5,
    )
    right = all(limiter.hit_many(keys))
    return {
        "ns": ns,
        "yardstick_ns": one_by_one,
        "kept_ns": kept,
        "new_ns": new,
        "new_yardstick_ns": new_one_by_one,
        "right": right,
    }
