"""The shared zone: a hot key beside the same hit in this process, and two processes on one key."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import repeat
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic_ns

from benchmarks.keys import HOT_KEY
from benchmarks.loops import Factory, by_truth
from benchmarks.rivals import Rival
from benchmarks.scenarios.speed import in_turn

_HITS = 20_000
_PLENTY = 1_000_000_000
# So long that no window ends meanwhile, and that what two processes took can be counted.
_MONTH = 30 * 24 * 3600
_MEMORY = Path("/dev/shm")


@contextmanager
def _address() -> Iterator[str]:
    """The address of a new zone, in memory where the system has a folder for that."""
    with TemporaryDirectory(dir=_MEMORY if _MEMORY.is_dir() else None) as folder:
        yield f"zone://{folder}/bench.zone?size=16MiB"


def _beside(text: str, refused: bool) -> dict[str, float]:
    from headgate import Limiter

    with _address() as address, Limiter(text, store=address) as shared, Limiter(text) as here:
        for limiter in (shared, here):
            by_truth(limiter.hit, repeat(HOT_KEY, 10))
        ns, memory = in_turn(
            lambda: by_truth(shared.hit, repeat(HOT_KEY, _HITS)) / _HITS,
            lambda: by_truth(here.hit, repeat(HOT_KEY, _HITS)) / _HITS,
        )
        return {"ns": ns, "yardstick_ns": memory, "right": bool(shared.hit(HOT_KEY)) != refused}


def allowed(rival: Rival, make: Factory, algorithm: str, quick: bool) -> dict[str, float]:
    """Time a hot key that is allowed, in a zone that nobody else uses."""
    return _beside(f"{_PLENTY}/3600s {algorithm}", refused=False)


def refused(rival: Rival, make: Factory, algorithm: str, quick: bool) -> dict[str, float]:
    """Time a hot key whose 5 an hour are used up, in a zone that nobody else uses."""
    return _beside(f"5/3600s {algorithm}", refused=True)


class _Worker:
    """A process that hits the hot key of a zone when it is told to."""

    def __init__(self, address: str, text: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.zone_worker", address, text],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ready(self) -> None:
        assert self.process.stdout is not None
        self.process.stdout.readline()

    def tell(self, start: int, end: int) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{start} {end}\n")
        self.process.stdin.flush()

    def answer(self) -> tuple[int, float]:
        """How many hits, and how many of them in a nanosecond."""
        assert self.process.stdout is not None
        hits, spent = json.loads(self.process.stdout.readline())
        return hits, hits / spent

    def stop(self) -> None:
        self.process.communicate(timeout=10)


def two_processes(rival: Rival, make: Factory, algorithm: str, quick: bool) -> dict[str, float]:
    """Time a hit when two processes share the hot key, beside one process alone.

    `ns` is the time for which both together give one decision.
    """
    from headgate import Limiter

    text = f"{_PLENTY}/{_MONTH}s {algorithm}"
    span = 100_000_000 if quick else 250_000_000
    hits = 0
    with _address() as address, ExitStack() as stack:
        pair = [_Worker(address, text) for _ in range(2)]
        for worker in pair:
            stack.callback(worker.stop)

        def run(workers: list[_Worker]) -> float:
            nonlocal hits
            start = monotonic_ns() + 2_000_000
            for worker in workers:
                worker.tell(start, start + span)
            answers = [worker.answer() for worker in workers]
            hits += sum(count for count, _ in answers)
            return 1 / sum(speed for _, speed in answers)

        for worker in pair:
            worker.ready()
        alone = iter(range(1_000))  # each of the two takes its turn alone
        ns, one = in_turn(
            lambda: run(pair), lambda: run([pair[next(alone) % 2]]), seconds=0.5 if quick else 2.0
        )
        used = _PLENTY - Limiter(text, store=address).peek(HOT_KEY).remaining
    # A bucket refills while it is used; windows show whether every hit was counted once.
    exact = used == hits if algorithm.endswith("window") else used <= hits
    return {"ns": ns, "yardstick_ns": one, "right": exact}
