"""Leases beside other limits, written back, and when the store or the process fails."""

from __future__ import annotations

import gc
import os

import pytest
from lease_tools import LEASED, grown

from far import by_hand
from headgate import Limit, Limiter
from headgate.decision import Ask
from headgate.errors import StoreUnavailable
from headgate.stores.failover import Failover
from headgate.stores.lease import LeaseStore

# -- several limits


def test_leased_and_other_limits_together() -> None:
    _, far = by_hand()
    store = LeaseStore(far)
    limiter = Limiter("160/hour fixed-window lease", "100/day fixed-window", store=store)
    decisions = [limiter.hit("k") for _ in range(100)]
    assert all(decisions)
    assert decisions[-1].remaining == 0
    refused = limiter.hit("k")
    assert not refused.allowed
    assert [part.allowed for part in refused.parts] == [True, False]
    assert [part.granted for part in refused.parts] == [0, 0]
    assert refused.parts[0].remaining <= 60
    crossings = far.crossings
    again = limiter.hit("k")
    assert not again.allowed
    assert again.retry_after == refused.retry_after
    assert far.crossings == crossings
    store.close()


def test_a_leased_limit_that_refuses_leaves_the_others_as_they_were() -> None:
    clock, far = by_hand()
    limiter = Limiter(
        "3/hour fixed-window", "20/hour fixed-window lease", "2/hour gcra burst 9 lease",
        store=LeaseStore(far),
    )  # fmt: skip
    assert limiter.hit("k", cost=2).allowed
    refused = limiter.hit("k", cost=8)
    assert [part.allowed for part in refused.parts] == [False, True, False]
    clock.advance(1.1)
    assert [part.remaining for part in limiter.peek("k").parts] == [1, 18, 7]
    assert limiter.hit("k").allowed


# -- written back


def test_written_back_admits_first_and_counts_later() -> None:
    clock, far = by_hand()
    stores = [LeaseStore(far, write_back=True) for _ in range(3)]
    limiters = [Limiter(LEASED, store=store) for store in stores]
    admitted = 0
    for _ in range(2000):
        admitted += sum(bool(limiter.hit("k")) for limiter in limiters)
    bound = 3 * stores[0].bound(Limit.parse(LEASED))
    assert 1600 <= admitted <= 1600 + bound
    clock.advance(2)
    assert far.memory.decide([Ask("check", Limit.parse(LEASED), "k")])[0].remaining == 0


def test_written_back_is_counted_when_idle() -> None:
    clock, far = by_hand()
    store = LeaseStore(far, write_back=True)
    limiter = Limiter(LEASED, store=store)
    used = grown(limiter, far)
    clock.advance(2)
    assert far.memory.decide([Ask("check", Limit.parse(LEASED), "k")])[0].remaining == 1600 - used


# -- failure, and forks


def test_a_store_that_cannot_answer_is_not_leased_from() -> None:
    clock, far = by_hand()
    failover = Failover(far)
    store = LeaseStore(failover)
    limiter = Limiter(LEASED, store=store)
    used = grown(limiter, far)
    clock.advance(2)
    far.down = StoreUnavailable("gone")
    decisions = [limiter.hit("k") for _ in range(1700)]
    assert sum(d.allowed for d in decisions) == 1600  # a share of its own
    assert all(d.degraded for d in decisions)
    far.heal()
    clock.advance(3)
    limiter.hit("k", cost=0)
    clock.advance(3)
    decision = limiter.hit("k")
    assert not decision.degraded
    assert decision.remaining == 1600 - used - 1  # and nothing went back that was never taken


def test_a_denied_key_is_asked_for_again() -> None:
    clock, far = by_hand()
    limiter = Limiter(LEASED, store=LeaseStore(Failover(far, on_error="deny")))
    far.fail()
    assert not limiter.hit("k").allowed
    far.heal()
    assert limiter.hit("k").allowed
    assert clock.now() == 1000


def test_what_cannot_be_given_back_is_kept_by_whoever_fails_over() -> None:
    clock, far = by_hand()
    store = LeaseStore(Failover(far))
    limiter = Limiter(LEASED, store=store)
    used = grown(limiter, far)
    far.fail()
    clock.advance(2)
    assert store.outstanding == 0
    far.heal()
    limiter.peek("other")
    assert limiter.peek("k").remaining == 1600 - used


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_child_does_not_use_its_parents_lease() -> None:
    _, far = by_hand()
    store = LeaseStore(far)
    limiter = Limiter(LEASED, store=store)
    grown(limiter, far)
    child = os.fork()
    if child == 0:
        before = far.crossings
        good = store.outstanding == 0 and limiter.hit("k").allowed and far.crossings > before
        os._exit(0 if good else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert store.outstanding > 0


def test_stores_go_when_nobody_has_them() -> None:
    import weakref

    _, far = by_hand()
    store = LeaseStore(far)
    limiter = Limiter("5/hour", store=store)
    limiter.hit("k")
    gone = weakref.ref(store)
    del store, limiter
    gc.collect()
    assert gone() is None
