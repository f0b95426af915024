"""The store of a headgate service: `headgate://host:port`."""

from __future__ import annotations

from typing import Any

from ...clock import Clock
from ..base import BlockingStore
from ..failover import Failover
from ..lease import LeaseStore
from .store import ClientStore

__all__ = ["ClientStore", "open_client"]


def open_client(address: str, clock: Clock | None = None, **options: Any) -> BlockingStore:
    """A store of a headgate service that answers also when the service does not.

    Options are those of the URL. In front of the service stand, in this order: what is known to
    be refused and what is leased, and whoever decides when the service cannot.
    """
    store = ClientStore(address, clock=clock, **options)
    chosen = store.options
    safe = Failover(store, on_error=chosen.on_error, nodes=chosen.nodes)
    return LeaseStore(safe, refusals=chosen.cache, write_back=chosen.write_back)
