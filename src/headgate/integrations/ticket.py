"""Ticket: an outgoing call under way, and what it holds until its response has ended."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Coroutine, Mapping
from typing import TYPE_CHECKING, Any, TypedDict

from ..callers import errand
from ..decision import check_cost
from ..flows import Flow, run, run_async
from .common import succeeded
from .meter import Copy
from .steps import Leave, Release

if TYPE_CHECKING:
    from ..keys import Key
    from .outgoing import Outgoing

__all__ = ["Ticket", "over"]

NOTHING: Mapping[str, str] = {}
logger = logging.getLogger("headgate")


class Over(TypedDict):
    """How a call ended; see `Ticket.end`."""

    outcome: str
    ended: bool
    real: int | None


def over(error: BaseException, unsent: bool) -> Over:
    """How a call ended that has no response: by an error, or by a cancellation.

    `unsent` says that the server has surely seen nothing of it.
    """
    outcome = "failure" if isinstance(error, Exception) else "ignored"
    return Over(outcome=outcome, ended=False, real=0 if unsent else None)


class Ticket:
    """A call under way; however it ends, it ends once.

    taking   a limiter's hold or reservation, as it was entered
    held     what that gave, or a gate's permit
    """

    __slots__ = (
        "__weakref__", "_copy", "_held", "_open", "_out", "_outcome", "_shown", "_taking",
        "headers", "key", "status",
    )  # fmt: skip

    def __init__(self, out: Outgoing, key: Key, taking: Any = None, held: Any = None) -> None:
        self._out = out
        self._taking = taking
        self._held = held
        self._open = [True]  # whoever takes it out gives back
        self._outcome = "failure"
        self._copy = None if out.settle is None else Copy()
        self.key = key
        self._shown: Any = None
        self.status = 0
        self.headers = NOTHING

    def answered(self, status: int, headers: Mapping[str, str], response: Any = None) -> None:
        """A response has begun; `headers` are by lower-case name."""
        self.status, self.headers = status, headers
        self._out.heard(self.key, status, headers)
        failed = self._out.failed
        if failed is None:
            self._outcome = succeeded(status)
        else:
            self._outcome = "failure" if self._told(failed, response) else "success"

    def saw(self, piece: bytes) -> None:
        """A piece of the body has passed."""
        if self._copy is not None:
            self._copy.saw(piece)

    def shows(self, reply: Any) -> None:
        """What a function that settles is to see in place of a body; None if there is nothing."""
        self._copy, self._shown = None, reply

    @property
    def metered(self) -> bool:
        """Whether somebody wants to see the body."""
        return self._copy is not None

    def end(self, outcome: str = "", *, ended: bool = True, real: int | None = None) -> None:
        """Give back what is held.

        outcome  how the call went, if the response does not say it
        ended    whether all of the body was read
        real     what it cost, if that is known already
        """
        run(self.leaving(outcome, real, ended), self._out.place)

    async def end_async(
        self, outcome: str = "", *, ended: bool = True, real: int | None = None
    ) -> None:
        """The same, awaited."""
        await run_async(self.leaving(outcome, real, ended), self._out.place)

    def end_soon(self, *, ended: bool = True) -> None:
        """The same for tasks, where nobody can wait for it: at once if the store does not block."""
        if self._out.blocking:
            self.soon(self.end_async(ended=ended))
        else:
            with contextlib.suppress(StopIteration):
                self.end_async(ended=ended).send(None)

    def soon(self, ending: Coroutine[Any, Any, None]) -> None:
        """Have the call end in a task of its own."""
        leaving = self._out.leaving
        try:
            task = errand(ending)
        except RuntimeError:  # no loop runs: what is leased comes back by itself
            ending.close()
        else:
            leaving.add(task)
            task.add_done_callback(leaving.discard)

    def leaving(self, outcome: str = "", real: int | None = None, ended: bool = True) -> Flow[None]:
        """The flow of giving back; the call is over, so what goes wrong here cannot undo it."""
        try:
            self._open.pop()
        except IndexError:
            return
        try:
            if self._taking is None:
                if self._held is not None:
                    yield Release(self._held, outcome or self._outcome)
                return
            if self._out.settle is not None:
                cost = self._real(ended) if real is None else real
                if cost is not None:
                    self._held.settle(cost)
            yield Leave(self._taking)
        except Exception:
            logger.warning("what a call held could not be given back", exc_info=True)

    def _real(self, ended: bool) -> int | None:
        """What the call has cost; None if nobody can tell, and then the estimate stays."""
        if self.status == 0:
            return None  # no answer: the server may have done the work all the same
        if self.status >= 400:
            return 0
        copy, shown = self._copy, self._shown
        if copy is not None:
            shown = copy.reply(self.status, self.headers, ended)
        cost = None if shown is None else self._told(self._out.settle, shown)
        with contextlib.suppress(TypeError, ValueError):
            return None if cost is None else check_cost(cost)
        logger.warning("settle gave %r, which is no cost; the estimate stays", cost)
        return None

    def _told(self, function: Any, response: Any) -> Any:
        """What a user's function says of a response, which it cannot break."""
        try:
            return function(response)
        except Exception:
            logger.warning("%r failed; the response is not touched", function, exc_info=True)
            return None

    def __del__(self) -> None:
        # A response that nobody closes must not keep a place for ever. On a store that blocks
        # its lease sees to that.
        with contextlib.suppress(Exception):
            if self._open and self._taking is not None and not self._out.blocking:
                self._open.pop()
                self._out.limiter.give(self._held.parting(failed=False), self.key)
