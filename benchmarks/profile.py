"""What the time of a hit goes into: `python -m benchmarks.profile`.

Simple loops that differ by one thing are timed in turn in one process, and each part is the
difference of two of them. The parts of a hit add up to the hit; the last of them, "the rest", is
what headgate itself does: find the key, decide, write, and make the Decision.
"""

import argparse
import gc
import multiprocessing
import time
from collections.abc import Callable, Iterable, Sequence
from itertools import repeat
from random import Random
from tempfile import TemporaryDirectory
from time import perf_counter_ns

from benchmarks.keys import HOT_KEY
from benchmarks.loops import by_truth, dict_updates, without_key
from benchmarks.report import table
from benchmarks.rss import resident_bytes
from benchmarks.scenarios import CORE
from headgate import Decision, Limiter, ManualClock, compiled

_CALLS = 20_000
_KEYS = 100_000
_BATCH = 10_000
_PLENTY = 1_000_000_000
_LOG = 500
_USERS = 10_000

Timed = Callable[[], float]


def _loop(keys: Iterable[str]) -> int:
    """The loop alone, with the test of an answer in it."""
    start = perf_counter_ns()
    for key in keys:
        if key:
            pass
    return perf_counter_ns() - start


def _read(hit: Callable[[str], Decision], keys: Iterable[str]) -> int:
    """Hits whose numbers are read too, as one who writes headers does."""
    start = perf_counter_ns()
    for key in keys:
        if decision := hit(key):
            pass
        decision.remaining  # noqa: B018 # reading is the point
        decision.retry_after  # noqa: B018
        decision.reset_after  # noqa: B018
    return perf_counter_ns() - start


def _kept(hit: Callable[[str], Decision], keys: Iterable[str]) -> int:
    """Hits whose decisions are kept, as hit_many's are."""
    start = perf_counter_ns()
    decisions = [hit(key) for key in keys]
    for decision in decisions:
        if decision:
            pass
    return perf_counter_ns() - start


def _at_once(hit_many: Callable[[list[str]], list[Decision]], keys: list[str]) -> int:
    start = perf_counter_ns()
    for decision in hit_many(keys):
        if decision:
            pass
    return perf_counter_ns() - start


def _shuffled(count: int) -> list[str]:
    """Keys in random order, new strings each time."""
    numbers = list(range(count))
    Random(0).shuffle(numbers)
    return [f"user:{number}" for number in numbers]


def best_of(loops: dict[str, Timed], rounds: int) -> dict[str, float]:
    """The best of each loop, all of them in turn, round after round."""
    best = dict.fromkeys(loops, float("inf"))
    for _ in range(rounds):
        gc.collect()
        for name, loop in loops.items():
            best[name] = min(best[name], loop())
    return best


def _show(title: str, parts: Sequence[tuple[str, float]], whole: float) -> None:
    print(f"\n{title}\n")
    body = [[name, f"{ns:,.1f}", f"{100 * ns / whole:.0f} %"] for name, ns in parts]
    for line in table(["part", "ns", "share"], body, left=1):
        print(line)


def _hot(loop: Callable[[Iterable[str]], int]) -> Timed:
    return lambda: loop(repeat(HOT_KEY, _CALLS)) / _CALLS


def _with(hit: Callable[..., object]) -> Timed:
    return _hot(lambda keys: by_truth(hit, keys))


def hot_key(algorithm: str, amount: int, rounds: int) -> None:
    """Take a hit on a hot key apart."""
    limiter = Limiter(f"{amount}/hour {algorithm}")
    empty: list[str] = []
    by_truth(limiter.hit, repeat(HOT_KEY, 10))
    loops = {
        "loop": _hot(_loop),
        # Two of the emptiest builtin methods there are, without and with an argument.
        "call": _hot(lambda keys: without_key(empty.clear, keys)),
        "call with key": _with(empty.count),
        "clock": _hot(lambda keys: without_key(time.monotonic_ns, keys)),
        "hit": _with(limiter.hit),
        "read": _hot(lambda keys: _read(limiter.hit, keys)),
    }
    with TemporaryDirectory() as folder:
        shared = Limiter(f"{amount}/hour {algorithm}", store=f"zone://{folder}/profile.zone")
        by_truth(shared.hit, repeat(HOT_KEY, 10))
        best = best_of(loops | {"zone": _with(shared.hit)}, rounds)
    call, clock = best["call with key"] - best["loop"], best["clock"] - best["call"]
    rest = best["hit"] - best["loop"] - call - clock
    _show(
        f"a hit on one hot key, {algorithm}, {'refused' if amount == 5 else 'allowed'}",
        [
            ("the loop and the test of the answer", best["loop"]),
            ("calling an empty builtin method with one argument", call),
            ("reading the clock, as an int", clock),
            ("the rest: key, table, algorithm, Decision", rest),
            ("a hit", best["hit"]),
            ("beside it: time.monotonic_ns() in the same loop", best["clock"]),
            ("beside it: reading remaining, retry_after, reset_after", best["read"] - best["hit"]),
            ("beside it: what the same hit costs more in a zone", best["zone"] - best["hit"]),
        ],
        best["hit"],
    )


