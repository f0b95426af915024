"""Permit: what a call that was let in holds, and gives back on its way out."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..answers import given_back
from ..callers import shielded
from ..decision import Ask, Decision, joined
from ..heart import heart_of

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

    from ..heart import Beat, Heart
    from .desk import Desk
    from .passage import Passage
    from .watched import Watch

__all__ = ["ASYNC_NOTHING", "NOTHING", "AsyncPermit", "Held", "Permit"]

OUTCOMES = ("success", "failure", "mistake", "ignored")
"""A mistake is the caller's own, such as a page that is not there: limits that count failures
count it, and for a breaker somebody has answered."""


class Held:
    """What is held: permits, which come back however a call ends, and what only success returns."""

    __slots__ = (
        "__weakref__", "_beat", "_counted", "_desk", "_heart", "_number", "_open", "_permits",
        "_process", "_watch", "passage",
    )  # fmt: skip

    def __init__(
        self,
        desk: Desk | None,
        permits: Sequence[Ask] = (),
        counted: Sequence[tuple[Ask, Decision]] = (),
    ) -> None:
        self._desk = desk
        self._permits = permits
        self._counted = counted
        self._open = [True] if desk is not None else []  # whoever takes it out gives back
        self._heart: Heart | None = None
        self._beat: Beat | None = None
        self._number = 0
        self._process = os.getpid() if permits else 0
        self._watch: Watch | None = None
        self.passage: Passage | None = None
        """What policies gave the call, and want to hear the end of."""

    def keep(self, loop: AbstractEventLoop | None) -> None:
        """Have leased permits renewed for as long as they are held."""
        desk = self._desk
        if desk is None or not self._permits:
            return
        if desk.watch is not None:
            self._watch = desk.watch
            self._watch.held(self._permits, 1)
        if desk.lease:
            store: object = desk.store
            self._heart = heart_of(store, loop)  # type: ignore[arg-type] # it blocks
            self._number, self._beat = self._heart.keep(self, self._permits, desk.lease)

    @property
    def token(self) -> int:
        """The fencing token of what is held: larger for each later permit; 0 if there is none."""
        return max((ask.token for ask in self._permits), default=0)

    @property
    def lost(self) -> bool:
        """Whether permits are known to have come back while held, not renewed in time."""
        return self._beat is not None and self._beat.lost

    def __bool__(self) -> bool:
        """Whether there is something to give back."""
        return bool(self._open) or bool(self.passage)

    def _ended(self, outcome: str) -> bool:
        """Tell the policies how the call went; whether that was news to them."""
        if self.passage is None or outcome not in OUTCOMES:
            return False
        return self.passage.end(outcome)

    def _left(self, outcome: str) -> list[Ask]:
        """What is to be given back; nothing if that was done before."""
        if outcome not in OUTCOMES:
            raise ValueError(f"an outcome is one of {', '.join(OUTCOMES)}, not {outcome!r}")
        try:
            self._open.pop()
        except IndexError:
            return []
        if self._watch is not None:
            self._watch.held(self._permits, -1)
        if self._heart is not None:
            self._heart.drop(self._number)
        back = [ask._replace(op="release", ttl=0, max_wait=0) for ask in self._permits]
        if outcome == "success" and self._counted:
            asks = [ask for ask, _ in self._counted]
            back += given_back(asks, joined(tuple(answer for _, answer in self._counted)))
        return back

    def _reopen(self) -> None:
        """It could not be given back, and may still be held."""
        if self._watch is not None:
            self._watch.held(self._permits, 1)
        self._open.append(True)

    def __del__(self) -> None:
        # Whoever forgets to give back must not keep a place for ever. On a store that blocks the
        # lease sees to it, and a copy in a forked process has nothing to give.
        if not self._open or not self._permits or self._process != os.getpid():
            return
        desk = self._desk
        with contextlib.suppress(Exception):
            if self._heart is not None:
                self._heart.drop(self._number)
                if self._watch is not None:
                    self._watch.held(self._permits, -1)
            elif desk is not None and not desk.store.blocking:
                desk.give(self._left("failure"), "")


class Permit(Held):
    """What a call holds, for threads and plain functions."""

    __slots__ = ()

    def release(self, outcome: str = "success") -> bool:
        """Say how the call ended, and give back what it held.

        Permits of concurrent limits come back in any case; what a rule with `count: failures`
        has counted comes back on "success" only; breakers count successes and failures, and take
        a "mistake" of the caller's for a success. False if it was done before, nothing was held,
        or a lease had run out.
        """
        ended = self._ended(outcome)
        asks = self._left(outcome)
        if not asks:
            return ended
        desk = self._desk
        assert desk is not None
        try:
            return all(desk.give(asks, ""))
        except Exception:
            self._reopen()
            raise
        except BaseException:  # interrupted; a permit that came back does not do so twice
            permits = [ask for ask in asks if ask.op == "release"]
            if permits:
                desk.give(permits, "")
            raise


class AsyncPermit(Held):
    """What a call holds, for tasks."""

    __slots__ = ()

    async def release(self, outcome: str = "success") -> bool:
        """The same as for a Permit; if its task is cancelled meanwhile, it happens all the same."""
        ended = self._ended(outcome)
        asks = self._left(outcome)
        if not asks:
            return ended
        desk = self._desk
        assert desk is not None
        try:
            if desk.store.blocking:
                return all(await shielded(desk.give_later(asks, "")))
            return all(desk.give(asks, ""))
        except Exception:
            self._reopen()
            raise


NOTHING = Permit(None)
ASYNC_NOTHING = AsyncPermit(None)
