"""Traffic on a server of the tests: threads and tasks that hit, and what became of every call."""

from __future__ import annotations

import asyncio
import itertools
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from headgate import AsyncLimiter, Limiter
from headgate.decision import Decision
from headgate.errors import StoreUnavailable

__all__ = [
    "BUCKET",
    "BUDGET",
    "BURST",
    "EXAMPLES",
    "RATE",
    "RECOVERY",
    "SCALE",
    "WINDOW",
    "Record",
    "Traffic",
    "all_answered",
    "back_in_time",
    "bounds_hold",
    "nothing_twice",
    "running",
]  # fmt: skip

EXAMPLES = int(os.environ.get("HEADGATE_EXAMPLES", "100"))
SCALE = max(1, EXAMPLES // 100)
"""How much longer than usual the slow variants run."""
BUDGET = 0.05
"""Seconds within which a store has to answer here."""
SLOW, HANGING = 1.0, 20.0
"""Seconds beyond the budget: of few calls on a busy machine, and of none at all."""
RECOVERY = 20.0
"""Seconds after which a server that is back is used again by everybody: a few on a quiet machine,
and for ever if nobody tried."""
COUNTED = "1000000000/30d fixed-window"
"""Never reached: it tells how often it was taken from."""
WINDOW = 150
RATE, BURST = 50, 100
BUCKET = f"{RATE}/second token-bucket burst {BURST}"
TEXTS = {"all": COUNTED, "window": f"{WINDOW}/30d sliding-window", "bucket": BUCKET}
_serial = itertools.count()


class Record(NamedTuple):
    """One call: whose, on which limit, when, and what came of it."""

    worker: str
    what: str
    start: float
    end: float
    outcome: str
    """yes, no, stood-in (decided in the store's place), late (perhaps done) or away (not done)."""
    why: str = ""

    @property
    def answered(self) -> bool:
        """Whether the store itself has decided."""
        return self.outcome in ("yes", "no")


def outcome_of(decision: Decision) -> str:
    """What a decision says."""
    if decision.degraded:
        return "stood-in" if decision.allowed else "stood-in no"
    return "yes" if decision.allowed else "no"


class Traffic:
    """Threads and tasks that hit one store until they are told to stop."""

    def __init__(
        self,
        store: Any,
        texts: Mapping[str, str | tuple[str, ...]] | None = None,
        *,
        threads: int = 3,
        tasks: int = 6,
        keys: Sequence[str] = ("k",),
        pause: float = 0.002,
    ) -> None:
        self.store = store
        given = texts or TEXTS
        self.texts = {what: (t,) if isinstance(t, str) else t for what, t in given.items()}
        self.name = f"traffic {next(_serial)}"
        self.keys = list(keys)
        self.records: list[Record] = []
        self.wrong: list[BaseException] = []
        self._pause = pause
        self._over = threading.Event()
        self.workers = [f"thread {n}" for n in range(threads)] + [f"task {n}" for n in range(tasks)]
        self._threads = [
            threading.Thread(target=self._guarded, args=(self._thread, worker), daemon=True)
            for worker in self.workers[:threads]
        ]
        if tasks:
            loop = threading.Thread(target=self._guarded, args=(self._loop, "loop"), daemon=True)
            self._threads.append(loop)

    def limiter(self, what: str) -> Limiter:
        """The limiter of threads."""
        return Limiter(*self.texts[what], store=self.store, name=f"{self.name} {what}")

    # -- running

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Stop, and complain of what should not have happened."""
        self._over.set()
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive(), "a worker hangs"
        if self.wrong:
            raise self.wrong[0]

    def _guarded(self, run: Callable[[str], None], worker: str) -> None:
        try:
            run(worker)
        except BaseException as error:
            self.wrong.append(error)

    def _thread(self, worker: str) -> None:
        limiters = {what: self.limiter(what) for what in self.texts}
        for key in itertools.cycle(self.keys):
            for what, limiter in limiters.items():
                start, why = time.monotonic(), ""
                try:
                    outcome = outcome_of(limiter.hit(key))
                except StoreUnavailable as error:
                    outcome, why = "late" if error.sent else "away", str(error)
                self.records.append(Record(worker, what, start, time.monotonic(), outcome, why))
            if self._over.wait(self._pause):
                return

    def _loop(self, _: str) -> None:
        asyncio.run(self._tasks())

    async def _tasks(self) -> None:
        workers = [worker for worker in self.workers if worker.startswith("task")]
        await asyncio.gather(*map(self._task, workers))
        await asyncio.sleep(0)

    async def _task(self, worker: str) -> None:
        limiters = {
            what: AsyncLimiter(*texts, store=self.store, name=f"{self.name} {what}")
            for what, texts in self.texts.items()
        }
        for key in itertools.cycle(self.keys):
            for what, limiter in limiters.items():
                start, why = time.monotonic(), ""
                try:
                    outcome = outcome_of(await limiter.hit(key))
                except StoreUnavailable as error:
                    outcome, why = "late" if error.sent else "away", str(error)
                self.records.append(Record(worker, what, start, time.monotonic(), outcome, why))
            if self._over.is_set():
                return
            await asyncio.sleep(self._pause)

    # -- watching

    def flowing(self, count: int = 5, since: float = 0.0, seconds: float = 60.0) -> None:
        """Wait until every worker has had so many answers of the store since an instant."""
        end = time.monotonic() + seconds
        while True:
            had = dict.fromkeys(self.workers, 0)
            for record in list(self.records):
                had[record.worker] += record.answered and record.start >= since
            if min(had.values()) >= count:
                return
            assert not self.wrong, self.wrong[0]
            assert time.monotonic() < end, f"no answers within {seconds} s: {had}"
            time.sleep(0.01)

    def refused(self, since: float, seconds: float = 60.0) -> None:
        """Wait until the window is used up and somebody was refused since an instant."""
        end = time.monotonic() + seconds
        while not any(r.outcome == "no" and r.what == "window" and r.start >= since
                      for r in list(self.records)):  # fmt: skip
            assert time.monotonic() < end, "nobody is refused"
            time.sleep(0.01)

    def count(self, *outcomes: str, what: str = "all", since: float = 0.0) -> int:
        """How many calls on a limit ended so, of those that ended after an instant."""
        return sum(r.outcome in outcomes and r.what == what and r.end > since for r in self.records)


@contextmanager
def running(traffic: Traffic) -> Iterator[Traffic]:
    """Traffic that is well under way, and stopped at the end."""
    traffic.start()
    try:
        traffic.flowing()
        yield traffic
    finally:
        traffic.stop()


# -- what holds in every fault


def all_answered(traffic: Traffic, budget: float = BUDGET) -> None:
    """Every call came back in time, however it ended."""
    times = sorted(record.end - record.start for record in traffic.records)
    assert times[int(len(times) * 0.98)] < budget + SLOW, times[-20:]
    assert times[-1] < budget + HANGING, times[-20:]


def bounds_hold(traffic: Traffic, losses: int, answers: Sequence[str] = ("yes",)) -> None:
    """Not more was admitted than the limits allow, each time the state was lost once more."""
    assert traffic.count(*answers, what="window") <= WINDOW * (1 + losses)
    mine = [r for r in traffic.records if r.what == "bucket"]
    span = max(r.end for r in mine) - min(r.start for r in mine)
    most = BURST * (1 + losses) + RATE * span
    assert traffic.count(*answers, what="bucket") <= most


def nothing_twice(traffic: Traffic, store: Any, since: float = 0.0, until: float = 0.0) -> None:
    """What the server has counted is what callers were told, give or take those it was late for.

    `since` and `until` are before and after the last loss of its state.
    """
    look = Limiter(COUNTED, store=store, name=f"{traffic.name} all")
    limit, taken = look.limits[0].amount, 0
    for key in traffic.keys:
        taken += limit - look.peek(key).remaining
    most = traffic.count("yes", since=since) + traffic.count("late", since=since)
    least = sum(r.outcome == "yes" and r.what == "all" and r.start > until for r in traffic.records)
    assert least <= taken <= most, (least, taken, most)


def all_decided(traffic: Traffic) -> None:
    """Nobody has noticed anything: the store itself has answered every call."""
    left = [record for record in traffic.records if not record.answered]
    assert not left, left


def back_in_time(traffic: Traffic, since: float, seconds: float = RECOVERY) -> None:
    """Soon after an instant everybody was answered by the store again."""
    for worker in traffic.workers:
        ends = [r.end for r in traffic.records
                if r.worker == worker and r.answered and r.start >= since]  # fmt: skip
        assert ends, f"{worker} was never answered again"
        assert ends[0] - since < seconds, f"{worker}: {ends[0] - since}"
