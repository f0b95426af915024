"""The zone by itself: what a full one does, and what it counts."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from zone_tools import RATE, START, in_order

from headgate import Ask, Limit, Limiter, ManualClock, MemoryStore, StoreError
from headgate.stores.zone import ZoneStore
from headgate.testing.cases import ALGORITHMS


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(START)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "zone"


def fill(store: ZoneStore, limit: Limit = RATE) -> int:
    """Enter new keys until not one more fits; how many there are."""
    number = 0
    while store._engine.free():
        assert store.decide([Ask("take", limit, f"filler {number}")])[0].allowed
        number += 1
    return number


class TestFull:
    def test_idle_keys_make_room(self, path: Path, clock: ManualClock) -> None:
        store = ZoneStore(path, size=1 << 16, clock=clock)
        kept = fill(store)
        assert store.keys == kept
        clock.advance(60)
        for number in range(kept):
            assert store.decide([Ask("take", RATE, f"new {number}")])[0].allowed
        assert (store.evicted, store.denied) == (0, 0)
        assert store.keys <= kept
        in_order(store)

    def test_idle_keys_go_a_few_at_each_insert(self, path: Path, clock: ManualClock) -> None:
        store = ZoneStore(path, size=1 << 16, clock=clock)
        for number in range(100):
            store.decide([Ask("take", RATE, f"old {number}")])
        clock.advance(60)
        for number in range(30):
            store.decide([Ask("take", RATE, f"new {number}")])
        assert store.keys < 60

    def test_live_keys_are_evicted_and_counted(self, path: Path, clock: ManualClock) -> None:
        store = ZoneStore(path, size=1 << 16, clock=clock)
        hour = Limit.parse("5/hour fixed-window")
        store.decide([Ask("take", hour, "keeper", 5)])
        fill(store)
        for number in range(300):
            assert store.decide([Ask("take", RATE, f"new {number}")])[0].allowed
        assert store.evicted == 300
        # Those of the minute reset sooner than that of the hour.
        assert not store.decide([Ask("take", hour, "keeper")])[0].allowed
        in_order(store)

    def test_deny(self, path: Path, clock: ManualClock) -> None:
        store = ZoneStore(path, size=1 << 16, clock=clock, on_full="deny")
        fill(store)
        refused = store.decide([Ask("take", RATE, "new")])[0]
        assert not refused.allowed
        assert 0 < refused.retry_after <= 60
        assert (store.evicted, store.denied) == (0, 1)
        assert store.decide([Ask("take", RATE, "filler 0")])[0].allowed
        clock.advance(refused.retry_after)
        assert store.decide([Ask("take", RATE, "new")])[0].allowed
        in_order(store)

    @pytest.mark.parametrize("on_full", ["deny", "evict"])
    def test_states_that_grow(self, path: Path, clock: ManualClock, on_full: str) -> None:
        store = ZoneStore(path, size=1 << 16, clock=clock, on_full=on_full)
        log = Limit.parse("1000/hour sliding-log")
        store.decide([Ask("take", log, "grows")])
        fill(store)
        taken = 1
        for _ in range(100):
            clock.advance(0.01)
            taken += store.decide([Ask("take", log, "grows")])[0].allowed
            in_order(store)
        left = store.decide([Ask("check", log, "grows")])[0].remaining
        assert left == 1000 - taken
        if on_full == "evict":
            assert (taken, store.denied) == (101, 0)
            assert store.evicted >= 6
        else:
            assert taken < 20
            assert store.denied == 101 - taken

    def test_what_is_held_or_reserved_stays(self, path: Path, clock: ManualClock) -> None:
        store = ZoneStore(path, size=1 << 16, clock=clock)
        held = Limit.parse("2 concurrent")
        store.decide([Ask("take", held, "k", token=1)])
        store.decide([Ask("take", RATE, "k", 4, token=2, ttl=3_600_000_000)])
        for number in range(3000):
            store.decide([Ask("take", RATE, f"new {number}")])
        assert store.evicted > 1000
        assert store.decide([Ask("check", held, "k")])[0].remaining == 1
        assert store.decide([Ask("check", RATE, "k")])[0].remaining == 1
        clock.advance(1)
        store.decide([Ask("settle", RATE, "k", 1, token=2)])
        assert store.decide([Ask("check", RATE, "k")])[0].remaining == 4

    def test_when_nothing_can_go(self, path: Path, clock: ManualClock) -> None:
        store = ZoneStore(path, size=1 << 16, clock=clock)
        held = Limit.parse("2 concurrent")
        number = 0
        while store._engine.free() > 2:
            number += 1
            assert store.decide([Ask("take", held, f"{number}", token=1)])[0].allowed
        refused = store.decide([Ask("take", held, "new", token=1), Ask("take", RATE, "new")])
        assert not refused[0].allowed
        assert refused[0].retry_after == 60
        assert store.denied >= 1
        in_order(store)
        store.decide([Ask("release", held, "7", token=1)])
        clock.advance(0.1)
        assert store.decide([Ask("take", held, "new", token=1)])[0].allowed

    def test_nobody_goes_for_a_call_that_is_refused(self, path: Path, clock: ManualClock) -> None:
        store = ZoneStore(path, size=1 << 16, clock=clock)
        tight = Limit.parse("1/hour")
        store.decide([Ask("take", tight, "k")])
        fill(store)
        for number in range(20):
            store.decide([Ask("take", RATE, f"new {number}"), Ask("take", tight, "k")])
            store.decide([Ask("take", tight, f"new {number}", 2)])
        assert (store.evicted, store.denied) == (0, 0)

    def test_sticky_keys_stay_while_there_is_room(self, path: Path, clock: ManualClock) -> None:
        store = ZoneStore(path, size=1 << 16, clock=clock)
        limit = Limit.parse("5/minute token-bucket initial 0")
        store.decide([Ask("take", limit, "k")])
        clock.advance(3600)
        for number in range(100):
            store.decide([Ask("take", RATE, f"new {number}")])
        assert store.decide([Ask("check", limit, "k")])[0].remaining == 5


class TestReservations:
    def test_any_number_may_expire_at_once(self, path: Path, clock: ManualClock) -> None:
        store = ZoneStore(path, size=1 << 17, clock=clock)
        limit = Limit.parse("100000/hour")
        for token in range(1, 700):
            ask = Ask("take", limit, f"user {token % 7}", token=token, ttl=10_000_000)
            assert store.decide([ask])[0].allowed
        assert store.stat()["reservations"] == 699
        in_order(store)
        clock.advance(10)
        assert store.decide([Ask("check", limit, "user 1")])[0].remaining == 100_000
        assert store.stat()["reservations"] == 0
        in_order(store)

    def test_in_order_of_expiry(self, path: Path, clock: ManualClock) -> None:
        store = ZoneStore(path, size=1 << 16, clock=clock)
        limit, chance = Limit.parse("100/hour"), random.Random(3)
        ends = list(range(1, 41))
        chance.shuffle(ends)
        for token, end in enumerate(ends, 1):
            store.decide([Ask("take", limit, "k", token=token, ttl=end * 1_000_000)])
            in_order(store)
        for token in (5, 9, 30):  # a longer life, a shorter one, and the same again
            store.decide([Ask("renew", limit, "k", token=token, ttl=token * 1_000_000)])
            ends[token - 1] = token
            in_order(store)
        for seconds in range(41):
            open_ones = sum(end > seconds for end in ends)
            assert store.decide([Ask("check", limit, "k")])[0].remaining == 100 - open_ones
            clock.advance(1)
        in_order(store)

    def test_a_reset_drops_the_reservations_of_its_key_alone(
        self, path: Path, clock: ManualClock
    ) -> None:
        store = ZoneStore(path, size=1 << 16, clock=clock)
        limit = Limit.parse("100/hour")
        for token in range(1, 21):
            store.decide([Ask("take", limit, "ab"[token % 2], token=token, ttl=10**7)])
        store.decide([Ask("reset", limit, "a")])
        assert store.stat()["reservations"] == 10
        in_order(store)
        clock.advance(10)
        assert store.decide([Ask("check", limit, "b")])[0].remaining == 100


class TestLimitsKnown:
    def test_own_limits_do_not_outlive_their_end(self, path: Path, clock: ManualClock) -> None:
        store = ZoneStore(path, size=1 << 16, clock=clock)
        for number in range(50):
            store.assign("", RATE.id, f"{number}", Limit.parse(f"{number % 5 + 1}/hour"))
        assert (store.stat()["own_limits"], store.stat()["limits"]) == (50, 5)
        for number in range(50):
            own = store.assigned("", RATE.id, f"{number}")
            assert own is not None
            assert own.amount == number % 5 + 1
            store.assign("", RATE.id, f"{number}", None)
        assert store.stat()["own_limits"] == 0
        in_order(store)

    def test_too_many_limits(
        self, path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("headgate.stores.zone.registry.MOST_RULES", 10)
        store = ZoneStore(path, size=1 << 16, clock=clock)
        for number in range(1, 11):
            store.decide([Ask("take", Limit.parse(f"{number}/hour"), "k")])
        with pytest.raises(StoreError, match="knows 10 different limits and takes no more"):
            store.decide([Ask("take", Limit.parse("11/hour"), "k")])
        assert store.decide([Ask("take", Limit.parse("9/hour"), "other")])[0].allowed
        in_order(store)

    def test_elastic_limits(self, path: Path, clock: ManualClock) -> None:
        store = ZoneStore(path, size=1 << 16, clock=clock)
        limit = Limit.parse("100/hour elastic 50%")
        for room in (0, 500, 1000, 250):
            store.decide([Ask("take", limit, "k", 10, room=room)])
        assert store.decide([Ask("check", limit, "k", room=1000)])[0].remaining == 110


class TestKeys:
    def test_top(self, path: Path, clock: ManualClock) -> None:
        store = ZoneStore(path, size=1 << 17, clock=clock, keys=True)
        keys: list[Any] = ["anna", ("user", "bert"), b"\xff\xfe", "c" * 2000, "\x1b[2Jd"]
        for count, key in enumerate(keys):
            for _ in range(count + 3):
                store.decide([Ask("take", RATE, key, space="api")])
        rows = store.top(3)
        assert [row["hits"] + row["refusals"] for row in rows] == [7, 6, 5]
        assert rows[0] == {
            "space": "api", "limit": "5/minute fixed-window", "key": r"\x1b[2Jd", "hits": 5,
            "refusals": 2,
        }  # fmt: skip
        assert [row["key"] for row in store.top()][2:] == [r"\xff\xfe", "(user, bert)", "anna"]
        assert store.top()[1]["key"] == "c" * 397 + "..."
        for number in range(2000):  # texts go with their keys
            store.decide([Ask("take", RATE, f"new {number}")])
        in_order(store)

    def test_a_zone_without_keys_says_how_to_keep_them(self, path: Path) -> None:
        with pytest.raises(StoreError, match="keys=yes"):
            ZoneStore(path, size=1 << 16).top()


@pytest.mark.parametrize(
    "texts",
    [
        *([case.limit] for case in ALGORITHMS),
        ["10/second", "15/minute gcra"],
        ["3/second token-bucket", "5/10s fixed-window", "7/minute"],
        ["2/second even", "9/minute cells 6"],
    ],
    ids=", ".join,
)
def test_the_short_way_answers_as_decide_does(
    texts: list[str], tmp_path: Path, clock: ManualClock
) -> None:
    short, long = (ZoneStore(tmp_path / name, clock=clock) for name in ("short", "long"))
    limiter = Limiter(*texts, store=short)
    limits = [Limit.parse(text) for text in texts]
    draw = random.Random(str(texts))
    keys: list[Any] = ["a", "b", ("c", "d"), "ü", *(f"user {number}" for number in range(30))]
    for _ in range(400):
        clock.advance(draw.choice([0, 0, 0.01, 0.1, 0.5, 3]))
        key, cost = draw.choice(keys), draw.choice([1, 1, 1, 0, 2, 5])
        one = limiter.hit(key, cost)
        other = long.decide([Ask("take", limit, key, cost) for limit in limits])
        assert [repr(part) for part in one.parts] == [repr(part) for part in other]
    in_order(short)
    in_order(long)


def test_the_texts_of_keys_are_counted_on_the_short_way_too(path: Path, clock: ManualClock) -> None:
    store = ZoneStore(path, clock=clock, keys=True)
    limiter = Limiter("2/minute", "3/hour", store=store)
    for _ in range(5):
        limiter.hit("k")
    assert {(row["hits"], row["refusals"]) for row in store.top()} == {(2, 3), (2, 0)}


@pytest.mark.parametrize("make", [MemoryStore, lambda: ZoneStore.anonymous(size=1 << 18)])
def test_strange_asks_are_errors_and_no_damage(make: Any) -> None:
    store = make()
    limit = Limit.parse("100/minute")
    assert store.decide([Ask("reset", limit, "k", least=0)])[0].allowed
    strange: list[Any] = [{"ttl": 2**63 - 1}, {"ttl": -1}, {"at": 2**63}, {"max_wait": -1}]
    for times in strange:
        with pytest.raises(ValueError, match="microseconds"):
            store.decide([Ask("take", limit, "k", token=5, **times)])
    assert store.decide([Ask("take", limit, "k")])[0].remaining == 99
    store.close()
