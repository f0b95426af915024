"""Busy keys: what a sketch promises, in how much memory, and who may see the keys."""

from __future__ import annotations

import sys
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from telemetry_tools import ANNA, BERT, watched

from gate_tools import rule  # isort: skip # of this folder too
from headgate import Facts
from headgate.telemetry.naming import namer, text_of
from headgate.telemetry.sketch import ROOM, Sketch, merged


@given(st.lists(st.integers(0, 30)), st.integers(1, 6))
def test_counts_are_off_by_no_more_than_they_say(stream: list[int], size: int) -> None:
    sketch, true = Sketch(size), Counter[str]()
    for number in stream:
        key = f"key {min(number, 31 - number)}"
        true[key] += 1
        sketch[key] += 1
        assert len(sketch) <= 2 * size
    assert sketch.floor * size <= len(stream)
    for key, count, error in sketch.top(100):
        assert count - error <= true[key] <= count
    assert all(key in sketch for key, count in true.items() if count > sketch.floor)


@given(st.lists(st.lists(st.integers(0, 30), max_size=40)), st.integers(1, 6))
def test_many_at_once_are_counted_as_well(batches: list[list[int]], size: int) -> None:
    sketch, true = Sketch(size), Counter[str]()
    for batch in batches:
        keys = [f"key {min(number, 31 - number)}" for number in batch]
        true.update(keys)
        more = sketch.with_more(keys)
        sketch.add(keys)
        assert (more, more.errors, more.floor) == (sketch, sketch.errors, sketch.floor)
        assert len(sketch) <= 2 * size
        assert sketch.floor * size <= true.total()
        for key, count, error in sketch.top(100):
            assert count - error <= true[key] <= count
        assert all(key in sketch for key, count in true.items() if count > sketch.floor)


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 20))))
def test_several_sketches_together(stream: list[tuple[int, int]]) -> None:
    sketches, true = [Sketch(4) for _ in range(3)], Counter[str]()
    for which, number in stream:
        true[f"key {number}"] += 1
        sketches[which][f"key {number}"] += 1
    for key, count, error in merged(sketches, 100):
        assert count - error <= true[key] <= count


def test_a_million_keys() -> None:
    sketch = Sketch(50)
    for number in range(1_000_000):
        sketch[f"key {number}"] += 1
        if number % 20 == 0:
            sketch["busy"] += 1
    assert len(sketch) <= 100
    assert len(sketch.errors) <= 100
    assert sys.getsizeof(sketch) + sys.getsizeof(sketch.errors) < 30_000
    (first,) = sketch.top(1)
    assert first.key == "busy"
    assert first.count - first.error <= 50_000 <= first.count
    assert first.error <= 1_050_000 / 50


def test_long_keys_have_less_room() -> None:
    sketch = Sketch(50)
    for number in range(1000):
        sketch[f"{number}{'x' * 10_000}"] += 1
        sketch["ann"] += 1
    assert sum(map(len, sketch)) <= ROOM + 10_003
    assert sketch.top(1)[0].key == "ann"
    sketch["y" * 100_000] += 1  # longer than there is room at all
    sketch["bob"] += 1
    sketch["bert"] += 1
    assert sum(map(len, sketch)) <= ROOM


def test_keys_of_a_gate() -> None:
    with watched(rule("api", "2/minute", key="user"), rule("ip", "99/minute", key="ip user")) as (
        gate,
        telemetry,
    ):
        for _ in range(3):
            gate.check(ANNA)
        gate.check(BERT)
        assert telemetry.top() == {
            "api": [("anna", 3, 0), ("bert", 1, 0)],
            "ip": [("(192.0.2.1, anna)", 2, 0), ("(192.0.2.2, bert)", 1, 0)],
        }
        assert telemetry.top("api", refused=True, most=1) == {"api": [("anna", 1, 0)]}


def test_a_flood_through_the_gate_is_bounded() -> None:
    with watched(rule("api", "1/minute", key="user"), top=5, recent=10) as (gate, telemetry):
        for number in range(5000):
            gate.check(Facts(user=f"user {number}"))
            gate.check(Facts(user=f"user {number}", path="/x" * 500))
        for shard in telemetry._counts._shards:
            assert len(shard["api"].keys) <= 10
            assert len(shard["api"].refused) <= 10
        events = telemetry.recent(1000)
        assert len(events) == 10
        assert all(len(event.path) <= 200 for event in events)


@pytest.mark.parametrize(
    ("keys", "shown"),
    [("plain", "anna"), ("masked", "a***"), ("hidden", ""), (lambda key: "who", "who")],
)
def test_how_keys_are_shown(keys: str, shown: str) -> None:
    with watched(rule("api", "1/minute", key="user"), keys=keys) as (gate, telemetry):
        gate.check(ANNA)
        gate.check(ANNA)
        assert [busy.key for busy in telemetry.top()["api"]] == [shown]
        (event,) = telemetry.recent()
        assert event.key == shown
        assert event.why == "1/minute"
        assert (event.path, event.ip) == (("/api/7", "192.0.2.1") if keys == "plain" else ("", ""))


def test_keys_that_are_shown_alike_are_still_several() -> None:
    with watched(rule("api", "9/minute", key="user"), keys="hidden") as (gate, telemetry):
        for facts in (ANNA, ANNA, BERT):
            gate.check(facts)
        assert telemetry.top() == {"api": [("", 2, 0), ("", 1, 0)]}


def test_hashed_keys_depend_on_the_salt_alone() -> None:
    first, second = namer("hashed", b"one"), namer("hashed", b"two")
    assert first("anna") == first("anna") != second("anna")
    assert first(("a", "b")) != first("(a, b)")
    assert "anna" not in first("anna")


def test_keys_as_text() -> None:
    assert text_of(("ip", b"\xff", "x\n\x1b[31m")) == "(ip, \\xff, x\\n\\x1b[31m)"
    assert len(text_of("x" * 500)) == 120
