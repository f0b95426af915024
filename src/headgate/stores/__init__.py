"""Stores: where the state of keys lives, opened by URL."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import StoreError
from .memory import MemoryStore

if TYPE_CHECKING:
    from ..clock import Clock
    from .base import Store

__all__ = ["MemoryStore", "open_store"]


def open_store(store: Store | str | None, clock: Clock | None = None) -> Store:
    """A store as it is, by its URL, or a new private one in memory."""
    if store is None:
        return MemoryStore(clock=clock)
    if isinstance(store, str):
        scheme, mark, rest = store.partition("://")
        if scheme == "zone" and mark:
            from .zone import ZoneStore

            return ZoneStore.from_url(store, clock)
        if scheme != "memory" or not mark or rest:
            raise StoreError(
                f"no store for {store!r}; known are memory:// and zone:///path?size=16MiB"
            )
        return MemoryStore(clock=clock)
    if not callable(getattr(store, "decide", None)):
        raise TypeError(f"store is a store or its URL, not {type(store).__name__}")
    if clock is not None and store.clock is not clock:
        raise ValueError("the store has a clock of its own; give the clock to the store")
    return store
