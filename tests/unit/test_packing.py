"""Packing: states of many numbers in few bytes, and back."""

from __future__ import annotations

import random
from array import array

import pytest

from headgate import Limit
from headgate.algorithms import rule_of
from headgate.algorithms.packing import narrowest, pack, span_width, unpack


@pytest.mark.parametrize("width", [1, 2, 4, 5, 6, 8])
def test_rows(width: int) -> None:
    base = 1_700_000_000
    top = min(256**width, 1 << 62) - 1
    row = array("q", [0, base, base + 1, base + top // 3, base + top])
    data = pack(row, 1, 5, base, width)
    assert len(data) == 4 * width
    assert unpack(b"??" + data, 2, 4, base, width) == row[1:]
    with pytest.raises(ValueError, match="too early"):
        unpack(data, 1, 4, base, width)


def test_widths() -> None:
    for width in (1, 2, 4):
        assert narrowest(256**width - 1) == width < narrowest(256**width)
    assert [span_width(256**width - 1) for width in (3, 4, 5, 6, 7)] == [4, 4, 5, 6, 8]


@pytest.mark.parametrize(
    ("text", "most"),
    [("500/hour cells 60", 129), ("500/hour sliding-log", 2017), ("30 concurrent", 640)],
)
@pytest.mark.parametrize("largest", [1, 40])
def test_states(text: str, most: int, largest: int) -> None:
    rule, chance = rule_of(Limit.parse(text)), random.Random(text)
    state, now = rule.empty(), 1_790_000_000 * rule.per_second
    for token in range(1, 1500):
        now += chance.randrange(rule.window // 250 if rule.window else 100)
        cost = chance.randint(1, largest)
        if rule.take(state, now, cost) == 0:
            lease = now + 5000 if token % 3 else 0
            if "concurrent" in text:
                state.owner = chance.choice([0, 1 << 60])
            rule.put(state, now, cost, token, lease)
        elif "concurrent" in text and state.held:
            rule.release(state, chance.choice(list(state.held)))
        data = rule.dump(state)
        assert len(data) <= most
        again = rule.load(data)
        assert rule.dump(again) == data
        for asked in (1, cost, rule.quota):
            assert rule.read(again, now, asked) == rule.read(state, now, asked)
        state = again


@pytest.mark.parametrize("text", ["5/hour cells 6", "5/hour sliding-log", "5 concurrent"])
def test_foreign_bytes_are_refused_or_read(text: str) -> None:
    rule, chance = rule_of(Limit.parse(text)), random.Random(1)
    for _ in range(3000):
        data = chance.randbytes(chance.randrange(40))
        try:
            rule.load(data)
        except (ValueError, IndexError, OverflowError):
            continue
