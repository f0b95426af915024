"""The store on a real cluster: all or nothing within a slot, and given back across slots."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from headgate import Ask, AsyncLimiter, Limit, Limiter
from headgate.stores.redis import RedisStore
from servers import Cluster


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster() as started:
        yield started


@pytest.fixture
def store(cluster: Cluster) -> Iterator[RedisStore]:
    made = RedisStore(cluster.url, budget=5)
    yield made
    made.close()


USER, API = Limit.parse("5/hour name user"), Limit.parse("8/hour gcra name api")


def asks(user: str, api: str) -> list[Ask]:
    return [Ask("take", USER, user, space="c"), Ask("take", API, api, space="c")]


def test_keys_spread_over_the_nodes_and_limits_of_a_key_do_not(store: RedisStore) -> None:
    slots = {store.link.slot(store.plan.names.key("c", "x", f"user:{n}")) for n in range(100)}
    assert len(slots) > 80
    names = [store.plan.names.key("c", limit, "user:1") for limit in ("a", "b", "c")]
    assert len({store.link.slot(name) for name in names}) == 1


def test_limits_of_one_key_pass_together(store: RedisStore) -> None:
    limiter = Limiter("3/hour", "5/hour gcra", "9/day sliding-log", store=store, name="one")
    assert [bool(limiter.hit("k")) for _ in range(5)] == [True, True, True, False, False]
    assert [part.remaining for part in limiter.peek("k").parts] == [0, 2, 6]


def test_a_refusal_gives_back_what_other_slots_took(store: RedisStore) -> None:
    for _ in range(5):
        assert all(store.decide(asks("u1", "a1")))
    for _ in range(20):
        assert [bool(d) for d in store.decide(asks("u1", "a1"))] == [False, True]
    (look,) = store.decide([Ask("check", API, "a1", space="c")])
    assert look.remaining == 3
    for _ in range(3):
        assert all(store.decide(asks("u2", "a1")))
    assert [bool(d) for d in store.decide(asks("u2", "a1"))] == [True, False]
    (look,) = store.decide([Ask("check", USER, "u2", space="c")])
    assert look.remaining == 2


def test_a_partial_take_across_slots_is_the_same_for_all(store: RedisStore) -> None:
    parts = [ask._replace(cost=50, least=1) for ask in asks("u9", "a9")]
    assert [d.granted for d in store.decide(parts)] == [5, 5]
    assert [d.allowed for d in store.decide(parts)] == [False, True]
    (look,) = store.decide([Ask("check", API, "a9", space="c")])
    assert look.remaining == 3


def test_a_tag_puts_everything_into_one_slot(cluster: Cluster) -> None:
    store = RedisStore(cluster.url, tag="acme", budget=5)
    slots = {store.link.slot(store.plan.names.key("c", "x", f"user:{n}")) for n in range(100)}
    assert len(slots) == 1
    assert [bool(d) for d in store.decide(asks("t", "t2"))] == [True, True]
    store.close()


def test_many_keys_at_once(store: RedisStore) -> None:
    limiter = Limiter("1/hour", store=store, name="many")
    keys = [f"user:{n % 300}" for n in range(600)]
    assert [bool(d) for d in limiter.hit_many(keys)] == [True] * 300 + [False] * 300


def test_tasks(cluster: Cluster) -> None:
    async def main() -> int:
        async with AsyncLimiter("40/hour", store=RedisStore(cluster.url, budget=5), name="t") as it:
            found = await asyncio.gather(*(it.hit(f"k{n % 3}") for n in range(300)))
            await it.store.close_async()  # type: ignore[attr-defined]
            return sum(map(bool, found))

    assert asyncio.run(main()) == 120
