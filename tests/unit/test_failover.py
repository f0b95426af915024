"""Failover: what is answered when the store cannot, and how it is asked again."""

from __future__ import annotations

import asyncio
import logging
import pickle
import threading
from typing import Any

import pytest
from failover_tools import HOUR, take

from far import FarStore, by_hand
from headgate import AsyncLimiter, Limit, Limiter
from headgate.decision import Ask, Decision, joined
from headgate.errors import StoreUnavailable
from headgate.stores.failover import Failover
from headgate.stores.store_breaker import StoreBreaker

# -- what is answered in the store's place


def test_a_store_that_answers_is_all_there_is() -> None:
    _, far = by_hand()
    limiter = Limiter(HOUR, store=Failover(far))
    decisions = [limiter.hit("k") for _ in range(11)]
    assert [d.allowed for d in decisions] == [True] * 10 + [False]
    assert not any(d.degraded for d in decisions)
    assert far.crossings == 11


def test_local_counts_the_share_of_a_node() -> None:
    _, far = by_hand()
    store = Failover(far, nodes=4)
    far.fail()
    limiter = Limiter(HOUR, store=store)
    decisions = [limiter.hit("k") for _ in range(5)]
    assert [d.allowed for d in decisions] == [True] * 3 + [False] * 2  # ceil(10 / 4)
    assert all(d.degraded for d in decisions)
    assert decisions[0].remaining == 2
    assert decisions[0].limit == HOUR
    assert decisions[-1].retry_after > 0
    assert store.degraded_decisions == 5
    assert limiter.hit("other").allowed


