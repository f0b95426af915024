"""What stands in front of a far store keeps the store contract too."""

from __future__ import annotations

from typing import Any

from far import FarStore
from headgate import ManualClock
from headgate.stores.failover import Failover
from headgate.stores.lease import LeaseStore
from headgate.testing import StoreContract


class TestFailover(StoreContract):
    """A store that answers."""

    def make_store(self, clock: ManualClock) -> Any:
        return Failover(FarStore(clock))


class TestStandIns(StoreContract):
    """A store that never answers: this process decides, and alone it decides the same."""

    def make_store(self, clock: ManualClock) -> Any:
        far = FarStore(clock)
        far.fail()
        return Failover(far)

    # An administrator is told; a permit that this process does not know may be held elsewhere.
    test_an_assigned_limit_holds_for_its_key_alone: Any = None
    test_permits_are_fenced: Any = None


class TestLeaseStore(StoreContract):
    """Refusals are remembered, and nothing differs."""

    def make_store(self, clock: ManualClock) -> Any:
        return LeaseStore(Failover(FarStore(clock)))
