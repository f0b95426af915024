"""A cluster that fails over and moves its slots while threads and tasks hit it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from headgate import Limiter
from headgate.stores.redis import RedisStore
from servers import Cluster

from .support_redis import (
    BUDGET,
    SCALE,
    Traffic,
    all_answered,
    back_in_time,
    bounds_hold,
    nothing_twice,
    running,
)
from .support_redis_cluster import Nodes

LONG = 20.0
"""A budget for calls that are to succeed, however busy the machine is."""
MANY = 30
"""Answers that each worker waits for when a fault is over."""
AMOUNT = 100
SMALL = {
    "all": "1000000000/30d fixed-window",
    "window": f"{AMOUNT}/30d sliding-window",
    "log": f"{AMOUNT}/30d sliding-log",
}
PAIR = (f"{AMOUNT}/30d gcra", f"{AMOUNT + 20}/30d fixed-window")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster() as started:
        yield started


@pytest.fixture
def nodes(cluster: Cluster) -> Iterator[Nodes]:
    found = Nodes(cluster)
    for server in found.masters():
        found.say(server, "FLUSHALL")
    yield found
    found.close()


@pytest.fixture
def store(cluster: Cluster, nodes: Nodes) -> Iterator[RedisStore]:
    made = RedisStore(cluster.url, budget=BUDGET)
    yield made
    made.close()


@pytest.fixture
def patient(cluster: Cluster, nodes: Nodes) -> Iterator[RedisStore]:
    made = RedisStore(cluster.url, budget=LONG)
    yield made
    made.close()


def keys_on_all(store: RedisStore, nodes: Nodes) -> list[str]:
    """A key for each master."""
    found: dict[object, str] = {}
    for number in range(1000):
        key = f"key {number}"
        found.setdefault(nodes.owner(slot_of(store, key)), key)
        if len(found) == len(nodes.masters()):
            break
    return list(found.values())


def slot_of(store: RedisStore, key: str) -> int:
    return int(store.link.slot(store.plan.names.key("", "any", key)))


class Both:
    """Traffic with all the time in the world, which counts exactly, and traffic with a budget."""

    def __init__(self, store: RedisStore, patient: RedisStore, nodes: Nodes) -> None:
        self.nodes = nodes
        self.patient = patient
        self.keys = keys_on_all(patient, nodes)
        self.exact = Traffic(patient, SMALL, threads=2, tasks=3, keys=self.keys, pause=0.004)
        self.quick = Traffic(store, threads=2, tasks=3, pause=0.004, keys=self.keys[:1])
        self._stack = ExitStack()

    def __enter__(self) -> Both:
        self._stack.enter_context(running(self.exact))
        self._stack.enter_context(running(self.quick))
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def flowing(self, since: float) -> None:
        """Let everybody be answered a few times more."""
        self.quick.flowing(MANY, since=since)
        self.exact.flowing(MANY, since=since)

    def check(self) -> None:
        """Nothing got lost: calls came back in time, and exactly the limit was admitted."""
        all_answered(self.quick)
        bounds_hold(self.quick, 0)
        nothing_twice(self.quick, self.patient)
        nothing_twice(self.exact, self.patient)
        for what in ("window", "log"):
            exactly(self.exact, what, AMOUNT * len(self.keys))


def exactly(traffic: Traffic, what: str, amount: int) -> None:
    """All was admitted that there is, but for calls of which nobody knows whether they took."""
    limiter = traffic.limiter(what)
    left = sum(limiter.hit(key).allowed for key in traffic.keys for _ in range(AMOUNT + 1))
    lost = amount - traffic.count("yes", what=what) - left
    assert 0 <= lost <= traffic.count("late", what=what), (what, lost)


def test_a_slot_that_moves_back_and_forth(
    store: RedisStore, patient: RedisStore, nodes: Nodes
) -> None:
    with Both(store, patient, nodes) as traffic:
        slot = slot_of(patient, traffic.keys[0])
        for _ in range(4 * SCALE):
            nodes.move(slot)
            moved = time.monotonic()
            traffic.quick.flowing(10, since=moved)
            back_in_time(traffic.quick, moved)
        traffic.flowing(moved)
    traffic.check()


def test_several_limits_of_a_key_whose_slot_moves(patient: RedisStore, nodes: Nodes) -> None:
    """While a slot's keys lie apart nobody can decide on both: then nothing is taken of either."""
    pair = Traffic(patient, {"pair": PAIR}, threads=2, tasks=3, pause=0.004)
    other = Traffic(patient, SMALL, threads=1, tasks=1, pause=0.004)
    slot = slot_of(patient, "k")
    with running(pair), running(other):
        for _ in range(3 * SCALE):
            nodes.move(slot, pause=0.03)
            moved = time.monotonic()
            pair.flowing(10, since=moved)
            back_in_time(pair, moved)
    exactly(pair, "pair", AMOUNT)
    assert [part.remaining for part in pair.limiter("pair").peek("k").parts] == [0, 20]
    nothing_twice(other, patient)


def test_a_master_that_hands_over(store: RedisStore, patient: RedisStore, nodes: Nodes) -> None:
    with Both(store, patient, nodes) as traffic:
        slot = slot_of(patient, traffic.keys[0])
        for _ in range(2 * SCALE):
            nodes.fail_over(nodes.owner(slot))
            back = time.monotonic()
            traffic.quick.flowing(10, since=back)
            back_in_time(traffic.quick, back)
        traffic.flowing(back)
    traffic.check()


def test_a_master_that_is_killed(store: RedisStore, patient: RedisStore, nodes: Nodes) -> None:
    keys = keys_on_all(patient, nodes)
    traffic = Traffic(store, threads=2, tasks=3, pause=0.004, keys=keys[:1])
    other = Traffic(store, threads=1, tasks=1, pause=0.004, keys=keys[1:])
    with running(traffic), running(other):
        for _ in range(SCALE):
            dead = nodes.owner(slot_of(patient, keys[0]))
            nodes.kill(dead)
            back = time.monotonic()
            for each in (traffic, other):
                each.flowing(MANY, since=back)
                back_in_time(each, back)
            nodes.revive(dead)
    all_answered(traffic)
    all_answered(other)
    # What a master had not passed on to its replica went with it: less than all of it.
    bounds_hold(traffic, SCALE)
    nothing_twice(other, patient)


def test_a_user_with_no_more_rights_than_it_takes(cluster: Cluster, nodes: Nodes) -> None:
    rights = ["evalsha", "script|load", "get", "set", "del", "time", "hset", "hget",
              "cluster|slots", "asking"]  # fmt: skip
    for server in cluster.servers:
        nodes.say(server, "ACL", "SETUSER", "limiter", "reset", "on", ">secret", "~hg1:*", "-@all",
                  *(f"+{right}" for right in rights))  # fmt: skip
    store = RedisStore(cluster.url.replace("://", "://limiter:secret@"), budget=LONG)
    limiter = Limiter("1000/30d", "2000/30d gcra", store=store, name="poor")
    assert all(limiter.hit_many([f"key {number}" for number in range(50)]))
    with running(Traffic(store, SMALL, threads=1, tasks=1)) as traffic:
        for _ in range(2):
            nodes.move(slot_of(store, "k"))
            traffic.flowing(10, since=time.monotonic())
    store.close()
