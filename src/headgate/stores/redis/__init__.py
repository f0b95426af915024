"""The store on Redis or Valkey: one limit for all machines."""

from __future__ import annotations

from typing import Any

from ...clock import Clock
from ..base import BlockingStore
from ..failover import Failover
from ..lease import LeaseStore
from .store import RedisStore

__all__ = ["RedisStore", "open_redis"]


def open_redis(address: Any, clock: Clock | None = None, **options: Any) -> BlockingStore:
    """A store on Redis or Valkey that answers also when the server does not.

    `address` is a URL or a client of redis-py or valkey-py; options are those of the URL. In
    front of the server stand, in this order: what is known to be refused and what is leased,
    and whoever decides when the server cannot.
    """
    store = RedisStore(address, clock=clock, **options)
    chosen = store.options
    safe = Failover(store, on_error=chosen.on_error, nodes=chosen.nodes)
    return LeaseStore(safe, refusals=chosen.cache, write_back=chosen.write_back)
