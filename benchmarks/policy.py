"""What a policy and a retry add to a call that goes well: `python -m benchmarks.policy`.

A function that returns its argument is called bare, through each, and through what it is held
against, all in turns in one process; the best of many turns counts. The full policy (breaker,
bulkhead, time limit, fallback) is held against the breaker alone. A retry's share is what it adds
to a bare call, beside what tenacity and stamina add.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
from collections.abc import Callable
from importlib import import_module
from time import monotonic_ns, perf_counter_ns
from typing import Any

WAYS = ("async", "plain")
_CALLS, _READS = 300, 5_000
_TURNS, _QUICK = 80, 20


async def _later(value: int) -> int:
    return value


def _plain(value: int) -> int:
    return value


def _policies(function: Any) -> dict[str, Any]:
    from headgate.resilience import Breaker, Bulkhead, Policy

    policy = Policy(
        "orders",
        breaker=Breaker("orders"),
        bulkhead=Bulkhead(100, timeout=1.0),
        time_limit=5.0,
        fallback=None,
    )
    return {"policy": policy(function), "breaker": Breaker("alone")(function)}


def _retries(function: Any) -> dict[str, Any]:
    from headgate.resilience import Retry

    found = {"retry": Retry(3, on=OSError)(function)}
    with contextlib.suppress(ImportError):  # not installed
        tenacity = import_module("tenacity")
        found["tenacity"] = tenacity.retry(
            stop=tenacity.stop_after_attempt(3), retry=tenacity.retry_if_exception_type(OSError)
        )(function)
    with contextlib.suppress(ImportError):  # not installed
        found["stamina"] = import_module("stamina").retry(on=OSError, attempts=3)(function)
    return found


async def _batch(function: Any, way: str) -> float:
    """Nanoseconds for a call."""
    start = perf_counter_ns()
    if way == "async":
        for _ in range(_CALLS):
            await function(1)
    else:
        for _ in range(_CALLS):
            function(1)
    return (perf_counter_ns() - start) / _CALLS


def _reads() -> float:
    start = perf_counter_ns()
    for _ in range(_READS):
        monotonic_ns()
    return (perf_counter_ns() - start) / _READS


async def _measured(
    make: Callable[[Any], dict[str, Any]], way: str, turns: int
) -> dict[str, float]:
    bare: Any = _later if way == "async" else _plain
    functions = {"bare": bare, **make(bare)}
    best = dict.fromkeys([*functions, "clock"], float("inf"))
    for _ in range(turns):
        best["clock"] = min(best["clock"], _reads())
        gc.collect()
        for name, function in functions.items():
            best[name] = min(best[name], await _batch(function, way))
    answers = [
        (await function(7)) if way == "async" else function(7) for function in functions.values()
    ]
    return best | {"right": answers == [7] * len(answers)}


def beside_breaker(rival: object, make: object, way: str, quick: bool) -> dict[str, float]:
    """A call through the full policy, beside one through the breaker alone."""
    best = asyncio.run(_measured(_policies, way, _QUICK if quick else _TURNS))
    return {
        "ns": best["policy"], "yardstick_ns": best["breaker"], "bare_ns": best["bare"],
        "right": best["right"],
    }  # fmt: skip


def retry_adds(rival: object, make: object, way: str, quick: bool) -> dict[str, float]:
    """What a retry adds to a call that goes well, and what others add."""
    best = asyncio.run(_measured(_retries, way, _QUICK if quick else _TURNS))
    found = {
        f"{name} adds": best[name] - best["bare"]
        for name in ("tenacity", "stamina")
        if name in best
    }
    return found | {
        "ns": best["retry"] - best["bare"], "yardstick_ns": best["clock"],
        "bare_ns": best["bare"], "right": best["right"],
    }  # fmt: skip


def main() -> None:
    """Print one measurement."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    chosen = parser.parse_args()
    for way in WAYS:
        found = beside_breaker(None, None, way, chosen.quick)
        print(
            f"{way}: bare {found['bare_ns']:,.0f} ns, breaker {found['yardstick_ns']:,.0f}, "
            f"full policy {found['ns']:,.0f}: {found['ns'] / found['yardstick_ns']:.2f} x"
        )
        found = retry_adds(None, None, way, chosen.quick)
        others = "; ".join(
            f"{name} {found[name]:,.0f} ({found['ns'] / found[name]:.4f} x)"
            for name in found
            if name.endswith(" adds")
        )
        print(f"{way}: a retry adds {found['ns']:,.0f} ns; {others}")


if __name__ == "__main__":
    main()
