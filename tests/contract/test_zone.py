"""The zone keeps the store contract."""

from __future__ import annotations

from pathlib import Path

import pytest

from headgate import ManualClock
from headgate.stores.zone import ZoneStore
from headgate.testing import StoreContract


class TestZoneStore(StoreContract):
    @pytest.fixture(autouse=True)
    def place(self, tmp_path: Path) -> None:
        self.path = tmp_path / "zone"
        self.made = 0

    def make_store(self, clock: ManualClock) -> ZoneStore:
        self.made += 1
        return ZoneStore(f"{self.path}.{self.made}", size=1 << 20, clock=clock)


class TestKeepingZoneStore(TestZoneStore):
    """A zone that keeps the texts of keys decides the same."""

    def make_store(self, clock: ManualClock) -> ZoneStore:
        self.made += 1
        return ZoneStore(f"{self.path}.{self.made}", size=1 << 20, clock=clock, keys=True)


class TestAnonymousZoneStore(StoreContract):
    def make_store(self, clock: ManualClock) -> ZoneStore:
        return ZoneStore.anonymous(size=1 << 17, clock=clock)
