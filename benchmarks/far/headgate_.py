"""headgate by URL, through its public door; no refusal is remembered, so the server decides."""

from collections.abc import Callable, Iterable
from time import perf_counter_ns
from typing import Any

from benchmarks.far import STEPS, AsyncFactory, AsyncWay, Factory, Way
from benchmarks.loops import Hit
from headgate import AsyncLimiter, Limiter

# A budget that a busy machine does not break: what is answered here would be no measurement.
PLAIN = "?cache=no&budget=1s"
NEAR = "?budget=1s"

OPTIONS = {
    "fixed-window": "fixed-window",
    "sliding-window": "sliding-window",
    "sliding-cells": "sliding-window cells 10",
    "sliding-log": "sliding-log",
    "token-bucket": "token-bucket",
    "gcra": "gcra",
    "leaky-bucket": "leaky-bucket burst {burst}",
    "even": "even",
}
MIXED = ("gcra", "fixed-window", "sliding-window")


def text(algorithm: str, amount: int, seconds: int) -> str:
    """A limit as one writes it; burst is the excess, as in nginx."""
    return f"{amount}/{seconds}s {OPTIONS[algorithm].format(burst=amount - 1)}"


def by_server(answer: Any) -> bool:
    """Whether a decision allows, and is the server's."""
    return bool(answer) and not answer.degraded


def always_by_server(limiter: Limiter | AsyncLimiter) -> Callable[[Any], bool]:
    """Whether a decision allows, and this limiter's server has made every one so far."""
    failover: Any = limiter.store.store  # type: ignore[attr-defined] # behind the local tier
    return lambda answer: by_server(answer) and not failover.degraded_decisions


def _told(hit: Hit, keys: Iterable[str]) -> int:
    """Nanoseconds for hitting every key and reading two numbers of each decision."""
    start = perf_counter_ns()
    for key in keys:
        decision: Any = hit(key)
        if decision:
            _ = decision.remaining, decision.reset_after
    return perf_counter_ns() - start


def _warm(*texts: str, url: str) -> Limiter:
    """A limiter that has found its way: the first hit connects, and tells the server its shape."""
    limiter = Limiter(*texts, store=url + PLAIN)
    limiter.hit("warm")
    return limiter


def _one(algorithm: str) -> Factory:
    def make(url: str, amount: int, seconds: int) -> Way:
        limiter = _warm(text(algorithm, amount, seconds), url=url)
        return Way(limiter.hit, told=_told, allowed=always_by_server(limiter))

    return make


def _three(*algorithms: str) -> Factory:
    def make(url: str, amount: int, seconds: int) -> Way:
        pairs = zip(STEPS, algorithms, strict=True)
        texts = [text(name, amount * step, seconds * step) for step, name in pairs]
        limiter = _warm(*texts, url=url)
        return Way(limiter.hit, told=_told, allowed=always_by_server(limiter))

    return make


def _async(algorithm: str) -> AsyncFactory:
    def make(url: str, amount: int, seconds: int) -> AsyncWay:
        limiter = AsyncLimiter(text(algorithm, amount, seconds), store=url + PLAIN)
        return AsyncWay(limiter.hit, allowed=always_by_server(limiter))

    return make


TABLES = {
    "sync": {name: _one(name) for name in OPTIONS},
    "three": {name: _three(name, name, name) for name in ("fixed-window", "sliding-window", "gcra")}
    | {"three kinds": _three(*MIXED)},
    "async": {name: _async(name) for name in OPTIONS},
    "near": dict.fromkeys(("fixed-window", "sliding-window", "token-bucket", "gcra")),
    "work": dict.fromkeys(OPTIONS),
    "memory": dict.fromkeys((*OPTIONS, "concurrency")),
}
