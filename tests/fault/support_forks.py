"""Forks again and again while another thread decides; each child decides at once.

Run as `python -m fault.support_forks FORM STORE FORKS`. Prints the longest that a child took.
"""

from __future__ import annotations

import mmap
import os
import random
import signal
import sys
import threading
import time

from headgate import Limiter
from headgate.stores import open_store
from headgate.stores.zone import ZoneStore

from .support import check_form, forked, say
from .support_zone import check_zone, words_of

__all__: list[str] = []

LIMIT = 1_000_000_000  # more than a fast thread takes while this runs
EVER = "30d fixed-window"


def main(form: str, address: str, forks: str) -> None:
    check_form(form)
    store = open_store(address)
    assert isinstance(store, ZoneStore)
    limiters = [
        Limiter(f"{LIMIT}/{EVER}", name="one", store=store),
        Limiter(f"{LIMIT}/{EVER}", f"{LIMIT}/30d gcra", name="two", store=store),
    ]
    taken = memoryview(mmap.mmap(-1, 4096)).cast("q")
    done = threading.Event()

    def decide() -> None:
        while not done.is_set():
            for limiter in limiters:
                taken[0] += limiter.hit("key").allowed

    thread = threading.Thread(target=decide)
    thread.start()
    worst = 0.0
    try:
        for _ in range(int(forks)):
            time.sleep(random.uniform(0, 0.003))
            worst = max(worst, child(limiters))
    finally:
        done.set()
        thread.join()
    check_zone(words_of(store))
    for limiter in limiters:
        limiter.hit("key")
    used = sum(LIMIT - limiter.peek("key").remaining for limiter in limiters)
    assert used == taken[0] + 2 * int(forks) + 2, f"{used} taken, {taken[0]} told"
    say(worst)


def child(limiters: list[Limiter]) -> float:
    """How long a forked process takes to decide once on each."""

    def call() -> None:
        signal.alarm(60)  # a child that hangs is a child that dies
        assert all(limiter.hit("key") for limiter in limiters)

    begin = time.monotonic()
    status = os.waitpid(forked(call), 0)[1]
    assert status == 0, f"the child of a thread that decides: {status}"
    return time.monotonic() - begin


if __name__ == "__main__":
    main(*sys.argv[1:])
