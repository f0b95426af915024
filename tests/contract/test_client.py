"""The store contract over the wire: clients of services that decide in memory, or in a zone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from client_tools import Decider, Service
from headgate import AsyncGate, ManualClock
from headgate.service.app import Service as HeadgateService
from headgate.stores import MemoryStore
from headgate.stores.client import ClientStore
from headgate.stores.zone import ZoneStore
from headgate.testing import StoreContract


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with Service() as started:
        yield started


class TestClientStore(StoreContract):
    @pytest.fixture(autouse=True)
    def place(self, service: Service) -> Iterator[None]:
        self.service = service
        self.made: list[Any] = []
        yield
        for store in self.made:
            store.close()

    def far_store(self, clock: ManualClock) -> Any:
        """What the service decides with: None for a store in memory."""
        return None

    def make_store(self, clock: ManualClock) -> ClientStore:
        # A store of its own at the service, on the same clock: a new store is an empty one.
        app: Decider = self.service.app
        name = app.add(clock, self.far_store(clock))
        store = ClientStore(f"{self.service.url}/{name}", clock=clock, budget=5)
        self.made.append(store)
        return store


class TestClientOfAZone(TestClientStore):
    def far_store(self, clock: ManualClock) -> Any:
        store = ZoneStore.from_url("zone://?size=1MiB", clock)
        self.made.append(store)
        return store


class TestClientOfTheService(TestClientStore):
    """The service itself, as `headgate serve` runs it."""

    def make_store(self, clock: ManualClock) -> ClientStore:
        app: Decider = self.service.app
        gate = AsyncGate('{"version": 1, "rules": []}', store=MemoryStore(clock=clock))
        name = f"a{len(app.apps)}"
        app.apps[name] = HeadgateService(gate)
        store = ClientStore(f"{self.service.url}/{name}", clock=clock, budget=5)
        self.made.append(store)
        return store
