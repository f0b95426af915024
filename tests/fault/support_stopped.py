"""Stops a process after each of its stores into a zone in turn, and decides beside it.

Run as `python -m fault.support_stopped FORM FOLDER`. Prints how many stores there were, how many
times the zone was held, and the longest that somebody waited to be told so.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

from headgate import StoreError

from .support import Watch, check_form, forked, say
from .support_dying import Dying
from .support_kinds import Scene

__all__: list[str] = []

HANG = 20.0
"""Seconds: less than those that the store is patient."""


class Stopping(Dying):
    """The rounds in which a process is stopped, and goes on."""

    worst = 0.0
    held = 0

    def every_stop(self) -> int:
        """Stop after each store; how many there are."""
        number = 0
        while True:
            number += 1
            self.fresh()
            pid = self.stopped(number)
            status = os.waitpid(pid, os.WUNTRACED)[1]
            scene = self.scene()
            if os.WIFEXITED(status):
                return number - 1
            try:
                self.beside(scene, pid, number)
            except BaseException:
                os.kill(pid, signal.SIGKILL)
                raise
            os.kill(pid, signal.SIGCONT)
            assert os.waitpid(pid, 0)[1] == 0, "it does not go on"
            # Both have done their work, the one that was stopped and the one that may have been
            # turned away.
            assert scene.limiter.peek("new").remaining == 9
            assert scene.limiter.hit("beside").allowed
            scene.close()

    def stopped(self, number: int) -> int:
        """A process that does the write, and is stopped in the middle of it."""

        def call() -> None:
            scene = Scene(self.kind, str(self.path))
            self.kind.ready(scene)
            watch = Watch(scene.store)
            watch.start(number, signal.SIGSTOP)
            self.kind.act(scene)
            watch.stop()

        return forked(call)

    def beside(self, scene: Scene, pid: int, number: int) -> None:
        """Decide, or be told soon who is in the way."""
        begin = time.monotonic()
        try:
            assert scene.limiter.hit("beside").allowed
        except StoreError as error:
            spent = time.monotonic() - begin
            self.held += 1
            self.worst = max(self.worst, spent)
            assert f"process {pid}, which is stopped" in str(error), f"store {number}: {error}"
            assert spent < HANG, f"store {number}: {spent} s until {error}"


def main(form: str, folder: str) -> None:
    check_form(form)
    Watch.build()
    stopping = Stopping(Path(folder), "together-new")
    stores = stopping.every_stop()
    say({"stores": stores, "held": stopping.held, "worst": stopping.worst})


if __name__ == "__main__":
    main(*sys.argv[1:])
