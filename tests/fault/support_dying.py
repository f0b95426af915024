"""Kills a process after each of its stores into a zone in turn, and checks what it leaves.

Run as `python -m fault.support_dying FORM FOLDER KIND...`. Every round begins with a copy of the
same zone, so what a write makes of it is known to the bit: the zone must look as before the write
or as after it, once somebody has decided anything.
"""

from __future__ import annotations

import os
import shutil
import signal
import statistics
import sys
import time
from pathlib import Path
from typing import NamedTuple

from headgate import Ask, Limit

from .support import Watch, check_form, forked, say
from .support_kinds import KINDS, Act, Kind, Scene, seen
from .support_zone import check_zone, picture, words_of

__all__ = ["Dying"]

SOON = 0.05
"""How long a death may keep others waiting, in seconds: the middle of all rounds, as any single
one may meet with a busy machine."""
HANG = 20.0
MOST = 5000
UNCHANGED = ("refused", "together-refused")
PROBE = Ask("check", Limit.parse("1/minute fixed-window"), "probe", 1, "elsewhere")


class View(NamedTuple):
    """A zone as it is: to the bit, and as its keys are answered."""

    words: bytes
    answers: list[tuple[object, ...]]


class Dying:
    """The rounds of one kind of write."""

    def __init__(self, folder: Path, name: str) -> None:
        self.kind: Kind = KINDS[name]
        self.name = name
        self.base = folder / f"{name}.base"
        self.path = folder / f"{name}.zone"
        scene = Scene(self.kind, str(self.base))
        self.kind.fill(scene)
        scene.close()
        self.waits: list[float] = []

    # -- processes

    def fresh(self) -> None:
        """Begin again with the zone as it was made."""
        self.path.unlink(missing_ok=True)
        shutil.copyfile(self.base, self.path)

    def child(self, *acts: Act, number: int = 0, ready: bool = True) -> int:
        """The status of a process that does these acts, and dies after a store of the last."""

        def call() -> None:
            scene = Scene(self.kind, str(self.path))
            if ready:
                self.kind.ready(scene)
            scene.clock.advance(self.kind.pause)
            for act in acts[:-1]:
                act(scene)
            if acts:
                watch = Watch(scene.store)
                watch.start(number)
                acts[-1](scene)
                watch.stop()

        return os.waitpid(forked(call), 0)[1]

    def scene(self) -> Scene:
        """This process as another user of the zone, at the instant of the write."""
        scene = Scene(self.kind, str(self.path))
        scene.clock.advance(self.kind.pause)
        return scene

    def view(self, scene: Scene, *, known: bool) -> View:
        """How the zone is now; unless that state is known already, it must agree with itself."""
        words = words_of(scene.store)
        if not known:
            check_zone(words)
        answers = [seen(scene.limiter.peek(key)) for key in self.kind.watched]
        if self.kind.timed:
            answers = [answer[:2] for answer in answers]
        return View(picture(words, counted=self.kind.keys), answers)

    def after(self, *acts: Act) -> View:
        """How the zone is after these acts, of which nobody dies."""
        self.fresh()
        assert self.child(*acts) == 0, f"{self.name}: the write itself fails"
        scene = self.scene()
        try:
            return self.view(scene, known=False)
        finally:
            scene.close()

    # -- rounds

    def every_store(self) -> int:
        """Die after each store; how many there are."""
        kind = self.kind
        before, once = self.after(), self.after(kind.act)
        twice = self.after(kind.act, kind.act)
        partly = [self.after(act) for act in kind.partly]
        if before == once:
            assert self.name in UNCHANGED, f"{self.name} changes nothing"
        for number in range(1, MOST):
            self.fresh()
            status = self.child(kind.act, number=number)
            if status == 0:
                self.check((once,), (twice,), number)
                return number - 1
            assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL, status
            self.check((before, once, *partly), (once, twice), number)
        raise AssertionError(f"{self.name}: there is no end to it")

    def in_recovery(self, number: int) -> int:
        """Die after a store, let another die after each store of its recovery in turn."""
        before, once = self.after(), self.after(self.kind.act)
        for second in range(1, MOST):
            self.fresh()
            assert os.WIFSIGNALED(self.child(self.kind.act, number=number))
            status = self.child(probe, number=second, ready=False)
            self.check((before, once), (once,), second)
            if status == 0:
                return second - 1
        raise AssertionError(f"{self.name}: there is no end to it")

    def check(self, states: tuple[View, ...], then: tuple[View, ...], number: int) -> None:
        """Another process decides at once, finds one of these states, and its next write is
        right: it leads from each of the states to the one that follows it, if that is given."""
        scene, where = self.scene(), f"{self.name}, store {number}"
        try:
            begin = time.monotonic()
            probe(scene)
            self.waits.append(time.monotonic() - begin)
            view = self.view(scene, known=True)
            assert view in states, f"{where}: torn: {view.answers}"
            self.kind.act(scene)
            now = self.view(scene, known=not self.kind.moving)
            if states.index(view) < len(then):
                follows = then[states.index(view)]
                same = now.answers == follows.answers if self.kind.moving else now == follows
                assert same, f"{where}: then wrong: {now.answers}"
        finally:
            scene.close()


def probe(scene: Scene) -> None:
    """Decide something that changes nothing."""
    assert scene.store.decide((PROBE,))[0].allowed


def main(form: str, folder: str, *names: str) -> None:
    check_form(form)
    Watch.build()
    for name in names:
        dying = Dying(Path(folder), name)
        stores = dying.every_store()
        again = dying.in_recovery(max(1, stores * 2 // 3)) if "together" in name else 0
        middle, worst = statistics.median(dying.waits), max(dying.waits)
        assert middle < SOON and worst < HANG, f"{name}: others waited {middle} s, {worst} s"
        say({"kind": name, "stores": stores, "again": again, "worst": worst})


if __name__ == "__main__":
    main(*sys.argv[1:])
