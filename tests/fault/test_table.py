"""The compiled table of keys against a dict: random keys, crowded keys, states that are objects.

Its slots stand in the order of their hashes and are moved by hand, so a mistake there loses keys
or reads beyond the end; `make sanitize` runs these tests where the latter is seen too.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from typing import Any

import pytest

import headgate
from headgate import Limit
from headgate.algorithms import rule_of
from headgate.stores.reclaim import Reclaimer
from headgate.stores.table import Table

pytestmark = pytest.mark.skipif(not headgate.compiled, reason="the pure table is a dict")

TOP = 1 << 64
SECOND = 1_000_000
WORDS = "10/minute fixed-window first-hit"
Chosen = random.Random
Spread = Callable[[Chosen], int]

# Hashes as they are, and as nobody who does not know the key of the hash could make them.
SPREADS: dict[str, Spread] = {
    "even": lambda chosen: chosen.randrange(1, TOP),
    "first": lambda chosen: chosen.randrange(1, 1 << 20),
    "last": lambda chosen: TOP - chosen.randrange(1, 1 << 20),
    "one segment": lambda chosen: 0xAB << 56 | chosen.randrange(1 << 56),
    "last of a segment": lambda chosen: chosen.randrange(256) << 56 | (1 << 56) - chosen.randrange(
        1, 1 << 20
    ),
    "two places": lambda chosen: chosen.choice((1 << 63, TOP - 1)) - chosen.randrange(1 << 16),
    "lumps": lambda chosen: (chosen.randrange(64) << 58) + chosen.randrange(1, 1 << 30),
    "even and last": lambda chosen: chosen.choice(
        (chosen.randrange(1, TOP), TOP - chosen.randrange(1, 1 << 12))
    ),
}  # fmt: skip


def a_table(text: str = WORDS) -> Any:
    return Table(("", ""), Limit.parse(text), {})


def compare(table: Any, model: dict[int, tuple[int, int, int]]) -> None:
    """Every key is there with its state, and nothing else is."""
    rule = table.rule
    assert len(table) == len(model)
    lost = [hash_ for hash_, state in model.items() if table.read(hash_, rule, 0) != state]
    assert not lost, f"{len(lost)} of {len(model)} keys lost"


def follow(size: int, spread: Spread, chosen: Chosen, moves: int) -> None:
    """Random moves on about so many keys: more of them, fewer, and all gone."""
    table, model = a_table(), dict[int, tuple[int, int, int]]()
    for phase in ("grow", "mix", "shrink", "grow", "empty"):
        for _ in range(moves):
            grow = phase == "grow" or (phase == "mix" and chosen.random() < 0.5)
            if grow and len(model) < size:
                hash_ = spread(chosen)
                state = chosen.randrange(1 << 53), chosen.randrange(1 << 60), chosen.randrange(9)
                table.write(hash_, table.rule, state)
                model[hash_] = state
            elif model:
                hash_, _ = model.popitem()
                table.forget(hash_)
                assert not table.known(hash_)
        if phase == "empty":
            for hash_ in list(model):
                table.forget(hash_)
                del model[hash_]
        compare(table, model)
    assert not any(table.known(spread(chosen)) for _ in range(100))


@pytest.mark.parametrize("spread", SPREADS)
def test_random_moves(spread: str) -> None:
    for seed in range(40):
        follow(60 if seed % 2 else 10, SPREADS[spread], random.Random(seed), 80)


@pytest.mark.parametrize("spread", ["even", "one segment", "lumps"])
def test_random_moves_of_thousands(spread: str) -> None:
    for seed in range(2):
        follow(5_000, SPREADS[spread], random.Random(seed), 6_000)


@pytest.mark.parametrize("seed", [1, 2])
def test_many_keys(seed: int) -> None:
    """Large enough for all the segments there can be."""
    chosen = random.Random(seed)
    hashes = [chosen.randrange(1, TOP) for _ in range(200_000)]
    table, model = a_table(), {}
    for number, hash_ in enumerate(hashes):
        table.write(hash_, table.rule, (number, 1, 2))
        model[hash_] = (number, 1, 2)
    compare(table, model)
    for hash_ in hashes[::3] + hashes[1::3]:
        table.forget(hash_)
        model.pop(hash_, None)
    compare(table, model)
    assert table.bytes() < 100 * len(model)
    table.clear()
    compare(table, {})


@pytest.mark.parametrize("text", ["50/minute sliding-log", "50/minute sliding-window cells 9"])
def test_states_that_are_objects(text: str) -> None:
    """A state is unpacked when it is used, packed when it is not, and always the same."""
    chosen = random.Random(text)
    table, model = a_table(text), dict[int, bytes]()
    rule = table.rule
    for step in range(6_000):
        now = step * 100_000
        hash_ = chosen.choice(list(model)) if model and step % 3 else chosen.randrange(1, TOP)
        state = table.read(hash_, rule, 0)
        if state is None:
            state = rule.empty()
        if rule.take(state, now, 1) == 0:
            rule.put(state, now, 1)
        table.write(hash_, rule, state)
        model[hash_] = rule.dump(state)
        if len(model) > 400:
            gone, _ = model.popitem()
            table.forget(gone)
    for hash_, data in model.items():
        assert rule.dump(table.read(hash_, rule, 0)) == data
    assert len(table) == len(model)


def test_references_are_given_back() -> None:
    """What a table held is let go when a key is written anew, dropped, or the table is gone."""
    other = rule_of(Limit.parse("7/hour gcra"))
    states: list[Any] = [[number, 0, 0] for number in range(500)]

    def counted() -> list[int]:
        return [sys.getrefcount(state) for state in states]

    counts = counted()
    table = a_table()
    chosen = random.Random(1)
    hashes = [chosen.randrange(1, TOP) for _ in states]
    for hash_, state in zip(hashes, states, strict=True):
        table.write(hash_, other, state)
    for hash_, state in zip(hashes[:100], states, strict=False):
        table.write(hash_, other, state)
    for hash_ in hashes[100:200]:
        table.write(hash_, table.rule, (1, 2, 3))
    for hash_ in hashes[200:300]:
        table.forget(hash_)
    del state
    held = [now - before for now, before in zip(counted(), counts, strict=True)]
    assert held == [1] * 100 + [0] * 200 + [1] * 200
    del table
    assert counted() == counts


def _books() -> Any:
    return Reclaimer(lambda table, key: 0, 1 << 20)


@pytest.mark.parametrize("size", [5, 200, 6_000])
def test_who_goes_first(size: int) -> None:
    """The key that resets soonest is found, however keys came, were used and went."""
    chosen = random.Random(size)
    table, books = a_table("10/minute gcra"), _books()
    rule, model = table.rule, dict[int, int]()
    now = 1_000 * SECOND
    for _ in range(min(4 * size, 9_000)):
        now += chosen.randrange(SECOND // 10)
        if not model or (len(model) < size and chosen.random() < 0.7):
            hash_ = chosen.randrange(1, TOP)
        else:
            hash_ = chosen.choice(list(model)) if size < 1_000 else next(iter(model))
        fresh = hash_ not in model
        state = (0, 0, 0) if fresh else table.read(hash_, rule, 0)
        wait, *state = rule.take(*state, now, 1, 0)
        if wait == 0:
            table.write(hash_, rule, tuple(state))
            model[hash_] = table.reset(hash_, now)[1]
            if fresh:
                books.file(table, hash_, model[hash_])
        if len(model) > size // 2 and chosen.random() < 0.2:
            _, found, reset = books.soonest(now)
            # A key that is idle resets now.
            assert max(now, model[found]) == reset == max(now, min(model.values()))
            table.forget(found)
            del model[found]
        idle = books.idle(now, 3)
        if idle is not None:
            assert model.pop(idle[1]) <= now
            table.forget(idle[1])
    assert len(table) == len(model) > 0
