"""The memory store keeps the store contract."""

from __future__ import annotations

from headgate import ManualClock, MemoryStore
from headgate.testing import StoreContract


class TestMemoryStore(StoreContract):
    def make_store(self, clock: ManualClock) -> MemoryStore:
        return MemoryStore(clock=clock)


class TestFullMemoryStore(StoreContract):
    """A store with room for few keys decides the same."""

    def make_store(self, clock: ManualClock) -> MemoryStore:
        return MemoryStore(clock=clock, max_keys=8)
