"""The local tier: leases that are used here, and refusals that are known here."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest
from lease_tools import LEASED, grown

from far import FarStore, by_hand
from headgate import AsyncLimiter, Limit, Limiter, ManualClock
from headgate.decision import Ask, Decision
from headgate.stores import MemoryStore
from headgate.stores.lease import LeaseStore
from headgate.stores.tier import can_lease, chunk_of, life_of

# -- leases


def test_few_crossings_for_many_hits() -> None:
    _, far = by_hand()
    limiter = Limiter(LEASED, store=LeaseStore(far))
    for _ in range(1000):
        assert limiter.hit("k").allowed
    assert far.crossings < 20


def test_no_more_is_admitted_than_the_store_counted() -> None:
    _, far = by_hand()
    store = LeaseStore(far)
    limiter = Limiter(LEASED, store=store)
    plain = Limiter(LEASED, store=MemoryStore(clock=far.clock))
    admitted = sum(bool(limiter.hit("k")) for _ in range(3000))
    assert admitted == 1600 == sum(bool(plain.hit("k")) for _ in range(3000))
    assert far.memory.decide([Ask("check", Limit.parse(LEASED), "k")])[0].remaining == 0


def test_a_decision_says_what_is_left_here_and_there() -> None:
    _, far = by_hand()
    limiter = Limiter(LEASED, store=LeaseStore(far))
    for number in range(1, 500):
        decision = limiter.hit("k")
        assert decision.remaining == 1600 - number
        assert decision.reset_after == pytest.approx(3600 - 1000 % 3600)
        assert decision.at == 1_000_000_000
        assert decision.limit == Limit.parse(LEASED)
        assert decision.granted == 1
        assert decision.retry_after == 0
        assert not decision.delay


def test_chunks_grow_with_demand_and_shrink_again() -> None:
    clock, far = by_hand()
    store = LeaseStore(far)
    limiter = Limiter(LEASED, store=store)
    limiter.hit("k")
    assert store.outstanding == 0  # a first hit takes one
    grown(limiter, far, times=500)
    chunk = store.tier("", (Limit.parse(LEASED),), "").entries["k"].chunk
    assert chunk == store.bound(Limit.parse(LEASED)) == 100
    for _ in range(10):
        clock.advance(2)
        limiter.hit("k")
    assert store.tier("", (Limit.parse(LEASED),), "").entries["k"].chunk < 10
    clock.advance(60)
    limiter.hit("k")
    assert store.tier("", (Limit.parse(LEASED),), "").entries["k"].chunk == 1


def test_what_is_left_goes_back_when_nobody_comes() -> None:
    clock, far = by_hand()
    store = LeaseStore(far)
    limiter = Limiter(LEASED, store=store)
    used = grown(limiter, far)
    assert store.outstanding > 0
    clock.advance(1.1)
    assert store.outstanding == 0
    assert far.memory.decide([Ask("check", Limit.parse(LEASED), "k")])[0].remaining == 1600 - used


def test_what_is_left_goes_back_at_the_end() -> None:
    _, far = by_hand()
    store = LeaseStore(far)
    limiter = Limiter(LEASED, store=store)
    used = grown(limiter, far)
    back: list[Decision] = []
    far.close = lambda: back.extend(  # type: ignore[method-assign] # for this test
        far.memory.decide([Ask("check", Limit.parse(LEASED), "k")])
    )
    store.close()
    assert back[0].remaining == 1600 - used
    assert store.outstanding == 0


def test_a_thread_gives_back_by_the_systems_clock_and_ends() -> None:
    far = FarStore()
    store = LeaseStore(far)
    limiter = Limiter("100000/second lease", store=store)
    grown(limiter, far)
    end = time.monotonic() + 30
    while (store.outstanding or store._sweeper.thread) and time.monotonic() < end:
        time.sleep(0.01)
    assert store.outstanding == 0
    assert store._sweeper.thread is None


def test_a_lease_dies_with_its_window() -> None:
    clock = ManualClock(3599.9)
    far = FarStore(clock)
    store = LeaseStore(far)
    limiter = Limiter(LEASED, store=store)
    grown(limiter, far)
    assert store.outstanding > 0
    clock.advance(0.1)  # another window
    far.crossings = 0
    assert limiter.hit("k").remaining == 1599
    assert far.crossings == 1


@pytest.mark.parametrize(
    ("text", "leases"),
    [("5/second lease", True), ("5/second gcra lease", True), ("5/second debt lease", False),
     ("5/second even lease", False), ("5/second leaky-bucket queue 2 lease", False),
     ("5/second elastic 50% lease", False), ("5/second", False),
     ("5/second sliding-log lease", True), ("5/second warm-up 10s lease", False),
     ("5/day tz Asia/Shanghai lease", True)],
)  # fmt: skip
def test_what_can_be_leased(text: str, leases: bool) -> None:
    assert can_lease(Limit.parse(text)) is leases
    _, far = by_hand()
    limiter = Limiter(text, store=LeaseStore(far))
    plain = Limiter(text, clock=ManualClock(1000))
    for _ in range(12):
        assert limiter.hit("k").allowed == plain.hit("k").allowed


def test_numbers_of_a_lease() -> None:
    assert chunk_of(Limit.parse("1000/second lease")) == 62
    assert chunk_of(Limit.parse("5/second lease")) == 1
    assert chunk_of(Limit.parse("1000/second gcra burst 32 lease")) == 2
    assert life_of(Limit.parse("1000/second lease")) == 100_000_000
    assert life_of(Limit.parse("1000/day lease")) == 1_000_000_000


def test_costs_of_all_sizes_and_partial_takes() -> None:
    _, far = by_hand()
    limiter = Limiter(LEASED, store=LeaseStore(far))
    plain = Limiter(LEASED, store=MemoryStore(clock=far.clock))
    for cost in [1, 2, 3, 50, 0, 7, 300, 1, 1, 1, 900, 400, 1, 200, 100, 90, 5, 1]:
        near, exact = limiter.hit("k", cost=cost), plain.hit("k", cost=cost)
        assert near.allowed == exact.allowed, cost
        assert near.remaining == exact.remaining
        assert near.granted == exact.granted
    assert limiter.hit("k", cost=1000, partial=True).granted == 27
    for bad in (-1, True, 1.5, 2**53):
        with pytest.raises((TypeError, ValueError)):
            limiter.hit("k", cost=bad)  # type: ignore[arg-type] # that is the point
    with pytest.raises(TypeError):
        limiter.hit(3)  # type: ignore[arg-type] # that is the point


def test_keys_of_all_kinds() -> None:
    clock, far = by_hand()
    store = LeaseStore(far)
    limiter = Limiter(LEASED, store=store)
    keys: list[Any] = ["a", "\u00e9", "\ud800", b"\xff\x00", ("a", "b"), ("a/b",), b"bytes"]
    for key in keys:
        grown(limiter, far, key, times=50)
    assert limiter.hit("bytes").remaining == 1549
    clock.advance(2)
    for key in keys:
        assert limiter.peek(key).remaining == (1549 if key == b"bytes" else 1550)


def test_a_look_sees_what_is_leased() -> None:
    _, far = by_hand()
    limiter = Limiter("16/hour fixed-window lease", store=LeaseStore(far))
    other = Limiter("16/hour fixed-window lease", store=LeaseStore(far))
    assert all(limiter.hit("k", cost=4).allowed for _ in range(4))
    assert not other.peek("k").allowed
    big = Limiter(LEASED, store=LeaseStore(far))
    grown(big, far)
    before = far.crossings
    look = big.peek("k")
    assert look.allowed
    assert not look.granted
    assert look.remaining == 1540
    assert far.crossings == before


def test_own_limits_and_resets_show_at_once() -> None:
    clock, far = by_hand()
    store = LeaseStore(far)
    limiter = Limiter(LEASED, store=store)
    used = grown(limiter, far)
    limiter.set_limit("k", "100/hour fixed-window")
    assert sum(bool(limiter.hit("k")) for _ in range(200)) == 100 - used
    limiter.set_limit("k", None)
    assert limiter.hit("k").allowed
    grown(limiter, far)
    limiter.reset("k")
    assert limiter.hit("k").remaining == 1599
    clock.advance(5)
    assert limiter.peek("k").remaining == 1599


def test_a_keys_own_limit_sizes_its_chunks() -> None:
    _, far = by_hand()
    store = LeaseStore(far)
    limiter = Limiter(LEASED, store=store)
    limiter.set_limit("k", "160/hour fixed-window")
    limiter.set_limit("e", "160/hour even")
    for _ in range(100):
        assert limiter.hit("k").allowed
        assert store.outstanding <= 10
    for _ in range(5):
        limiter.hit("e")
    assert store.tier("", limiter.limits, "").entries["e"].left == 0


def test_a_refund_returns_to_its_lease() -> None:
    _, far = by_hand()
    store = LeaseStore(far)
    limiter = Limiter(LEASED, store=store)
    grown(limiter, far)
    before, crossings = store.outstanding, far.crossings
    ask = Ask("take", Limit.parse(LEASED), "k")
    decision = store.decide([ask])[0]
    store.decide([ask._replace(op="refund", at=decision.at)])
    assert store.outstanding == before
    assert far.crossings == crossings


def test_at_most_so_many_keys_are_known() -> None:
    clock, far = by_hand()
    store = LeaseStore(far, keys=16)
    limiter = Limiter(LEASED, store=store)
    for number in range(100):
        grown(limiter, far, f"k{number}", times=10)
        assert limiter.hit("hot").allowed
    tier = store.tier("", (Limit.parse(LEASED),), "")
    assert len(tier.entries) == 16
    assert "hot" in tier.entries
    clock.advance(2)
    assert store.outstanding == 0
    for number in range(100):
        assert limiter.peek(f"k{number}").remaining == 1590
    with pytest.raises(ValueError, match="keys"):
        LeaseStore(far, keys=0)


def test_whoever_comes_while_a_chunk_is_on_its_way_asks_for_himself() -> None:
    _, far = by_hand()
    limiter = Limiter(LEASED, store=LeaseStore(far))
    inside: list[Decision] = []

    def meanwhile() -> None:
        far.before = None
        inside.append(limiter.hit("k"))

    far.before = meanwhile
    assert limiter.hit("k").allowed
    assert inside[0].allowed
    assert far.memory.decide([Ask("check", Limit.parse(LEASED), "k")])[0].remaining == 1598


def test_threads_use_no_more_than_was_counted() -> None:
    far = FarStore()
    store = LeaseStore(far)
    limiter = Limiter("20000/hour token-bucket lease", store=store)
    counts: list[int] = []

    def work() -> None:
        counts.append(sum(bool(limiter.hit("k")) for _ in range(8000)))

    threads = [threading.Thread(target=work) for _ in range(4)]
    began = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    refilled = (time.monotonic() - began + 1) * 20000 / 3600
    assert 20000 - chunk_of(limiter.limits[0]) <= sum(counts) <= 20000 + refilled


def test_tasks_share_a_lease_and_a_cancelled_one_loses_no_chunk() -> None:
    _, far = by_hand()
    store = LeaseStore(far)
    limiter = AsyncLimiter(LEASED, store=store)

    async def main() -> None:
        for _ in range(200):
            assert (await limiter.hit("k")).allowed
        assert far.crossings < 20
        assert len(await limiter.hit_many(["k", "l"])) == 2
        tier = store.tier("", (Limit.parse(LEASED),), "")
        tier.drain(tier.entries["k"])
        task = asyncio.create_task(limiter.hit("k"))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.sleep(0.01)
        assert store.outstanding > 10
        await store.close_async()

    asyncio.run(main())