@pytest.mark.parametrize(
    "text",
    ["100/minute", "100/minute fixed-window", "100/minute token-bucket burst 20 initial 5",
     "100/minute gcra burst 7", "100/second sliding-window cells 10", "50/minute sliding-log",
     "10/second leaky-bucket queue 5 delay 2", "50/10s even", "7 concurrent",
     "100/second warm-up 10s cold 3", "1/day fixed-window tz Asia/Shanghai", "10/second debt"],
)  # fmt: skip
@pytest.mark.parametrize("nodes", [1, 2, 3, 1000])
def test_a_share_is_rounded_up_and_filed_under_the_same_id(text: str, nodes: int) -> None:
    limit = Limit.parse(text)
    share = limit.share(nodes)
    assert share.id == limit.id
    assert share.amount == -(-limit.amount // nodes)
    assert limit.amount <= share.amount * nodes <= limit.amount + nodes * nodes - 1
    assert share.capacity >= 1
    assert share.algorithm == limit.algorithm


def test_allow_lets_everything_pass() -> None:
    _, far = by_hand()
    far.fail()
    limiter = Limiter(HOUR, store=Failover(far, on_error="allow"))
    decisions = [limiter.hit("k") for _ in range(50)]
    assert all(d.allowed and d.degraded for d in decisions)
    assert decisions[0].granted == 1
    assert not limiter.peek("k").granted


def test_deny_refuses_for_a_second() -> None:
    _, far = by_hand()
    far.fail()
    limiter = Limiter(HOUR, store=Failover(far, on_error="deny"))
    decision = limiter.hit("k")
    assert not decision.allowed
    assert decision.degraded
    assert decision.retry_after == 1
    assert limiter.hit("k", cost=0).allowed


def test_the_ask_decides_before_the_store() -> None:
    _, far = by_hand()
    store = Failover(far, on_error="allow")
    far.fail()
    assert not store.decide([take(on_error="deny")])[0].allowed
    assert store.decide([take()])[0].allowed
    limiter = Limiter(HOUR, store=store, on_error="deny")
    assert not limiter.hit("k").allowed


def test_several_limits_all_or_nothing_in_its_place() -> None:
    _, far = by_hand()
    store = Failover(far)
    far.fail()
    small = Limit.parse("1/hour fixed-window")
    both = [take(), take(small, on_error="deny")]
    first, second = store.decide(both)
    assert first.allowed
    assert not first.granted
    assert not second.allowed
    both = [take(), take(small), take(Limit.parse("5/hour"), on_error="allow")]
    assert all(d.granted == 1 for d in store.decide(both))
    refused = joined(tuple(store.decide(both)))
    assert not refused.allowed
    assert refused.degraded
    assert [d.granted for d in refused.parts] == [0, 0, 0]
    assert store.decide([take(cost=0)])[0].remaining == 9


def test_decisions_in_place_keep_their_word_everywhere() -> None:
    _, far = by_hand()
    store = Failover(far)
    far.fail()
    decision = store.decide([take(cost=3)])[0]
    for same in (decision.glance(), decision.refused(), decision.let_pass(),
                 decision.after_delay(), pickle.loads(pickle.dumps(decision))):  # fmt: skip
        assert same.degraded
        assert same.remaining == 7
    plain = Limiter(HOUR).hit("k")
    assert not plain.degraded
    assert not pickle.loads(pickle.dumps(plain)).degraded
    assert joined((plain, decision)).degraded


def test_every_op_is_answered() -> None:
    _, far = by_hand()
    store = Failover(far)
    far.fail()
    permits = Limit.parse("2 concurrent")
    for op in ("take", "check", "shadow", "charge", "refund", "settle", "renew", "reset"):
        assert store.decide([Ask(op, HOUR, "k", token=7, ttl=1_000_000)])[0].degraded
    assert [bool(store.decide([take(permits, token=n)])[0]) for n in (1, 2, 3)] == [True] * 2 + [
        False
    ]
    assert store.decide([Ask("release", permits, "k", token=1)])[0].allowed
    assert store.decide([take(permits, token=3)])[0].allowed


# -- the breaker


def test_the_store_is_left_alone_and_tried_again() -> None:
    clock, far = by_hand()
    store = Failover(far, breaker=StoreBreaker(clock.now, jitter=lambda: 1.0))
    far.fail()
    for _ in range(20):
        assert store.decide([take(cost=0)])[0].degraded
    assert far.crossings == 5
    assert store.failures == 5
    assert store.opened == 1
    assert store.degraded
    clock.advance(0.05)
    for _ in range(20):
        store.decide([take(cost=0)])
    assert far.crossings == 6  # one probe, and a longer pause
    clock.advance(0.05)
    store.decide([take(cost=0)])
    assert far.crossings == 6
    clock.advance(0.05)
    far.heal()
    assert not store.decide([take(cost=0)])[0].degraded
    clock.advance(1)
    assert not store.decide([take(cost=0)])[0].degraded
    assert not store.degraded


def test_what_was_counted_here_is_dropped_when_the_store_is_back() -> None:
    clock, far = by_hand()
    store = Failover(far)
    limiter = Limiter(HOUR, store=store)
    limiter.hit("k", cost=4)
    far.fail()
    for _ in range(5):
        limiter.hit("k", cost=0)
    assert limiter.hit("k", cost=10).degraded
    far.heal()
    clock.advance(3)
    assert limiter.hit("k", cost=1).remaining == 5
    clock.advance(3)
    limiter.hit("k", cost=0)
    assert not store.degraded
    far.fail()
    assert limiter.hit("k", cost=10).allowed  # anew, with a share of its own


def test_beginning_and_end_are_said_in_a_line_each(caplog: pytest.LogCaptureFixture) -> None:
    clock, far = by_hand()
    store = Failover(far)
    far.fail()
    with caplog.at_level(logging.WARNING, logger="headgate"):
        for _ in range(30):
            store.decide([take(cost=0)])
        far.heal()
        for _ in range(5):
            clock.advance(3)
            store.decide([take(cost=0)])
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING"]
    assert "no answer" in caplog.messages[0]
    assert "answers again" in caplog.messages[1]


# -- the other colour, many at once, and prepared takes


def test_tasks_get_the_same_answers() -> None:
    _, far = by_hand()
    store = Failover(far, nodes=5)
    limiter = AsyncLimiter(HOUR, store=store)

    async def main() -> None:
        assert not (await limiter.hit("k")).degraded
        far.fail()
        decisions = [await limiter.hit("k") for _ in range(3)]
        assert [d.allowed for d in decisions] == [True, True, False]
        assert [d.degraded for d in await limiter.hit_many(["a", "b"])] == [True, True]

    asyncio.run(main())


def test_a_cancelled_probe_does_not_shut_the_store_out() -> None:
    clock, far = by_hand()
    store = Failover(far)
    far.fail()
    for _ in range(6):
        store.decide([take(cost=0)])
    clock.advance(3)

    async def main() -> None:
        hang = asyncio.Event()

        async def hanging(asks: object) -> list[Decision]:
            await hang.wait()
            return []

        stuck: Any = hanging
        verb = store.verb_decide
        store.verb_decide = verb._replace(awaited=stuck)
        task = asyncio.create_task(store.decide_async([take(cost=0)]))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        store.verb_decide = verb
        far.heal()
        assert not (await store.decide_async([take(cost=0)]))[0].degraded

    asyncio.run(main())


def test_prepared_takes_fail_over_too() -> None:
    _, far = by_hand()

    class Ways:
        def hit(self, key: str, cost: int, *, partial: bool = False) -> Decision:
            return far.decide([take(key=key, cost=cost)])[0]

        def hit_many(self, keys: list[str], cost: int) -> list[Decision]:
            return [self.hit(key, cost) for key in keys]

    prepared: Any = lambda *_: Ways()  # noqa: E731 # a method of the store's
    far.quick = prepared  # type: ignore[method-assign] # for this test
    limiter = Limiter(HOUR, store=Failover(far))
    assert not limiter.hit("k", cost=2).degraded
    far.fail()
    assert limiter.hit("k", cost=2).degraded
    assert limiter.hit("k", cost=9, partial=True).granted == 8
    many = limiter.hit_many(["k", "l"], cost=1)
    assert [d.allowed for d in many] == [False, True]
    with pytest.raises(TypeError):
        limiter.hit_many([3])  # type: ignore[list-item] # that is the point


def test_nothing_is_held_while_the_store_is_asked() -> None:
    _, far = by_hand()
    store = Failover(far)
    met = threading.Barrier(2)
    far.before = lambda: met.wait(60)
    threads = [threading.Thread(target=store.decide, args=([take()],)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not met.broken
    assert far.crossings == 2


def test_many_threads_stay_within_the_share() -> None:
    far = FarStore()
    store = Failover(far)
    far.down = StoreUnavailable("gone")
    limiter = Limiter("1000/hour fixed-window", store=store)
    counts = []

    def work() -> None:
        counts.append(sum(bool(limiter.hit("k")) for _ in range(500)))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(counts) == 1000
