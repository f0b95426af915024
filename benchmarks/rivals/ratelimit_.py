"""ratelimit: a decorator around one function, without keys."""

from ratelimit import limits

from benchmarks.loops import Factory, Hit, without_key

KEYED = False
ASYNC = False
LOOP = without_key


def _pass() -> bool:
    return True


def _decorated(amount: int, seconds: int) -> Hit:
    # Its cheaper form of refusal: None instead of an exception.
    hit: Hit = limits(amount, seconds, raise_on_limit=False)(_pass)
    return hit


ALGORITHMS: dict[str, Factory] = {"fixed-window": _decorated}


def allowed(answer: object) -> bool:
    return bool(answer)
