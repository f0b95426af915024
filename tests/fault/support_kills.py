"""Kills workers at random moments while others decide on the same keys, and checks every bound.

Run as `python -m fault.support_kills FORM FOLDER KILLS`. After each kill the zone must agree with
itself, and workers move on to new keys. At the end, of every key no more was admitted than its
limit allows, and of all keys together no more is missing than one call for each kill: that of
the worker that took it and could not say so any more.
"""

from __future__ import annotations

import mmap
import os
import random
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from headgate import Limiter, LimitExceeded
from headgate.stores.zone import ZoneStore

from .support import check_form, forked, say
from .support_zone import check_zone, words_of

__all__: list[str] = []

WORKERS = 4
EVER = "1000d"
"""A window so long that nothing comes back while this runs."""
LIMITS: dict[str, tuple[str, ...]] = {
    "bucket": (f"400/{EVER} token-bucket",),
    "gcra": (f"400/{EVER} gcra",),
    "window": (f"400/{EVER} fixed-window",),
    "log": (f"60/{EVER} sliding-log",),
    "cells": (f"60/{EVER} sliding-window cells 12",),
    "both": (f"400/{EVER} fixed-window name first", f"410/{EVER} token-bucket name second"),
    "all": (
        f"300/{EVER} fixed-window name first",
        f"310/{EVER} token-bucket name second",
        f"320/{EVER} sliding-log name third",
        f"330/{EVER} sliding-window cells 12 name fourth",
    ),
}
KINDS = list(LIMITS)
PERMIT = len(KINDS)
# Most often what takes longest, so that many are killed in the middle of it.
OFTEN = [*range(PERMIT + 1), PERMIT, *[KINDS.index("all")] * 8]
PERMITS = 2
HANG, PATIENCE = 20.0, 60.0
"""Seconds that no single call may take, and after which it would be an error."""


class Board:
    """What workers tell of themselves, in memory that outlives them."""

    def __init__(self, rounds: int) -> None:
        size = 8 * (2 + 2 * WORKERS + rounds * len(KINDS) * WORKERS)
        self.words = memoryview(mmap.mmap(-1, -(-size // 4096) * 4096)).cast("q")
        self.inside = 2
        self.worst = self.inside + WORKERS
        self.admitted = self.worst + WORKERS

    def place(self, round_: int, kind: int, slot: int) -> int:
        """Where a worker counts what it was admitted in a round."""
        return self.admitted + (round_ * len(KINDS) + kind) * WORKERS + slot

    def total(self, round_: int, kind: int) -> int:
        """What all workers were admitted in a round."""
        first = self.place(round_, kind, 0)
        return sum(self.words[first : first + WORKERS])


class Worker:
    """Decides as fast as it can until it is killed."""

    def __init__(self, store: ZoneStore, board: Board, slot: int) -> None:
        self.limiters = [Limiter(*LIMITS[kind], name=kind, store=store) for kind in KINDS]
        self.permits = Limiter(f"{PERMITS} concurrent", store=store)
        self.board = board
        self.slot = slot

    def run(self) -> None:
        """Decide for as long as there is somebody to kill this process."""
        words, chosen, parent = self.board.words, random.Random(), os.getppid()
        while os.getppid() == parent:
            round_ = words[0]
            kind = chosen.choice(OFTEN)
            begin = time.monotonic_ns()
            if kind == PERMIT:
                self.hold()
            elif self.limiters[kind].hit(str(round_)):
                words[self.board.place(round_, kind, self.slot)] += 1
            worst = self.board.worst + self.slot
            words[worst] = max(words[worst], time.monotonic_ns() - begin)

    def hold(self) -> None:
        """Be inside for a moment, and look who else is."""
        words, first = self.board.words, self.board.inside
        try:
            with self.permits.hold("door"):
                words[first + self.slot] = os.getpid()
                inside = [pid for pid in words[first : first + WORKERS] if pid]
                if len(inside) > PERMITS and sum(map(alive, inside)) > PERMITS:
                    words[1] += 1
                words[first + self.slot] = 0
        except LimitExceeded:
            pass


def alive(pid: int) -> bool:
    """Whether a process still runs."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return text[text.rfind(")") + 2] not in "ZX"


class Kills:
    """The one who kills, and checks."""

    def __init__(self, path: str, kills: int) -> None:
        self.kills = kills
        self.store = ZoneStore(path, size=2 << 20, patience=PATIENCE)
        self.board = Board(kills + 1)
        self.pids = [self.worker(slot) for slot in range(WORKERS)]
        self.longest = 0.0

    def worker(self, slot: int) -> int:
        return forked(Worker(self.store, self.board, slot).run)

    def run(self) -> dict[str, Any]:
        """Kill so many times; what was seen."""
        try:
            self.kill()
            for slot in range(WORKERS):
                self.end(slot)
        except BaseException:
            for pid in self.pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            raise
        check_zone(words_of(self.store))
        missing = self.check_bounds()
        self.check_permits()
        words, first = self.board.words, self.board.worst
        worst = max(self.longest, max(words[first : first + WORKERS]) / 1e9)
        assert worst < HANG, f"a call took {worst} s"
        calls = sum(words[self.board.admitted :])
        recovered = self.store.recoveries
        return {"worst": worst, "missing": missing, "admitted": calls, "recovered": recovered}

    def kill(self) -> None:
        """Kill one worker after another, and put another one in its place."""
        for kill in range(self.kills):
            time.sleep(random.uniform(0.001, 0.02))
            slot = random.randrange(WORKERS)
            self.end(slot)
            begin = time.monotonic()
            self.store.token()
            self.longest = max(self.longest, time.monotonic() - begin)
            check_zone(words_of(self.store))
            self.board.words[0] = kill + 1
            self.pids[slot] = self.worker(slot)

    def end(self, slot: int) -> None:
        """Kill a worker, which must have been at work until then."""
        os.kill(self.pids[slot], signal.SIGKILL)
        status = os.waitpid(self.pids[slot], 0)[1]
        assert os.WIFSIGNALED(status), f"a worker ended by itself: {status}"
        self.board.words[self.board.inside + slot] = 0

    def check_bounds(self) -> int:
        """How many admissions nobody told of; never more than were admitted."""
        missing = 0
        for kind, name in enumerate(KINDS):
            limiter = Limiter(*LIMITS[name], name=name, store=self.store)
            for round_ in range(self.kills + 1):
                told, decision = self.board.total(round_, kind), limiter.peek(str(round_))
                used = {part.limit.amount - part.remaining for part in decision.parts}
                assert len(used) == 1, f"{name}: torn apart: {used}"
                untold = used.pop() - told
                assert untold >= 0, f"{name}: {told} admitted and {decision.remaining} left"
                missing += untold
        ends = self.kills + WORKERS
        assert missing <= ends, f"{missing} admissions lost by {ends} workers"
        return missing

    def check_permits(self) -> None:
        """Nobody is left, so all permits are there."""
        assert not self.board.words[1], "too many were inside"
        limiter = Limiter(f"{PERMITS} concurrent", store=self.store)
        holds = [limiter.hold("door", timeout=1.0) for _ in range(PERMITS)]
        for hold in holds:
            hold.__enter__()
        assert not limiter.peek("door").allowed


def main(form: str, folder: str, kills: str) -> None:
    check_form(form)
    say(Kills(f"{folder}/kills.zone", int(kills)).run())


if __name__ == "__main__":
    main(*sys.argv[1:])
