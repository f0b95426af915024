"""Failover: what comes back after it, and what is not masked by it."""

from __future__ import annotations

import pytest
from failover_tools import HOUR, take

from far import FarStore, by_hand
from headgate import Limit, Limiter
from headgate.decision import Ask
from headgate.errors import StoreError
from headgate.stores.failover import Failover

# -- what comes back


def test_permits_taken_from_the_store_go_back_to_it_once_it_answers() -> None:
    clock, far = by_hand()
    store = Failover(far)
    permits = Limit.parse("1 concurrent")
    assert store.decide([take(permits, token=1)])[0].allowed
    far.fail(sent=True)
    assert store.decide([Ask("release", permits, "k", token=1)])[0].allowed
    far.heal()
    assert not store.decide([take(permits, token=2)])[0].allowed  # told with the next call
    assert store.decide([take(permits, token=2)])[0].allowed
    assert clock.now() == 1000


def test_reservations_settle_late_and_once() -> None:
    _, far = by_hand()
    store = Failover(far)
    assert store.decide([take(cost=8, token=5, ttl=60_000_000)])[0].allowed
    far.fail()
    assert store.decide([Ask("settle", HOUR, "k", 2, token=5)])[0].allowed
    far.heal()
    store.decide([take(cost=0)])
    assert store.decide([take(cost=0)])[0].remaining == 8


def test_permits_granted_in_its_place_are_not_the_stores() -> None:
    _, far = by_hand()
    store = Failover(far)
    permits = Limit.parse("1 concurrent")
    far.fail()
    assert store.decide([take(permits, token=1)])[0].allowed
    far.heal()
    far.seen.clear()
    renewed, other = store.decide([Ask("renew", permits, "k", token=1, ttl=9), take()])
    assert renewed.allowed
    assert not other.degraded
    assert store.decide([Ask("release", permits, "k", token=1)])[0].allowed
    assert [ask.op for ask in far.seen] == ["take"]


def test_an_uncertain_refund_is_not_sent_twice() -> None:
    _, far = by_hand()
    store = Failover(far)
    store.decide([take(cost=5)])
    far.fail(sent=True)
    store.decide([Ask("refund", HOUR, "k", 2, at=1_000_000_000)])
    far.heal()
    for _ in range(2):
        assert store.decide([take(cost=0)])[0].remaining == 5
    far.fail(sent=False)
    store.decide([Ask("refund", HOUR, "k", 2, at=1_000_000_000)])
    far.heal()
    store.decide([take(cost=0)])
    assert store.decide([take(cost=0)])[0].remaining == 7


# -- what is not masked


def test_mistakes_and_closed_stores_are_errors() -> None:
    _, far = by_hand()
    store = Failover(far)
    with pytest.raises(ValueError, match="cost"):
        store.decide([take(cost=-1)])
    with pytest.raises(TypeError):
        store.decide([take(key=3)])
    far.down = StoreError("NOPERM")
    with pytest.raises(StoreError, match="NOPERM"):
        store.decide([take()])
    assert store.failures == 0
    far.heal()
    store.close()
    with pytest.raises(StoreError, match="closed"):
        store.decide([take()])


def test_an_administrator_is_told() -> None:
    _, far = by_hand()
    limiter = Limiter(HOUR, store=Failover(far))
    far.fail()
    with pytest.raises(StoreError):
        limiter.set_limit("k", "20/hour fixed-window")
    with pytest.raises(StoreError):
        limiter.get_limit("k")


def test_options_are_checked() -> None:
    far = FarStore()
    with pytest.raises(ValueError, match="on_error"):
        Failover(far, on_error="pray")
    for nodes in (0, True, 1.5):
        with pytest.raises(ValueError, match="nodes"):
            Failover(far, nodes=nodes)  # type: ignore[arg-type] # that is the point
