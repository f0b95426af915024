"""Packing: states of many numbers in few bytes, and back."""

from __future__ import annotations

import random
from array import array
from importlib import import_module
from typing import Any

import pytest

from headgate import Limit
from headgate.algorithms import rule_of
from twin import pure

WIDTHS = [1, 2, 4, 5, 6, 8]


@pytest.fixture(params=["headgate", "pure"])
def packing(request: pytest.FixtureRequest) -> Any:
    """The module of the form that runs, and that of pure Python."""
    package = "headgate" if request.param == "headgate" else pure().__name__
    return import_module(f"{package}.algorithms.packing")


@pytest.mark.parametrize("width", WIDTHS)
def test_rows(packing: Any, width: int) -> None:
    base = 1_700_000_000
    top = min(256**width, 1 << 62) - 1
    row = array("q", [0, base, base + 1, base + top // 3, base + top])
    data = packing.pack(row, 1, 5, base, width, b"??")
    assert len(data) == 2 + 4 * width
    assert data[2:] == packing.pack(row, 1, 5, base, width)
    assert packing.unpack(data, 2, 4, base, width) == row[1:]
    assert packing.pack(row, 3, 3, base, width, b"!") == b"!"
    for at, count in ((3, 4), (2, 5), (-1, 1), (0, -1), (len(data) + 1, 0), (0, 1 << 60)):
        with pytest.raises(ValueError, match="too early"):
            packing.unpack(data, at, count, base, width)


@pytest.mark.parametrize("width", WIDTHS)
def test_numbers_that_do_not_fit(packing: Any, width: int) -> None:
    with pytest.raises(OverflowError):
        packing.pack(array("q", [5, 6, 5]), 0, 3, 6, width)
    if width < 8:
        with pytest.raises(OverflowError):
            packing.pack(array("q", [0, 256**width]), 0, 2, 0, width)
    with pytest.raises(OverflowError):
        packing.unpack(b"\xff" * 8, 0, 1, (1 << 63) - 1, width)
    with pytest.raises(IndexError):
        packing.pack(array("q", [1]), 0, 2, 0, width)
    least = -(1 << 63)
    assert packing.unpack(packing.pack(array("q", [least]), 0, 1, least, width), 0, 1, least, width)


def test_one_number(packing: Any) -> None:
    for value in (0, -1, 1 << 62, -(1 << 63)):
        assert packing.whole(b"?" + packing.number(value), 1) == value
    for at in (-1, 1):
        with pytest.raises(ValueError, match="too early"):
            packing.whole(bytes(8), at)
    with pytest.raises(OverflowError):
        packing.number(1 << 63)


@pytest.mark.parametrize("width", WIDTHS)
def test_both_forms_pack_alike(width: int) -> None:
    one, other = (
        import_module(f"{name}.algorithms.packing") for name in ("headgate", pure().__name__)
    )
    chance = random.Random(width)
    for _ in range(200):
        base = chance.randrange(-(1 << 40), 1 << 40)
        top = min(256**width, 1 << 62)
        row = array("q", [base + chance.randrange(top) for _ in range(chance.randrange(1, 20))])
        first = chance.randrange(len(row))
        data = one.pack(row, first, len(row), base, width)
        assert data == other.pack(row, first, len(row), base, width)
        count = len(row) - first
        assert one.unpack(data, 0, count, base, width) == row[first:]
        assert other.unpack(data, 0, count, base, width) == row[first:]


def test_widths(packing: Any) -> None:
    for width in (1, 2, 4):
        assert packing.narrowest(256**width - 1) == width < packing.narrowest(256**width)
    assert [packing.span_width(256**width - 1) for width in (3, 4, 5, 6, 7)] == [4, 4, 5, 6, 8]


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
