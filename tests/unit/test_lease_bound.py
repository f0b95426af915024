"""The bound of leases, on random traces of several processes."""

from __future__ import annotations

import random

import pytest

from far import FarStore
from headgate import Limit, Limiter, ManualClock
from headgate.decision import Ask
from headgate.stores import MemoryStore
from headgate.stores.lease import LeaseStore


def played(
    rng: random.Random, limiters: list[Limiter], clock: ManualClock
) -> list[tuple[float, int]]:
    """Random hits of several processes; when, and how much was admitted."""
    admitted = []
    step = rng.choice([0.0, 0.0005, 0.005, 0.05])
    for _ in range(rng.randrange(50, 400)):
        for _ in range(rng.choice([1, 1, 1, 30])):
            limiter = rng.choice(limiters)
            cost = rng.choice([1, 1, 1, 2, 5])
            if limiter.hit("k", cost=cost).allowed:
                admitted.append((clock.now(), cost))
        clock.advance(rng.choice([0, step, step, rng.random() * step * 10]))
    return admitted


@pytest.mark.parametrize(
    "text",
    ["160/second fixed-window lease", "160/second lease", "160/second sliding-log lease",
     "160/second gcra lease", "160/second token-bucket burst 320 lease",
     "160/second sliding-window cells 8 lease"],
)  # fmt: skip
@pytest.mark.parametrize("seed", range(6))
def test_a_span_exceeds_the_limit_by_outstanding_leases_at_most(text: str, seed: int) -> None:
    rng = random.Random(f"{text}{seed}")
    clock = ManualClock(1000 + rng.random())
    memory = MemoryStore(clock=clock)
    fars = [FarStore(memory=memory) for _ in range(rng.randrange(1, 5))]
    stores = [LeaseStore(far) for far in fars]
    limit = Limit.parse(text)
    limiters = [Limiter(limit, store=store) for store in stores]
    admitted = played(rng, limiters, clock)
    debited = 0
    for far in fars:
        far.close = lambda: None  # type: ignore[method-assign] # it is shared
        debited += sum(ask.cost for ask in far.seen if ask.op == "take")
        debited -= sum(ask.cost for ask in far.seen if ask.op == "refund")
    assert sum(cost for _, cost in admitted) <= debited
    slack = len(stores) * stores[0].bound(limit)
    if "sliding-window" in limit.algorithm:  # what these admit themselves in any span
        slack += limit.amount
    capacity = 2 * limit.amount if limit.algorithm == "fixed-window" else limit.capacity
    rate = limit.amount if limit.algorithm in ("gcra", "token-bucket") else 0
    for first, (start, _) in enumerate(admitted):
        total = 0
        for when, cost in admitted[first:]:
            if not rate and when - start >= 1:
                break
            total += cost
            assert total <= capacity + rate * (when - start) + slack
    if limit.algorithm == "fixed-window":
        windows: dict[int, int] = {}
        for when, cost in admitted:
            windows[int(when)] = windows.get(int(when), 0) + cost
        assert max(windows.values()) <= limit.amount  # a lease dies with its window
    for store in stores:
        store.close()
    assert sum(store.outstanding for store in stores) == 0


@pytest.mark.parametrize("text", ["2000/day fixed-window lease", "2000/day sliding-log lease"])
@pytest.mark.parametrize("seed", range(6))
def test_at_the_end_only_what_was_used_is_counted(text: str, seed: int) -> None:
    rng = random.Random(f"{text}{seed}")
    clock = ManualClock(1000 + rng.random())
    memory = MemoryStore(clock=clock)
    fars = [FarStore(memory=memory) for _ in range(3)]
    stores = [LeaseStore(far, write_back=seed % 2 == 1) for far in fars]
    limit = Limit.parse(text)
    admitted = played(rng, [Limiter(limit, store=store) for store in stores], clock)
    for far, store in zip(fars, stores, strict=True):
        far.close = lambda: None  # type: ignore[method-assign] # it is shared
        store.close()
    used = sum(cost for _, cost in admitted)
    left = memory.decide([Ask("check", limit, "k")])[0].remaining
    assert left == max(0, 2000 - used)
