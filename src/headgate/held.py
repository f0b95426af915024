"""What is taken for a while: permits held, costs reserved, attempts that may fail.

Each is written once, as steps that say what to ask; a `with` and an `async with` form drive the
steps.
"""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from .clock import ttl_of
from .decision import Ask, Decision, check_cost
from .errors import LimitExceeded
from .waiting import given_back

if TYPE_CHECKING:
    from .front import Front
    from .keys import Key

__all__ = [
    "AsyncAttempt", "AsyncHold", "AsyncReserve", "Attempt", "Hold", "Permit", "Reservation",
    "Reserve", "Try",
]  # fmt: skip

Held = TypeVar("Held")


def _taken_out(tickets: list[bool]) -> bool:
    """Take the only ticket; of several threads one succeeds."""
    try:
        return tickets.pop()
    except IndexError:
        return False


class Permit:
    """What a hold gives: the decision and its token, until it is released."""

    def __init__(self, front: Front, key: Key, asks: list[Ask], decision: Decision) -> None:
        self._front = front
        self._asks = asks
        self.key = key
        self.decision = decision

    @property
    def token(self) -> int:
        """The fencing token: larger for each later permit."""
        return max(ask.token for ask in self._asks)

    def release(self) -> bool:
        """Give the permit back; False if that was done before, or its lease ran out."""
        return self._permits("release", 0)

    def renew(self, ttl: float) -> bool:
        """Let the lease run for `ttl` seconds from now; False if it was not held any more."""
        return self._permits("renew", ttl_of(ttl))

    def _permits(self, op: str, ttl: int) -> bool:
        asks = [
            ask._replace(op=op, ttl=ttl)
            for ask in self._asks
            if ask.limit.algorithm == "concurrency"
        ]
        return all(self._front.give(asks, self.key)) if asks else False


class Reservation:
    """An estimated cost that was taken, to be replaced by the real one."""

    def __init__(self, front: Front, key: Key, asks: list[Ask], decision: Decision) -> None:
        self._front = front
        self._asks = asks
        self._open = [True]  # whoever takes it out settles
        self.key = key
        self.decision = decision

    @property
    def cost(self) -> int:
        """The estimate."""
        return self._asks[0].cost

    def settle(self, cost: int) -> bool:
        """Say what it really cost: the rest goes back, or the excess is charged.

        False, and nothing happens, if it was settled or cancelled before.
        """
        check_cost(cost)
        if not _taken_out(self._open):
            return False
        self._front.give([ask._replace(op="settle", cost=cost) for ask in self._asks], self.key)
        return True

    def cancel(self) -> bool:
        """Give all of it back."""
        return self.settle(0)


class Try:
    """An attempt under way: one is counted until it turns out well."""

    def __init__(self, front: Front, key: Key, asks: list[Ask], decision: Decision) -> None:
        self._front = front
        self._asks = asks
        self._open = [True]
        self.key = key
        self.decision = decision

    def succeed(self) -> None:
        """It turned out well: what was counted goes back."""
        if _taken_out(self._open):
            self._front.give(given_back(self._asks, self.decision), self.key)

    def fail(self) -> None:
        """It failed: what was counted stays, whatever happens later."""
        _taken_out(self._open)


class _Context(Generic[Held]):
    """A take on the way in and something to do on the way out; may be entered again."""

    def __init__(
        self, front: Front, key: Key, cost: int, timeout: float | None, priority: int, ttl: int
    ) -> None:
        self._front = front
        self._key = key
        self._cost = check_cost(cost)
        self._timeout = timeout
        self._priority = priority
        self._ttl = ttl
        self._inside: list[Any] = []

    _kind: Any

    def _asks(self) -> list[Ask]:
        token = self._front.store.token()  # ever larger, so a later permit outranks an earlier one
        return self._front.asks("take", self._key, self._cost, ttl=self._ttl, token=token)

    def _entered(self, asks: list[Ask], decision: Decision) -> Held:
        held: Held = self._kind(self._front, self._key, asks, decision)
        self._inside.append(held)
        return held

    def leave(self, failed: bool) -> None:
        raise NotImplementedError

    def _sync_enter(self) -> Held:
        asks = self._asks()
        try:
            decision = self._front.wait_for(self._key, asks, self._timeout, self._priority)
            return self._entered(asks, decision)
        except LimitExceeded:
            raise
        except BaseException:
            self._abandon(asks)
            raise

    async def _async_enter(self) -> Held:
        asks = self._asks()
        decision = await self._front.await_for(self._key, asks, self._timeout, self._priority)
        return self._entered(asks, decision)

    def _abandon(self, asks: list[Ask]) -> None:
        """An interrupt may come after the store has given a permit: its token takes it back."""
        permits = [
            ask._replace(op="release") for ask in asks if ask.limit.algorithm == "concurrency"
        ]
        if permits:
            self._front.give(permits, self._key)


class _With(_Context[Held]):
    def __enter__(self) -> Held:
        return self._sync_enter()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.leave(kind is not None)


class _AsyncWith(_Context[Held]):
    async def __aenter__(self) -> Held:
        return await self._async_enter()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.leave(kind is not None)


class _Holding(_Context[Permit]):
    _kind = Permit

    def _asks(self) -> list[Ask]:
        # Only permits are leased; what a rate has counted does not come back.
        return [
            ask if ask.limit.algorithm == "concurrency" else ask._replace(token=0, ttl=0)
            for ask in super()._asks()
        ]

    def leave(self, failed: bool) -> None:
        self._inside.pop().release()


class _Reserving(_Context[Reservation]):
    _kind = Reservation

    def _asks(self) -> list[Ask]:
        if self._inside:
            raise RuntimeError("this reservation is under way; make another one")
        return super()._asks()

    def leave(self, failed: bool) -> None:
        reservation = self._inside.pop()
        reservation.settle(0 if failed else reservation.cost)


class _Attempting(_Context[Try]):
    _kind = Try

    def leave(self, failed: bool) -> None:
        attempt = self._inside.pop()
        if failed:
            attempt.fail()
        else:
            attempt.succeed()


class Hold(_Holding, _With[Permit]):
    """`with limiter.hold(...)`."""


class AsyncHold(_Holding, _AsyncWith[Permit]):
    """`async with limiter.hold(...)`."""


class Reserve(_Reserving, _With[Reservation]):
    """`with limiter.reserve(...)`."""


class AsyncReserve(_Reserving, _AsyncWith[Reservation]):
    """`async with limiter.reserve(...)`."""


class Attempt(_Attempting, _With[Try]):
    """`with limiter.attempt(...)`."""


class AsyncAttempt(_Attempting, _AsyncWith[Try]):
    """`async with limiter.attempt(...)`."""
