"""What a store that did not answer in time is told later: nothing stays taken for nobody."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from far import FarStore, by_hand
from headgate import AsyncLimiter, Limit, Limiter, LimitExceeded
from headgate.decision import Ask, Decision
from headgate.errors import StoreUnavailable
from headgate.stores.failover import Failover
from headgate.stores.owed import MOST, Owed

PERMITS = Limit.parse("1 concurrent")
HOUR = Limit.parse("10/hour fixed-window")
LEASE = 10_000_000


def take(limit: Limit, token: int, **more: Any) -> Ask:
    return Ask("take", limit, "k", token=token, ttl=LEASE, **more)


def release(token: int) -> Ask:
    return Ask("release", PERMITS, "k", token=token)


def lose(far: FarStore) -> None:
    """From now on the store does what it is asked, and its answers are lost."""
    far.lost = StoreUnavailable("no answer in time", sent=True)


def held(far: FarStore) -> int:
    """How many permits the store counts."""
    return PERMITS.capacity - far.memory.decide([Ask("check", PERMITS, "k")])[0].remaining


def used(far: FarStore) -> int:
    """How much of the hour the store counts."""
    return HOUR.capacity - far.memory.decide([Ask("check", HOUR, "k")])[0].remaining


@pytest.mark.parametrize("choice", ["allow", "local"])
def test_a_permit_granted_twice_is_released_twice(choice: str) -> None:
    _, far = by_hand()
    store = Failover(far, on_error=choice)
    lose(far)
    assert store.decide([take(PERMITS, 1)])[0].degraded
    far.heal()
    assert held(far) == 1  # nobody knows it there, but it is held
    assert store.decide([release(1)])[0].allowed
    assert held(far) == 0


def test_a_release_while_the_store_is_away_is_told_later() -> None:
    _, far = by_hand()
    store = Failover(far)
    lose(far)
    assert store.decide([take(PERMITS, 1)])[0].allowed
    far.fail()
    assert store.decide([release(1)])[0].allowed
    assert held(far) == 1
    far.heal()
    store.decide([take(HOUR, 0, cost=0)])
    assert held(far) == 0
    assert not store.owed


def test_what_never_reached_the_store_is_none_of_its_business() -> None:
    _, far = by_hand()
    store = Failover(far)
    far.fail(sent=False)
    assert store.decide([take(PERMITS, 1)])[0].allowed
    assert not store.decide([take(PERMITS, 2)])[0].allowed
    far.heal()
    far.seen.clear()
    assert store.decide([release(1)])[0].allowed
    store.decide([take(HOUR, 0, cost=0)])
    assert [ask.op for ask in far.seen] == ["take"]


def test_whoever_is_refused_in_its_place_holds_nothing_there() -> None:
    _, far = by_hand()
    store = Failover(far, on_error="deny")
    lose(far)
    assert not store.decide([take(PERMITS, 1)])[0].allowed
    assert not store.decide([take(HOUR, 2, cost=4)])[0].allowed
    assert (held(far), used(far)) == (1, 4)
    far.heal()
    store.decide([take(HOUR, 0, cost=0)])
    assert (held(far), used(far)) == (0, 0)
    assert not store.owed


def test_a_plain_take_that_came_about_stays_counted() -> None:
    """Without a token nobody can tell whether it did."""
    _, far = by_hand()
    store = Failover(far, on_error="deny")
    lose(far)
    assert not store.decide([Ask("take", HOUR, "k", 4)])[0].allowed
    far.heal()
    store.decide([take(HOUR, 0, cost=0)])
    assert used(far) == 4


def test_a_reservation_settled_in_its_place_is_cancelled_there() -> None:
    _, far = by_hand()
    store = Failover(far)
    lose(far)
    assert store.decide([take(HOUR, 5, cost=8)])[0].allowed
    far.fail()
    assert store.decide([Ask("settle", HOUR, "k", 3, token=5)])[0].allowed
    assert used(far) == 8
    far.heal()
    store.decide([take(HOUR, 0, cost=0)])
    assert used(far) == 0


def test_a_reservation_settled_once_the_store_is_back_is_settled_there() -> None:
    _, far = by_hand()
    store = Failover(far)
    lose(far)
    assert store.decide([take(HOUR, 5, cost=8)])[0].allowed
    far.heal()
    store.decide([Ask("settle", HOUR, "k", 3, token=5)])
    assert used(far) == 3


def test_every_limit_of_a_call_comes_back() -> None:
    _, far = by_hand()
    store = Failover(far)
    both = [Limit.parse("1 concurrent"), Limit.parse("2 concurrent")]
    limiter = Limiter(*both, store=store)
    lose(far)
    with limiter.hold("k"):
        far.fail()
    with limiter.hold("k", timeout=0) as again:  # here too
        assert again.decision.degraded
    far.heal()
    limiter.peek("k")
    counts = far.memory.decide([Ask("check", limit, "k", 0) for limit in both])
    assert [decision.remaining for decision in counts] == [1, 2]


@pytest.mark.parametrize("answered", [True, False])
def test_an_undoing_never_comes_behind_a_take_of_the_same_token(answered: bool) -> None:
    _, far = by_hand()
    store = Failover(far, on_error="deny")
    if answered:
        lose(far)
    else:
        far.fail(sent=True)
    assert not store.decide([take(PERMITS, 1)])[0].allowed
    far.heal()
    far.seen.clear()
    assert store.decide([take(PERMITS, 1)])[0].allowed  # though it may have held it already
    assert [ask.op for ask in far.seen] == ["release", "take"]
    store.decide([take(HOUR, 0, cost=0)])
    assert held(far) == 1


def test_a_take_does_not_race_its_own_undoing() -> None:
    _, far = by_hand()
    store = Failover(far, on_error="deny")
    lose(far)
    assert not store.decide([take(PERMITS, 1)])[0].allowed
    far.heal()
    on_its_way = store.owed.some(10)  # somebody else is sending it
    assert not store.decide([take(PERMITS, 1)])[0].allowed
    store.owed.kept(on_its_way, sent=True)
    assert store.decide([take(PERMITS, 1)])[0].allowed
    assert not store.owed


def test_an_undoing_is_sent_until_it_is_answered() -> None:
    clock, far = by_hand()
    store = Failover(far, on_error="deny")
    lose(far)
    assert not store.decide([take(PERMITS, 1)])[0].allowed
    far.heal()
    crossed = far.decide_many

    def unheard(groups: Sequence[Sequence[Ask]]) -> list[list[Decision]]:
        crossed(groups)
        raise StoreUnavailable("no answer in time", sent=True)

    store.verb_decide_many = store.verb_decide_many._replace(plain=unheard)
    store.decide([take(HOUR, 0, cost=0)])
    assert store.owed
    assert not store.decide([take(PERMITS, 1)])[0].allowed  # first the one, then the other
    assert held(far) == 0
    store.verb_decide_many = store.verb_decide_many._replace(plain=crossed)
    clock.advance(3)
    assert store.decide([take(PERMITS, 1)])[0].allowed
    assert held(far) == 1


def test_somebody_who_waits_gets_it_once_the_store_is_back() -> None:
    _, far = by_hand()
    store = Failover(far, on_error="deny")
    limiter = AsyncLimiter(PERMITS, store=store)

    async def main() -> None:
        lose(far)
        waiting = asyncio.create_task(limiter.hold("k", timeout=60).__aenter__())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        far.heal()
        while not waiting.done():
            far.clock.advance(0.5)  # type: ignore[attr-defined] # made by hand
            await asyncio.sleep(0)
        permit = await waiting
        assert not permit.decision.degraded
        await limiter.peek("k")
        assert held(far) == 1

    asyncio.run(main())
    assert not store.owed


def test_a_refusal_stays_one_and_holds_nothing() -> None:
    _, far = by_hand()
    limiter = Limiter(PERMITS, store=Failover(far, on_error="deny"))
    lose(far)
    with pytest.raises(LimitExceeded), limiter.hold("k", timeout=0):
        pass
    far.heal()
    limiter.peek("k")
    with limiter.hold("k", timeout=0) as permit:
        assert not permit.decision.degraded


def test_no_more_is_kept_than_can_be() -> None:
    owed = Owed()
    for token in range(MOST + 2):
        owed.keep(release(token + 1), sent=False)
        owed.keep(Ask("refund", HOUR, "k", 1), sent=False)
    first, *_ = owed.some(1)
    assert first.token == 3
    assert len(owed.some(10 * MOST)) == 2 * MOST - 1
    owed.keep(Ask("refund", HOUR, "k", 1), sent=True)  # never twice
    owed.forget()
    assert not owed
