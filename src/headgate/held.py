"""What is taken for a while: permits held, costs reserved, attempts that may fail.

Each is written once: what to take on the way in, and what is then held says what to give back
on the way out. A `with` and an `async with` form send it.
"""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from .answers import by_token
from .callers import shielded
from .clock import ttl_of
from .decision import Ask, Decision, check_cost
from .errors import LimitExceeded
from .taken import Permit, Reservation, Try

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

    from .front import Front
    from .keys import Key

__all__ = [
    "AsyncAttempt", "AsyncHold", "AsyncReserve", "Attempt", "Hold", "Permit", "Reservation",
    "Reserve", "Try",
]  # fmt: skip

Held = TypeVar("Held")


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

    def _entered(self, asks: list[Ask], decision: Decision, loop: AbstractEventLoop | None) -> Held:
        held: Held = self._kind(self._front, self._key, asks, decision)
        self._inside.append(held)
        return held

    def _abandon(self, asks: list[Ask]) -> None:
        """An interrupt may come after the store has given a permit: its token takes it back."""
        back = [ask for ask in by_token(asks) if ask.op == "release" or self._front.store.blocking]
        if back:
            self._front.give(back, self._key)


class _With(_Context[Held]):
    def __enter__(self) -> Held:
        asks = self._asks()
        try:
            decision = self._front.wait_for(self._key, asks, self._timeout, self._priority)
            return self._entered(asks, decision, None)
        except LimitExceeded:
            raise
        except BaseException as error:
            # A store that cannot answer is not asked again: what it leased comes back by itself.
            if not (self._front.store.blocking and isinstance(error, Exception)):
                self._abandon(asks)
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        held = self._inside.pop()
        try:
            asks = held.parting(kind is not None)
            if asks:
                self._front.give(asks, self._key)
        except Exception:
            raise
        except BaseException:
            self._abandon(held.asks)  # interrupted; what came back already does not do so twice
            raise


class _AsyncWith(_Context[Held]):
    async def __aenter__(self) -> Held:
        asks = self._asks()
        decision = await self._front.await_for(self._key, asks, self._timeout, self._priority)
        if not self._front.store.blocking:
            return self._entered(asks, decision, None)
        import asyncio

        held: Any = self._entered(asks, decision, asyncio.get_running_loop())
        held.put_off()
        entered: Held = held
        return entered

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        held = self._inside.pop()
        asks = held.parting(kind is not None)
        if not self._front.store.blocking:
            if asks:
                self._front.give(asks, self._key)
            return
        if asks:
            await shielded(self._front.give_later(asks, self._key))
        await held.sent()


class _Holding(_Context[Permit]):
    _kind = Permit

    def _lease(self) -> int:
        """The time to live of a permit that is renewed as long as it is held; 0 if it is not."""
        store: Any = self._front.store
        return ttl_of(store.lease_ttl) if store.blocking and not self._ttl else 0

    def _asks(self) -> list[Ask]:
        # Only permits are leased; what a rate has counted does not come back.
        lease = self._ttl or self._lease()
        return [
            ask._replace(token=0, ttl=0)
            if ask.limit.algorithm != "concurrency"
            else ask
            if ask.ttl == lease
            else ask._replace(ttl=lease)
            for ask in super()._asks()
        ]

    def _entered(
        self, asks: list[Ask], decision: Decision, loop: AbstractEventLoop | None
    ) -> Permit:
        permit = super()._entered(asks, decision, loop)
        lease = self._lease()
        if lease and decision.granted:  # and not merely let pass
            permit.keep(lease, loop)
        return permit


class _Reserving(_Context[Reservation]):
    _kind = Reservation

    def _asks(self) -> list[Ask]:
        if self._inside:
            raise RuntimeError("this reservation is under way; make another one")
        return super()._asks()


class _Attempting(_Context[Try]):
    _kind = Try


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
