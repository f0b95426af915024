"""token-bucket: `Limiter.consume` over MemoryStorage, which takes no lock."""

from token_bucket import Limiter, MemoryStorage

from benchmarks.loops import Factory, Hit, by_truth

KEYED = True
ASYNC = False
LOOP = by_truth


def _limiter(amount: int, seconds: int) -> Hit:
    hit: Hit = Limiter(amount / seconds, amount, MemoryStorage()).consume
    return hit


ALGORITHMS: dict[str, Factory] = {"token-bucket": _limiter}


def allowed(answer: object) -> bool:
    return bool(answer)
