"""headgate through its public door: `Limiter(text).hit(key)`."""

from benchmarks.loops import Factory, Hit, by_truth
from headgate import Limiter

KEYED = True
ASYNC = False
LOOP = by_truth


def _limiter(options: str) -> Factory:
    """A factory for one algorithm; `{burst}` in its options becomes the amount less one."""

    def make(amount: int, seconds: int) -> Hit:
        return Limiter(f"{amount}/{seconds}s {options.format(burst=amount - 1)}").hit

    return make


ALGORITHMS: dict[str, Factory] = {
    "fixed-window": _limiter("fixed-window"),
    "sliding-window": _limiter("sliding-window"),
    "sliding-cells": _limiter("sliding-window cells 10"),
    "sliding-log": _limiter("sliding-log"),
    "token-bucket": _limiter("token-bucket"),
    "gcra": _limiter("gcra"),
    # Burst is the excess, as in nginx: burst n-1 admits n at once, as a rival's capacity n does.
    "leaky-bucket": _limiter("leaky-bucket burst {burst}"),
    "even": _limiter("even"),
}


def allowed(answer: object) -> bool:
    return bool(answer)