def many_keys(algorithm: str, rounds: int) -> None:
    """Take a hit on one of many keys apart."""
    limiter = Limiter(f"10000/hour {algorithm}")  # a key that is full again would be dropped
    counts = dict.fromkeys(_shuffled(_KEYS), 0)
    by_truth(limiter.hit, _shuffled(_KEYS))
    best = best_of(
        {
            "loop": lambda: _loop(_shuffled(_KEYS)) / _KEYS,
            "hash": lambda: by_truth(hash, _shuffled(_KEYS)) / _KEYS,
            "hot hash": _with(hash),
            "hot hit": _with(limiter.hit),
            "hit": lambda: by_truth(limiter.hit, _shuffled(_KEYS)) / _KEYS,
            "dict": lambda: dict_updates(counts, _shuffled(_KEYS)) / _KEYS,
        },
        max(3, rounds // 5),
    )
    hashing = best["hash"] - best["hot hash"]
    _show(
        f"a hit on {_KEYS:,} keys in random order, {algorithm}",
        [
            ("a hit on a hot key", best["hot hit"]),
            ("hashing a new string, and its way into the cache", hashing),
            ("the rest: the slot's way into the cache", best["hit"] - best["hot hit"] - hashing),
            ("a hit", best["hit"]),
            ("beside it: a dict get+set of the same keys", best["dict"]),
        ],
        best["hit"],
    )


def batch(algorithm: str, rounds: int) -> None:
    """Show what one call for many keys saves, and what keeping every Decision costs."""
    limiter = Limiter(f"10000/hour {algorithm}")
    by_truth(limiter.hit, _shuffled(_BATCH))
    best = best_of(
        {
            "hash": lambda: by_truth(hash, _shuffled(_BATCH)) / _BATCH,
            "hit": lambda: by_truth(limiter.hit, _shuffled(_BATCH)) / _BATCH,
            "kept": lambda: _kept(limiter.hit, _shuffled(_BATCH)) / _BATCH,
            "many": lambda: _at_once(limiter.hit_many, _shuffled(_BATCH)) / _BATCH,
            "one": lambda: _at_once(limiter.hit_many, [HOT_KEY] * _BATCH) / _BATCH,
        },
        rounds,
    )
    _show(
        f"hit_many on {_BATCH:,} keys, for each key, {algorithm}",
        [
            ("hit_many", best["many"]),
            ("beside it: hash of a new string alone, loop and call too", best["hash"]),
            ("beside it: hit, each Decision dropped at once", best["hit"]),
            ("beside it: hit, every Decision kept, as hit_many keeps them", best["kept"]),
            ("beside it: hit_many on one hot key so many times", best["one"]),
        ],
        best["hit"],
    )


def _log_bytes(in_turn: bool) -> float:
    """Memory of one user whose log of 500 calls is full, in a process of its own."""
    clock = ManualClock(1_000_000)
    limiter = Limiter(f"{_LOG}/day sliding-log", clock=clock)
    users = [f"user:{number}" for number in range(_USERS)]
    before = resident_bytes()
    if in_turn:
        for _ in range(_LOG):
            clock.advance(1)
            limiter.hit_many(users)
    else:
        for user in users:
            for _ in range(_LOG):
                limiter.hit(user)
                clock.advance(0.007)
    assert not limiter.hit(users[-1])
    return (resident_bytes() - before) / _USERS


def full_log() -> None:
    """What a full log takes, by the order in which users call."""
    rows = []
    for name, in_turn in (("users one after the other", False), ("users in turn", True)):
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            rows.append((name, f"{pool.apply(_log_bytes, (in_turn,)):,.0f}"))
    print(f"\nA full log of {_LOG} calls, {_USERS:,} users\n")
    print(*table(("filled", "bytes a user"), rows, left=1), sep="\n")


def main(arguments: Sequence[str] | None = None) -> None:
    """Profile the algorithms that the command line names."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.profile", description=__doc__)
    parser.add_argument("algorithms", nargs="*", default=["token-bucket"], metavar="ALGORITHM")
    parser.add_argument("--rounds", type=int, default=50, help="of which the best counts")
    options = parser.parse_args(arguments)
    unknown = set(options.algorithms) - set(CORE)
    if unknown:
        parser.error(f"{', '.join(sorted(unknown))}: not one of {', '.join(CORE)}")
    print(f"headgate is {compiled!r}")
    for algorithm in options.algorithms:
        hot_key(algorithm, _PLENTY, options.rounds)
        hot_key(algorithm, 5, options.rounds)
        many_keys(algorithm, options.rounds)
        batch(algorithm, options.rounds)
    full_log()


if __name__ == "__main__":
    main()
