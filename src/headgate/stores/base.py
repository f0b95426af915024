"""The store contract: one verb, decide, and the few calls of an administrator."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import Protocol

from ..clock import Clock
from ..decision import Ask, Decision
from ..keys import Key
from ..limit import Limit

__all__ = ["BlockingStore", "Prepared", "PreparedAsync", "Quick", "QuickAsync", "Store"]


class Quick(Protocol):
    """A prepared take of one limit: the same answer as `decide`, with less to say."""

    def __call__(self, key: Key = "", cost: int = 1, *, partial: bool = False) -> Decision: ...


class Prepared(Protocol):
    """A prepared take and its plural, with everything looked up beforehand."""

    @property
    def hit(self) -> Quick: ...

    def hit_many(self, keys: list[Key], cost: int) -> list[Decision]:
        """Independent decisions in one crossing, in order; the cost has been checked."""
        ...


class QuickAsync(Protocol):
    """The same take, awaited."""

    def __call__(
        self, key: Key = "", cost: int = 1, *, partial: bool = False
    ) -> Awaitable[Decision]: ...


class PreparedAsync(Protocol):
    """A prepared take and its plural, awaited."""

    @property
    def hit(self) -> QuickAsync: ...

    def hit_many(self, keys: list[Key], cost: int) -> Awaitable[list[Decision]]:
        """Independent decisions in one crossing, in order; the cost has been checked."""
        ...


class Store(Protocol):
    """Where state lives, and whose clock counts. Every call is atomic."""

    blocking: bool
    """Whether a call may wait for something outside this machine."""
    shared: bool
    """Whether other processes decide on the same state."""

    @property
    def clock(self) -> Clock: ...

    def decide(self, asks: Sequence[Ask]) -> list[Decision]:
        """Answer the asks in order; takes pass together or not at all."""
        ...

    def decide_many(self, groups: Sequence[Sequence[Ask]]) -> list[list[Decision]]:
        """Answer groups of asks, each all-or-nothing by itself, in one crossing."""
        ...

    def quick(self, space: str, limits: Sequence[Limit]) -> Prepared | None:
        """A prepared take of these limits together, if this store has a shorter way for it."""
        ...

    def forecast(self, asks: Sequence[Ask], ahead: int) -> int:
        """Not before how many microseconds the asks can pass behind `ahead` of others."""
        ...

    def deciding(self) -> bool:
        """Whether this thread is in the middle of a decision of this store."""
        ...

    def token(self) -> int:
        """A new token, larger than every earlier one of this store."""
        ...

    def assign(self, space: str, limit_id: str, key: Key, limit: Limit | None) -> None:
        """Give a key a limit of its own, or take it away."""
        ...

    def assigned(self, space: str, limit_id: str, key: Key) -> Limit | None:
        """The limit a key was given, if any."""
        ...

    def close(self) -> None:
        """Let go of everything; later calls raise StoreError."""
        ...


class BlockingStore(Store, Protocol):
    """A store that waits for something outside this machine, so that its calls have two colours.

    The plain calls block their thread; the awaited ones let other tasks run. An awaited call
    that is cancelled may or may not have had its effect. Decisions tell the time of the store,
    which need not be that of `clock`: only what lies between two instants is compared.
    """

    lease_ttl: float
    """Seconds after which a permit comes back whose holder is no longer heard of."""

    def quick(self, space: str, limits: Sequence[Limit], on_error: str = "") -> Prepared | None:
        """A prepared take, unless a limit counts permits or is elastic.

        `on_error` is what its asks would say.
        """
        ...

    def quick_async(
        self, space: str, limits: Sequence[Limit], on_error: str = ""
    ) -> PreparedAsync | None:
        """The same, awaited."""
        ...

    async def decide_async(self, asks: Sequence[Ask]) -> list[Decision]:
        """Answer the asks in order; takes pass together or not at all."""
        ...

    async def decide_many_async(self, groups: Sequence[Sequence[Ask]]) -> list[list[Decision]]:
        """Answer groups of asks, each all-or-nothing by itself, in one crossing."""
        ...

    async def assign_async(self, space: str, limit_id: str, key: Key, limit: Limit | None) -> None:
        """Give a key a limit of its own, or take it away."""
        ...

    async def assigned_async(self, space: str, limit_id: str, key: Key) -> Limit | None:
        """The limit a key was given, if any."""
        ...

    async def close_async(self) -> None:
        """Let go of everything; later calls raise StoreError."""
        ...
