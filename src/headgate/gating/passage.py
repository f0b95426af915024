"""Passage: what policies gave a call on its way in, to be told once how it ended."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..clock import SystemClock
from ..resilience.breaker import FAILURE, IGNORED
from ..resilience.breaker.machine import Probe

if TYPE_CHECKING:
    from ..resilience.bulkhead import Bulkhead
    from ..resilience.pools import Pool
    from ..resilience.rooms import Room
    from ..resilience.timing import TimeLimit
    from .kept import Live

__all__ = ["Moved", "Passage"]


class Passage:
    """What one call holds of the policies."""

    __slots__ = (
        "_broke", "_open", "_permits", "_rooms", "error", "limit", "pool", "shadowed", "waited",
    )  # fmt: skip

    def __init__(self) -> None:
        self._open = [True]  # whoever takes it out tells the end
        self._broke: list[tuple[Live, Any]] = []
        self._permits: list[Any] = []
        self._rooms: list[tuple[Bulkhead, Room]] = []
        self.limit: TimeLimit | None = None
        """How long the call may take."""
        self.pool: tuple[Pool, Bulkhead] | None = None
        """The threads in which a plain function is called, and whose places they are."""
        self.shadowed: list[Any] = []
        """The policies in shadow that would have refused."""
        self.error: BaseException | None = None
        """What the call raised, where that is known."""
        self.waited = False

    # -- on the way in

    def broke(self, live: Live, token: Any) -> None:
        """A breaker let the call in."""
        self._broke.append((live, token))

    def let_in(self, permit: Any) -> None:
        """An adaptive limit or the machine did."""
        self._permits.append(permit)

    def seated(self, bulkhead: Bulkhead, room: Room) -> None:
        """A bulkhead did."""
        self._rooms.append((bulkhead, room))

    def mark(self) -> tuple[int, int, int]:
        """How far it has come."""
        return len(self._broke), len(self._permits), len(self._rooms)

    def back_to(self, mark: tuple[int, int, int]) -> None:
        """Give back what came since: nothing is held of a policy that would have refused."""
        broke, permits, rooms = mark
        some = Passage()
        some._broke, self._broke = self._broke[broke:], self._broke[:broke]
        some._permits, self._permits = self._permits[permits:], self._permits[:permits]
        some._rooms, self._rooms = self._rooms[rooms:], self._rooms[:rooms]
        some.end("ignored")

    def moved(self, function: Callable[..., Any]) -> Moved:
        """The call as a thread of the pool makes it, which keeps its place until it ends there."""
        assert self.pool is not None  # or nobody would ask
        _, bulkhead = self.pool
        own = [held for held in self._rooms if held[0] is bulkhead]
        self._rooms = [held for held in self._rooms if held[0] is not bulkhead]
        return Moved(function, own)

    def begin(self) -> None:
        """The call goes ahead now: what it waited before is no time of what it calls."""
        self._broke = [(live, _from_now(live, token)) for live, token in self._broke]
        for permit in self._permits:
            permit.started = permit._owner._clock.micros()

    # -- on the way out

    def __bool__(self) -> bool:
        return bool(self._open)

    def end(self, outcome: str) -> bool:
        """Tell everybody how the call ended; False if that was done before."""
        try:
            self._open.pop()
        except IndexError:
            return False
        error = self.error if outcome == "failure" else None
        wrong: BaseException | None = None
        for give in (self._leave_rooms, self._leave_permits, self._leave_breakers):
            try:
                give(outcome, error)
            except BaseException as raised:  # the others hear of it all the same
                wrong = wrong or raised
        if wrong is not None:
            raise wrong
        return True

    def _leave_rooms(self, outcome: str, error: BaseException | None) -> None:
        for bulkhead, room in self._rooms:
            bulkhead.leave(room)

    def _leave_permits(self, outcome: str, error: BaseException | None) -> None:
        for permit in self._permits:
            if error is not None:
                permit.ended(error)
            else:
                # A quick error is no quick server: whoever is mistaken on purpose teaches nothing.
                permit.release("success" if outcome == "success" else "ignored")

    def _leave_breakers(self, outcome: str, error: BaseException | None) -> None:
        for live, token in self._broke:
            breaker = live.breaker
            assert breaker is not None  # it gave the token
            if outcome in ("success", "mistake"):  # somebody has answered
                breaker.passed(token, None)
            elif error is not None:
                breaker.failed(token, error)
            else:
                breaker.told(token, FAILURE if outcome == "failure" else IGNORED)

    def __del__(self) -> None:
        # Perhaps in the midst of something that holds a breaker's lock: only a note is left.
        # Permits do the same by themselves.
        if self._open:
            for live, token in self._broke:
                live.lost.append(token)
            self._leave_rooms("ignored", None)


class Moved:
    """A call that is made in a thread of a pool.

    Nobody may wait for it any more when it ends. Until then it holds its thread, and so its place;
    one that is never begun gives it back when it is dropped.
    """

    __slots__ = ("_function", "_held")

    def __init__(self, function: Callable[..., Any], held: list[tuple[Bulkhead, Room]]) -> None:
        self._function = function
        self._held = held

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return self._function(*args, **kwargs)
        finally:
            self._leave()

    def _leave(self) -> None:
        while self._held:
            bulkhead, room = self._held.pop()
            bulkhead.leave(room)

    def __del__(self) -> None:
        self._leave()


def _from_now(live: Live, token: Any) -> Any:
    breaker = live.breaker
    assert breaker is not None  # it gave the token
    clock = breaker.clock
    if type(token) is tuple:  # a ticket, and the nanoseconds of the clock it goes by
        own = type(clock) is SystemClock
        return token[0], time.monotonic_ns() if own else clock.micros() * 1000
    if type(token) is Probe:
        token.started = clock.micros()
    return token
