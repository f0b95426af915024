"""Heart: permits held on a store that blocks are leased, and renewed as long as they are held.

One daemon thread per store renews what threads hold, and a timer of each event loop what tasks
hold; both begin with the first permit and end when none is left. The renewals that are due
travel together.
"""

from __future__ import annotations

import itertools
import os
import threading
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .callers import ThreadCaller, errand
from .clock import ManualClock
from .decision import Ask, Decision

if TYPE_CHECKING:
    import asyncio

    from .stores.base import BlockingStore

__all__ = ["Beat", "Heart", "heart_of"]

BEATS = 3
"""How often a lease is renewed while it lasts."""
_hearts: weakref.WeakKeyDictionary[Any, dict[Any, Heart]] = weakref.WeakKeyDictionary()
_making = threading.Lock()


def heart_of(store: BlockingStore, loop: asyncio.AbstractEventLoop | None) -> Heart:
    """What renews the permits of a store: of threads, or of the tasks of one event loop."""
    with _making:
        hearts = _hearts.setdefault(store, {})
        heart = hearts.get(loop)
        if heart is None:
            for other in [other for other in hearts if other is not None and other.is_closed()]:
                del hearts[other]
            heart = hearts[loop] = ThreadHeart(store) if loop is None else LoopHeart(store, loop)
        return heart


class Beat:
    """A permit that is kept: what renews it, and until when it is known to be held."""

    __slots__ = ("asks", "due", "ends", "held", "lost", "ttl")

    def __init__(self, held: object, asks: Sequence[Ask], ttl: int, now: int) -> None:
        self.held = weakref.ref(held)
        self.asks = [ask._replace(op="renew", ttl=ttl, max_wait=0) for ask in asks]
        self.ttl = ttl
        self.lost = False
        self.renewed(now)

    def renewed(self, now: int) -> None:
        """The lease runs from now on."""
        self.due, self.ends = now + self.ttl // BEATS, now + self.ttl


class Heart:
    """What is kept, and when it is due; how to wait for that is the colour's affair."""

    def __init__(self, store: BlockingStore) -> None:
        self._store = weakref.ref(store)
        self._clock = store.clock
        self._beats: dict[int, Beat] = {}
        self._serial = itertools.count()

    def keep(self, held: object, asks: Sequence[Ask], ttl: int) -> tuple[int, Beat]:
        """Renew a permit from now on, while `held` is there: its number here, and how it is."""
        number, beat = next(self._serial), Beat(held, asks, ttl, self._clock.micros())
        self._beats[number] = beat
        self.start()
        return number, beat

    def drop(self, number: int) -> None:
        """A permit is not held any more."""
        self._beats.pop(number, None)
        if not self._beats:
            self.idle()

    def start(self) -> None:
        """See to it that somebody waits for what is due."""
        raise NotImplementedError

    def idle(self) -> None:
        """Nothing is kept."""

    def next(self) -> int:
        """When to renew next; -1 if there is nothing to renew."""
        return min((beat.due for beat in list(self._beats.values())), default=-1)

    def due(self) -> list[tuple[int, Beat]]:
        """What is to be renewed now, all that will be due soon with it."""
        now = self._clock.micros()
        beats = list(self._beats.items())
        for number, beat in beats:
            if beat.held() is None:  # nobody can give it back any more, so it is let go
                self._beats.pop(number, None)
        return [
            (number, beat)
            for number, beat in beats
            if beat.held() is not None and beat.due - beat.ttl // (4 * BEATS) <= now
        ]

    def answered(
        self, due: Sequence[tuple[int, Beat]], answers: Sequence[Sequence[Decision]] | None
    ) -> None:
        """Note what the store said; None if it could not."""
        now = self._clock.micros()
        for place, (number, beat) in enumerate(due):
            answer = () if answers is None else answers[place]
            held = bool(answer) and all(part.allowed for part in answer)
            gone = bool(answer) and not held
            if held:
                beat.renewed(now)
            elif not answer or any(part.degraded for part in answer):
                # It may be there still; another look before the lease is over.
                beat.due = now + max(1, beat.ttl // (2 * BEATS))
                gone = now >= beat.ends
            if gone and self._beats.pop(number, None) is not None:  # and not released meanwhile
                beat.lost = True

    def forget(self) -> None:
        """In a new process: what its parent holds is the parent's to renew."""
        self._beats = {}


class ThreadHeart(Heart):
    """Renews what threads hold, in a thread of its own."""

    def __init__(self, store: BlockingStore) -> None:
        super().__init__(store)
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._caller: ThreadCaller | None = None

    def start(self) -> None:
        with self._lock:  # so a thread about to end is seen as ended
            if self._thread is None:
                store = self._store()
                assert store is not None  # whoever holds a permit holds it
                caller = self._caller = ThreadCaller(store, lambda: None)
                thread = threading.Thread(
                    target=self._run, args=(caller,), name="headgate heart", daemon=True
                )
                thread.start()
                self._thread = thread  # last: after an interrupt before this another one is begun

    def idle(self) -> None:
        # The thread finds out at its next beat; the next permit is likely to come before. A
        # clock that stands still would keep it for ever.
        if isinstance(self._clock, ManualClock) and self._caller is not None:
            self._caller.wake()

    def _run(self, caller: ThreadCaller) -> None:
        while True:
            until, store = self.next(), self._store()
            if until < 0 or store is None:
                with self._lock:
                    if self._beats and store is not None:  # one more has come
                        continue
                    self._thread = self._caller = None
                    return
            if self._clock.micros() < until:
                caller.sleep(until)
                continue
            due = self.due()
            if not due:
                continue
            try:
                answers = store.decide_many([beat.asks for _, beat in due])
            except Exception:  # the store is away; permits are lost when their time is up
                self.answered(due, None)
            else:
                self.answered(due, answers)

    def forget(self) -> None:
        super().forget()
        self._lock = threading.Lock()
        self._thread = self._caller = None


class LoopHeart(Heart):
    """Renews what the tasks of one event loop hold."""

    def __init__(self, store: BlockingStore, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(store)
        self._loop = loop
        self._timer: Any = None

    def start(self) -> None:
        until = self.next()
        if self._timer is not None or until < 0:
            return
        if isinstance(self._clock, ManualClock):
            self._timer = self._clock.call_at(until, self._called)
        else:
            left = max(0.0, (until - self._clock.micros()) / 1_000_000)
            self._timer = self._loop.call_later(left, self._beat)

    def idle(self) -> None:
        if self._timer is not None and isinstance(self._clock, ManualClock):
            self._timer.cancel()
            self._timer = None

    def _called(self) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._beat)

    def _beat(self) -> None:
        if self._beats:
            errand(self._renew())
        else:
            self._timer = None

    async def _renew(self) -> None:
        due, store = self.due(), self._store()
        answers = None
        try:
            if due and store is not None:
                answers = await store.decide_many_async([beat.asks for _, beat in due])
        except Exception:  # as above
            pass
        finally:
            self._timer = None
            self.answered(due, answers)
            self.start()


def _after_fork() -> None:
    global _making
    _making = threading.Lock()
    for hearts in list(_hearts.values()):
        for heart in hearts.values():
            heart.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
