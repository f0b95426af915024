"""Stores: where the state of keys lives, opened by URL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..errors import StoreError
from .memory import MemoryStore

if TYPE_CHECKING:
    from ..clock import Clock
    from .base import Store

__all__ = ["MemoryStore", "open_store"]


def open_store(store: Any = None, clock: Clock | None = None) -> Store:
    """A store as it is, by its URL, of a client of redis-py, or a new private one in memory."""
    if store is None:
        return MemoryStore(clock=clock)
    if isinstance(store, str):
        return _by_url(store, clock)
    if not callable(getattr(store, "decide", None)):
        homes = {kind.__module__.partition(".")[0] for kind in type(store).__mro__}
        if homes & {"redis", "valkey"}:
            from .redis import open_redis

            return open_redis(store, clock)
        raise TypeError(
            f"store is a store, its URL, or a client of redis-py, not {type(store).__name__}"
        )
    if clock is not None and store.clock is not clock:
        raise ValueError("the store has a clock of its own; give the clock to the store")
    return store  # type: ignore[no-any-return] # whatever decides is a store


def _by_url(url: str, clock: Clock | None) -> Store:
    scheme, mark, rest = url.partition("://")
    if mark and scheme == "zone":
        from .zone import ZoneStore

        return ZoneStore.from_url(url, clock)
    if mark and scheme.lower().startswith(("redis", "valkey")):
        from .redis import open_redis

        return open_redis(url, clock)
    if mark and scheme.lower() in ("headgate", "headgates", "headgate+unix"):
        from .client import open_client

        return open_client(url, clock)
    if scheme != "memory" or not mark or rest:
        raise StoreError(
            f"no store for {url!r}; known are memory://, zone:///path?size=16MiB, redis:// or "
            "valkey:// (also rediss, redis+unix, redis+sentinel, redis+cluster), and "
            "headgate://host:port (also headgates, headgate+unix)"
        )
    return MemoryStore(clock=clock)
