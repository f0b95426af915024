"""The store contract: one verb, decide, and the few calls of an administrator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ..clock import Clock
from ..decision import Ask, Decision
from ..keys import Key
from ..limit import Limit

__all__ = ["Prepared", "Quick", "Store"]


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
