"""A process killed at any store leaves a decision done or not done, never half done."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from zone_tools import COMPILED, Content, Death, Dying, content, copied, in_order

from headgate import Ask, Limit, ManualClock, StoreError
from headgate.stores.zone import ZoneStore
from headgate.stores.zone.places import PENDING

pytestmark = pytest.mark.skipif(COMPILED, reason="words that count are written in Python")

START = 1_700_000_000.0
LIMITS = [
    Limit.parse(text)
    for text in (
        "9/minute fixed-window", "9/minute", "9/minute token-bucket initial 2", "9/minute gcra",
        "9/minute even", "9/minute leaky-bucket queue 5", "100/second warm-up 10s", "9/minute debt",
        "9/minute cells 30", "9/minute sliding-log", "9 concurrent",
    )
]  # fmt: skip
WORDS, LOG, CELLS, HELD = LIMITS[0], LIMITS[9], LIMITS[8], LIMITS[10]
OWN = Limit.parse("7/hour sliding-log")

Action = Callable[[ZoneStore], object]


def take(*limits: Limit, key: str = "k", cost: int = 1, **more: Any) -> Action:
    return lambda store: store.decide([Ask("take", limit, key, cost, **more) for limit in limits])


def ask(op: str, limit: Limit, **more: Any) -> Action:
    return lambda store: store.decide([Ask(op, limit, "k", **more)])


def prepared(store: ZoneStore, clock: ManualClock) -> None:
    """A zone in use: every algorithm, a reservation, permits, a key of its own limit."""
    for limit in LIMITS:
        for number in range(3):
            clock.advance(0.25)
            store.decide([Ask("take", limit, "k", token=number + 1)])
    store.decide([Ask("take", WORDS, "k", 2, token=50, ttl=30_000_000)])
    store.decide([Ask("take", LOG, "k", 2, token=51, ttl=20_000_000)])
    store.assign("", CELLS.id, "special", OWN)
    store.decide([Ask("take", CELLS, "special", 2)])
    clock.advance(1)


ACTIONS: dict[str, Action] = {
    **{f"take {limit}": take(limit, token=9) for limit in LIMITS},
    **{f"new key {limit}": take(limit, key="new", token=9) for limit in LIMITS},
    **{f"reset {limit}": ask("reset", limit) for limit in LIMITS},
    "a new limit": take(Limit.parse("3/hour cells 7")),
    "all limits": take(*LIMITS, token=9),
    "all limits, refused": take(*LIMITS, cost=7, token=9),
    "all limits, new key": take(*LIMITS, key="new", token=9),
    "charge": ask("charge", LOG, cost=40),
    "refund": ask("refund", LOG, cost=1, at=int(START * 1e6) + 7_500_000),
    "release": ask("release", HELD, token=2),
    "renew a permit": ask("renew", HELD, token=2, ttl=5_000_000),
    "reserve": take(LOG, CELLS, key="k", token=60, ttl=10_000_000),
    "settle": ask("settle", WORDS, token=50, cost=1),
    "settle above": ask("settle", LOG, token=51, cost=5),
    "renew a reservation": ask("renew", LOG, token=51, ttl=90_000_000),
    "assign": lambda store: store.assign("", WORDS.id, "k", OWN),
    "assign another algorithm": lambda store: store.assign("", LOG.id, "k", LIMITS[3]),
    "take away": lambda store: store.assign("", CELLS.id, "special", None),
    "token": lambda store: store.token(),
    "the key with a limit of its own": take(CELLS, key="special"),
}


@pytest.fixture
def zone(tmp_path: Path) -> Path:
    clock = ManualClock(START)
    store = ZoneStore(tmp_path / "zone", size=1 << 16, clock=clock)
    prepared(store, clock)
    store.close()
    return tmp_path / "zone"


def opened(path: Path, later: float = 20.0) -> ZoneStore:
    return ZoneStore(path, clock=ManualClock(START + later))


def survivors(zone: Path, action: Action, later: float = 20.0) -> int:
    """Die after each store of an action in turn; how many there were."""
    allowed: list[Content] = []
    for name in ("before", "entered", "after"):  # what is due comes back as a call begins
        store = opened(copied(zone, name), later)
        if name != "before":
            store.decide([])
        if name == "after":
            action(store)
        in_order(store)
        allowed.append(content(store))
        store.close()
    for stores in range(10_000):
        path = copied(zone, "dying")
        store = opened(path, later)
        store._engine.words = Dying(store._engine.words, stores)  # type: ignore[assignment]
        try:
            action(store)
        except Death:
            seen = path.with_name("left")
            seen.write_bytes(bytes(store._zone._map))
            _bury(store)
            again = opened(seen, later)
            assert again.decide([]) == []
            assert again._engine.get(PENDING) == 0
            in_order(again)
            assert content(again) in allowed[1:], f"after {stores} stores"
            again.close()
            seen.unlink()
        else:
            assert content(store) == allowed[2]
            _bury(store)
            return stores
        path.unlink()
    raise AssertionError("it never ends")


def _bury(store: ZoneStore) -> None:
    dying: Any = store._engine.words
    store._engine.words = dying.words
    store._zone.lock._held = False
    store.close()


@pytest.mark.parametrize("name", ACTIONS)
def test_death_at_any_store(zone: Path, name: str) -> None:
    assert survivors(zone, ACTIONS[name]) >= 3


def test_death_while_reservations_come_back(zone: Path) -> None:
    for later in (30.0, 40.0):  # the first, then both
        assert survivors(zone, lambda store: store.decide([]), later) > 5
        assert survivors(zone, take(WORDS, LOG), later) > 20


def test_death_while_keys_are_evicted(tmp_path: Path) -> None:
    clock = ManualClock(START)
    path = tmp_path / "zone"
    store = ZoneStore(path, size=1 << 16, clock=clock)
    number = 0
    while store._engine.free() > 3:
        store.decide([Ask("take", (LOG, WORDS, CELLS)[number % 3], f"user {number}")])
        number += 1
    store.close()
    assert survivors(path, take(LOG, WORDS, CELLS, key="new"), later=1.0) > 20
    store = opened(path, 1.0)
    assert store.evicted == 0
    take(LOG, WORDS, CELLS, key="new")(store)
    assert store.evicted > 0


def test_death_while_another_is_undone(zone: Path) -> None:
    """Whoever puts things right may be killed as well."""
    path = copied(zone, "dying")
    store = opened(path)
    before = content(store)
    store._engine.words = Dying(store._engine.words, 40)  # type: ignore[assignment]
    with pytest.raises(Death):
        take(*LIMITS, token=9)(store)
    left = bytes(store._zone._map)
    _bury(store)
    for stores in range(1000):
        again = zone.with_name("again")
        again.write_bytes(left)
        store = opened(again)
        assert store._engine.get(PENDING) > 5
        store._engine.words = Dying(store._engine.words, stores)  # type: ignore[assignment]
        try:
            store.decide([])
        except Death:
            seen = zone.with_name("seen")
            seen.write_bytes(bytes(store._zone._map))
            _bury(store)
            last = opened(seen)
            last.decide([])
            in_order(last)
            assert content(last) == before
            last.close()
            seen.unlink()
        else:
            _bury(store)
            break
        again.unlink()
    assert stores > 5


def test_a_decision_too_large_to_undo_is_an_error_and_changes_nothing(tmp_path: Path) -> None:
    clock = ManualClock(START)
    store = ZoneStore(tmp_path / "zone", size=1 << 16, clock=clock)
    limit = Limit.parse("3000/hour sliding-log")
    for number in range(2500):
        clock.advance(0.25 + number % 7 * 0.1)
        store.decide([Ask("take", limit, "k")])
    before = content(store)
    clock.advance(3600 - 1000)  # the first leave, and everything moves up
    with pytest.raises(StoreError, match="more than the journal"):
        store.decide([Ask("take", limit, "k")])
    in_order(store)
    assert content(store) == before
    assert store.recoveries == 0
