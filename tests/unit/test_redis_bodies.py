"""Bodies of the Redis store: the states of the algorithms in the bytes of the scripts, and back."""

from __future__ import annotations

import random
from typing import Any

import pytest

from headgate import Limit
from headgate.algorithms import carried, rule_of
from headgate.errors import StoreError
from headgate.stores.redis.bodies import FencedPermits, dump_body, load_body
from headgate.stores.redis.codec import shape_tag, tag_of

MOST = 2**53 - 1
NOW = 1_790_000_000_000_000


def rule(text: str) -> Any:
    return rule_of(Limit.parse(text))


def used(text: str, count: int, largest: int = 1, ttl: int = 0) -> tuple[Any, Any]:
    """A rule, and a state of it after so many random hits."""
    kernel, chance = rule(text), random.Random(f"{text} {count} {largest}")
    state, now = kernel.empty(), NOW // kernel.tick
    for token in range(count):
        now += chance.randrange(1 + (kernel.window or 1000) // 600)
        kernel.roll(state, now)
        expires = now + ttl + chance.randrange(ttl) if ttl and chance.random() < 0.8 else 0
        kernel.put(state, now, chance.randint(1, largest), token * 2**70, expires)
    return kernel, state


SPREAD = ["500/hour cells 60", "500/hour sliding-log", "30 concurrent", "5/3s cells 7"]


@pytest.mark.parametrize("text", SPREAD)
@pytest.mark.parametrize("largest", [1, 40, 70_000, 2**40])
def test_states_come_back(text: str, largest: int) -> None:
    for count in (1, 2, 30, 500):
        kernel, state = used(text, count, largest, ttl=1_000_000)
        body = dump_body(kernel, state)
        assert tag_of(body) == shape_tag(kernel)
        again = load_body(kernel, body)
        assert dump_body(kernel, again) == body
        for later in (0, kernel.window // 3, kernel.window):
            now = NOW // kernel.tick + later
            for cost in (1, 40):
                assert kernel.read(again, now, cost) == kernel.read(state, now, cost)


def test_words_come_back() -> None:
    for text in ("100/minute", "10/second gcra burst 5", "7/day fixed-window"):
        kernel = rule(text)
        state = kernel.charge(*kernel.fresh(NOW // kernel.tick), NOW // kernel.tick, 3)
        body = dump_body(kernel, state)
        assert len(body) == 25
        assert load_body(kernel, body) == state


@pytest.mark.parametrize("text", SPREAD)
def test_nothing_used_is_no_body(text: str) -> None:
    kernel = rule(text)
    assert dump_body(kernel, kernel.empty()) == b""


def test_sizes() -> None:
    kernel = rule("500/hour cells 60")
    state = kernel.empty()
    kernel.roll(state, NOW)
    kernel.put(state, NOW, 1)
    assert len(dump_body(kernel, state)) == 20  # cells before the first that counts are left out
    kernel, state = used("500/hour sliding-log", 500)
    assert len(dump_body(kernel, state)) == 26 + 4 * len(state.events)


def test_more_than_a_script_counts_to() -> None:
    for text in ("100/minute", "100/minute gcra"):
        kernel = rule(text)
        words = load_body(kernel, dump_body(kernel, (NOW, 2**62, 5)))
        assert words[0] == NOW
        assert max(words) <= MOST
        assert "gcra" in text or 2 * kernel.window * words[1] <= 2**53
    for text in SPREAD[:3]:
        kernel, state = used(text, 3)
        kernel.put(state, NOW + kernel.window // 100, 2**61, 2**80)
        again = load_body(kernel, dump_body(kernel, state))
        assert kernel.used(again, NOW + kernel.window // 100)[0] == MOST


def test_permits_keep_their_fences() -> None:
    kernel = rule("3 concurrent")
    state = FencedPermits()
    kernel.put(state, NOW, 1, 2**128 - 1, NOW + 5)
    kernel.put(state, NOW, 2, 7)
    state.fences[7], state.fence = NOW, NOW + 3
    kernel.roll(state, NOW + 5)
    again = load_body(kernel, dump_body(kernel, state))
    assert again.held == {7: (2, 0)}
    assert (again.fences, again.fence, again.total) == ({7: NOW}, NOW + 3, 2)
    assert carried(kernel, again, rule("9 concurrent"), NOW) is again


def test_what_was_used_stays_used() -> None:
    now = NOW + 7_000_000
    for old, new in [
        ("500/hour cells 60", "500/hour"),
        ("500/hour sliding-log", "500/hour cells 60"),
        ("500/hour cells 60", "9/minute sliding-log"),
        ("30 concurrent", "500/hour cells 60"),
    ]:
        kernel, state = used(old, 5)
        loaded = load_body(kernel, dump_body(kernel, state))
        target = rule(new)
        again = load_body(target, dump_body(target, carried(kernel, loaded, target, now)))
        at = now // target.tick
        left, _, _ = target.look(*again, at, 1) if target.words else target.read(again, at, 1)
        assert left == target.quota - 5, (old, new)


@pytest.mark.parametrize("text", ["100/minute", *SPREAD])
def test_other_bytes_are_refused(text: str) -> None:
    kernel = rule(text)
    body = dump_body(kernel, (1, 2, 3)) if kernel.words else dump_body(*used(text, 5, 3))
    for cut in (0, 3, 4, 11, 19, 24, len(body) - 1):
        if cut < len(body):
            with pytest.raises(StoreError):
                load_body(kernel, body[:cut])
    with pytest.raises(StoreError):
        load_body(kernel, body + b"?")
