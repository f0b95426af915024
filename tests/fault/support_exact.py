"""Eight processes of four threads each take from one zone, and count what they were admitted.

Run as `python -m fault.support_exact FORM FOLDER CASE CALLS`, with a case of CASES. Prints the
counts of admissions.
"""

from __future__ import annotations

import mmap
import os
import sys
import threading
import time
from collections.abc import Callable

from headgate import Limiter, LimitExceeded
from headgate.stores.zone import ZoneStore

from .support import check_form, forked, say

__all__ = ["CASES", "PERMITS", "PROCESSES", "SHARE", "THREADS"]

PROCESSES, THREADS = 8, 4
ALL = PROCESSES * THREADS
SHARE = 0.6
"""The limit of one key, as a share of all calls."""
EVER = "1000d"
RATES = {
    "bucket": "token-bucket", "gcra": "gcra", "window": "fixed-window", "sliding": "sliding-window",
    "log": "sliding-log", "cells": "sliding-window cells 12",
}  # fmt: skip
KEYS, EACH = 1_000, 5
"""On many keys, each of them admits so many."""
PERMITS = 3
CASES = [*RATES, *(f"{name}-keys" for name in RATES), "both", "permits"]


def of_case(case: str, store: ZoneStore, calls: int) -> Limiter:
    """The limiter of a case."""
    one = int(calls * SHARE)
    if case == "permits":
        return Limiter(f"{PERMITS} concurrent", store=store)
    if case == "both":
        return Limiter(f"{one}/{EVER} fixed-window", f"{one + 7}/{EVER} gcra", store=store)
    name, many, _ = case.partition("-keys")
    return Limiter(f"{EACH if many else one}/{EVER} {RATES[name]}", store=store)


class Board:
    """Words that all processes see: of each thread, of each process, of each key and process."""

    def __init__(self) -> None:
        size = 8 * (ALL + 2 + PROCESSES + KEYS * PROCESSES)
        self.words = memoryview(mmap.mmap(-1, -(-size // 4096) * 4096)).cast("q")
        self.begun, self.wrong, self.ready = ALL, ALL + 1, ALL + 2
        self.counts = self.ready + PROCESSES


class Taker:
    """One process, and its threads."""

    def __init__(self, case: str, limiter: Limiter, board: Board, number: int, calls: int) -> None:
        self.limiter = limiter
        self.board = board
        self.number = number
        self.calls = calls
        self.run = self.keys if case.endswith("keys") else self.one
        if case == "permits":
            self.run = self.inside
        self.together = threading.Barrier(THREADS)
        self.own = threading.Lock()

    def one(self, thread: int) -> None:
        """Take from one key."""
        hit: Callable[[str], object] = self.limiter.hit
        self.count(0, sum(bool(hit("one")) for _ in range(self.calls)))

    def keys(self, thread: int) -> None:
        """Take from many keys, each process and thread from others at any moment."""
        hit: Callable[[str], object] = self.limiter.hit
        first = (self.number * THREADS + thread) * KEYS // ALL
        for step in range(self.calls):
            key = (first + step) % KEYS
            if hit(f"key {key}"):
                self.count(key, 1)

    def inside(self, thread: int) -> None:
        """Be inside for a moment, and look who else is."""
        words, me = self.board.words, self.number * THREADS + thread
        for _ in range(self.calls):
            try:
                with self.limiter.hold("door", timeout=300):
                    words[me] = 1
                    if sum(words[:ALL]) > PERMITS:
                        words[self.board.wrong] += 1
                    time.sleep(0)
                    words[me] = 0
            except LimitExceeded:
                continue
            self.count(0, 1)

    def count(self, key: int, admitted: int) -> None:
        """Add to what this process was admitted."""
        with self.own:
            self.board.words[self.board.counts + key * PROCESSES + self.number] += admitted

    def all_threads(self) -> None:
        """Let all threads run to their ends."""
        sys.setswitchinterval(1e-5)
        threads = [threading.Thread(target=self.thread, args=(n,)) for n in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def thread(self, thread: int) -> None:
        """Begin together, as far as that can be."""
        if not self.together.wait():
            self.board.words[self.board.ready + self.number] = 1
            while self.board.words[self.board.begun] == 0:
                time.sleep(0.0005)
        self.together.wait()
        self.run(thread)


def main(form: str, folder: str, case: str, calls: str) -> None:
    check_form(form)
    board, each = Board(), int(calls)
    store = ZoneStore(f"{folder}/{case}.zone", size=4 << 20, patience=60.0)
    limiter = of_case(case, store, each * ALL)
    takers = [Taker(case, limiter, board, number, each) for number in range(PROCESSES)]
    pids = [forked(taker.all_threads) for taker in takers]
    while not all(board.words[board.ready : board.counts]):
        time.sleep(0.001)
    board.words[board.begun] = 1
    ends = [os.waitpid(pid, 0)[1] for pid in pids]
    assert not any(ends), ends
    assert not board.words[board.wrong], "too many were inside"
    rows = [board.words[board.counts + key * PROCESSES :][:PROCESSES] for key in range(KEYS)]
    say([sum(row) for row in rows])


if __name__ == "__main__":
    main(*sys.argv[1:])
