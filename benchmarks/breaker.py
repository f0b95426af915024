"""What a closed breaker adds to a call that goes well: `python -m benchmarks.breaker`.

A function that returns its argument, bare and decorated. What a breaker adds is the time with it
less the time without it. All of them take turns, and the best of many turns counts for each. For
threads: four of them through one breaker, beside one alone, as calls in a second of all together.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
from collections.abc import Awaitable, Callable
from threading import Barrier, Thread
from time import perf_counter_ns
from typing import Any

WAYS = ("sync", "async", "sync-timed", "threads")
"""A plain function, an async one, a plain one whose slow calls count too, four threads."""
_CALLS, _THREADS = 2_000, 4
_TURNS, _QUICK = 60, 15


def bare(value: int) -> int:
    """What is protected."""
    return value


async def bare_async(value: int) -> int:
    """What is protected, as a coroutine."""
    return value


def headgate(function: Any, **options: Any) -> Any:
    """Ours, as it comes: half of the last 100 calls."""
    from headgate.resilience.breaker import Breaker

    return Breaker("bench", **options)(function)


def circuitbreaker(function: Any) -> Any:
    """circuitbreaker, as its page shows it."""
    from circuitbreaker import circuit

    return circuit(name=function.__name__)(function)


def pybreaker(function: Any) -> Any:
    """pybreaker, as its page shows it; its coroutines need Tornado."""
    from pybreaker import CircuitBreaker

    if function is bare_async:
        raise ImportError
    return CircuitBreaker(fail_max=5, reset_timeout=60)(function)


def purgatory(function: Any) -> Any:
    """purgatory, as its page shows it."""
    from purgatory import AsyncCircuitBreakerFactory, SyncCircuitBreakerFactory

    if function is bare_async:
        return AsyncCircuitBreakerFactory(default_threshold=5, default_ttl=30)("bench")(function)
    return SyncCircuitBreakerFactory(default_threshold=5, default_ttl=30)("bench")(function)


RIVALS: dict[str, Callable[[Any], Any]] = {
    "circuitbreaker": circuitbreaker,
    "pybreaker": pybreaker,
    "purgatory": purgatory,
}


def _batch(call: Callable[[int], int]) -> float:
    start = perf_counter_ns()
    for number in range(_CALLS):
        call(number)
    return (perf_counter_ns() - start) / _CALLS


async def _batch_async(call: Callable[[int], Awaitable[int]]) -> float:
    start = perf_counter_ns()
    for number in range(_CALLS):
        await call(number)
    return (perf_counter_ns() - start) / _CALLS


def _four(call: Callable[[int], int]) -> float:
    """Nanoseconds for a call of four threads, all of them together."""
    times = 20
    start = Barrier(_THREADS + 1)

    def run() -> None:
        start.wait()
        for _ in range(times):
            _batch(call)

    threads = [Thread(target=run) for _ in range(_THREADS)]
    for thread in threads:
        thread.start()
    start.wait()
    begun = perf_counter_ns()
    for thread in threads:
        thread.join()
    return (perf_counter_ns() - begun) / (_CALLS * times * _THREADS)


def _alone(call: Callable[[int], int]) -> float:
    begun = perf_counter_ns()
    for _ in range(20):
        _batch(call)
    return (perf_counter_ns() - begun) / (_CALLS * 20)


def _threads(turns: int) -> dict[str, float]:
    from headgate.resilience.breaker import Breaker

    breaker = Breaker("bench")
    call = breaker(bare)
    found = {"ns": float("inf"), "yardstick_ns": float("inf")}
    calls = 0
    for _ in range(turns // 5):
        found["ns"] = min(found["ns"], _four(call))
        found["yardstick_ns"] = min(found["yardstick_ns"], _alone(call))
        calls += (_THREADS + 1) * 20 * _CALLS
    seen = breaker.metrics()
    found["right"] = seen.succeeded == seen.permitted == calls
    return found


async def _measured(way: str, turns: int) -> dict[str, float]:
    function: Any = bare_async if way == "async" else bare
    options = {"slow_after": 60.0} if way == "sync-timed" else {}
    calls = {"bare": function, "ns": headgate(function, **options)}
    for name, make in RIVALS.items():
        try:
            calls[f"{name} adds"] = make(function)
        except ImportError:  # not installed
            continue
    best = dict.fromkeys(calls, float("inf"))
    for _ in range(turns):
        gc.collect()
        for name, call in calls.items():
            took = await _batch_async(call) if way == "async" else _batch(call)
            best[name] = min(best[name], took)
    plain = best.pop("bare")
    found = {name: took - plain for name, took in best.items()}
    found["yardstick_ns"] = plain
    answer = calls["ns"](7)
    found["right"] = (await answer if way == "async" else answer) == 7
    return found


def added(rival: object, make: object, way: str, quick: bool) -> dict[str, float]:
    """What headgate's breaker adds in the form that this process has, and what others add."""
    turns = _QUICK if quick else _TURNS
    return _threads(turns) if way == "threads" else asyncio.run(_measured(way, turns))


def main() -> None:
    """Print one measurement of each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    chosen = parser.parse_args()
    import headgate as package

    print(f"headgate ({package.compiled})")
    for way in WAYS:
        found = added(None, None, way, chosen.quick)
        plain = found["yardstick_ns"]
        if way == "threads":
            print(f"{way}: {plain / found['ns']:.2f} x the calls of one thread")
            continue
        print(f"{way}: a bare call takes {plain:,.0f} ns")
        for name in ("ns", *(f"{name} adds" for name in RIVALS)):
            if name in found:
                ratio = f"{found[name] / plain:.1f} x a bare call, headgate is "
                print(
                    f"    {'headgate' if name == 'ns' else name[:-5]:16}{found[name]:>8,.0f} ns, "
                    f"{ratio}{found['ns'] / found[name]:.2f} x"
                )


if __name__ == "__main__":
    main()
