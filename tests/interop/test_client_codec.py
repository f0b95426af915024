"""The words of /v1/decide: what goes in comes out, and nothing else goes in."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from far import by_hand
from headgate import Limit, ManualClock
from headgate.decision import Ask, Decision, Glance, Seen
from headgate.keys import canonical
from headgate.stores import MemoryStore
from headgate.stores.client.codec import (
    decode_asks,
    decode_change,
    decode_decisions,
    decode_own,
    encode_asks,
    encode_change,
    encode_decisions,
    encode_own,
    fold,
)
from headgate.stores.client.plan import LARGE, body_of, call_of, pieces
from headgate.stores.failover import Failover
from headgate.stores.local import OPS
from headgate.stores.redis.answers import Fenced
from headgate.testing.cases import ALGORITHMS

TEXTS = [case.limit for case in ALGORITHMS] + ["3 concurrent", "5/minute elastic 50%"]
parts = st.text() | st.binary()
keys = parts | st.lists(parts, max_size=3).map(tuple)
words = st.integers(0, 2**53 - 1)
asks = st.builds(
    Ask,
    op=st.sampled_from(OPS),
    limit=st.sampled_from(TEXTS).map(Limit.parse)
    | st.sampled_from(TEXTS).map(lambda text: Limit.parse(text).named("other")),
    key=keys,
    cost=words,
    space=st.text(st.characters(exclude_categories=["Cs"])),
    max_wait=words,
    least=st.integers(-1, 100),
    token=words,
    ttl=words,
    at=words,
    room=st.integers(0, 1000),
)
groups = st.lists(st.lists(asks, max_size=3), max_size=3)


def numbers(decision: Decision) -> tuple[Any, ...]:
    return (
        decision.allowed, decision.granted, decision.cost, decision.remaining,
        decision.retry_after, decision.reset_after, decision.reset_at, decision.delay,
        decision.at, decision.degraded, decision.limit, type(decision).__name__,
    )  # fmt: skip


def crossed(asks: list[Ask], found: list[Decision]) -> list[Decision]:
    """Decisions as they arrive at the other end."""
    far = decode_asks(encode_asks([asks]))
    return decode_decisions(encode_decisions(far, [found]), [asks])[0]


@given(groups)
def test_asks_arrive_as_they_were(sent: list[list[Ask]]) -> None:
    arrived = decode_asks(encode_asks(sent))

    def named(ask: Ask) -> Ask:
        form = canonical(ask.key)
        least = ask.least if ask.op == "take" else -1  # it means nothing elsewhere
        return ask._replace(key=form if isinstance(form, str) else (form,), least=least)

    assert [[named(ask) for ask in group] for group in arrived] == [
        [named(ask) for ask in group] for group in sent
    ]


def test_what_is_usual_is_left_out() -> None:
    body = encode_asks([[Ask("take", Limit.parse("100/minute"), "user:42")]])
    assert json.loads(body) == {
        "groups": [[{"op": "take", "limit": Limit.parse("100/minute").text, "key": "user:42"}]]
    }


def test_a_wide_token_is_folded_to_the_same_word_each_time() -> None:
    wide = 1 << 115 | 12345
    assert fold(wide) == fold(wide) < 1 << 63
    assert fold(wide) != fold(wide + 1)
    assert fold(7) == 7
    limit = Limit.parse("2 concurrent")
    [[ask]] = decode_asks(encode_asks([[Ask("take", limit, "k", token=wide)]]))
    assert ask.token == fold(wide)


@pytest.mark.parametrize("text", TEXTS)
def test_decisions_say_the_same_numbers(text: str) -> None:
    clock = ManualClock(1_000_000.0)
    store = MemoryStore(clock=clock)
    limit = Limit.parse(text)
    for number in range(8):
        for op in ("take", "check", "shadow"):
            group = [
                Ask(op, limit, "k", 1 + number % 2, max_wait=number % 3 * 10**6, room=500, token=9)
            ]
            found = store.decide(group)
            [arrived] = crossed(group, found)
            assert not isinstance(arrived._source, Seen)  # made by the rule itself
            assert numbers(arrived) == numbers(found[0])
            assert numbers(arrived.after_delay()) == numbers(found[0].after_delay())
        clock.advance(0.21)


def test_own_limits_elastic_ones_too() -> None:
    store = MemoryStore(clock=ManualClock(1_000_000.0))
    limit = Limit.parse("2/minute")
    store.assign("", limit.id, "k", Limit.parse("10/minute elastic 100%"))
    group = [Ask("take", limit, "k", 3, room=500)]
    found = store.decide(group)
    [arrived] = crossed(group, found)
    assert numbers(arrived) == numbers(found[0])
    assert arrived.remaining == 12


def test_a_full_store_and_a_stand_in_and_a_fence() -> None:
    full = MemoryStore(max_keys=1, on_full="deny", clock=ManualClock(1_000_000.0))
    limit = Limit.parse("2/minute")
    full.decide([Ask("take", limit, "a")])
    group = [Ask("take", limit, "b")]
    found = full.decide(group)
    assert not found[0].allowed
    assert numbers(crossed(group, found)[0]) == numbers(found[0])

    _, far = by_hand()
    far.fail()
    found = Failover(far, nodes=2).decide(group)
    [arrived] = crossed(group, found)
    assert arrived.degraded
    assert numbers(arrived) == numbers(found[0])

    plain = MemoryStore().decide(group)[0]
    fenced = Fenced()
    fenced._source, fenced._outcome = plain._source, plain._outcome
    fenced._now, fenced._cost, fenced.fence = plain._now, plain._cost, 77
    [arrived] = crossed(group, [fenced])
    assert isinstance(arrived, Fenced)
    assert arrived.fence == 77


def test_own_limits_travel() -> None:
    own = Limit.parse("9/minute")
    body = encode_change("s", "id", (b"\xff", "b"), own)
    assert decode_change(body) == ("s", "id", (b"\xff", "b"), own.named("id"))
    assert decode_change(encode_change("s", "id", "k")) == ("s", "id", "k", None)
    assert decode_own(encode_own(own), "id") == own.named("id")
    assert decode_own(encode_own(None), "id") is None


def one(**changed: Any) -> bytes:
    ask = {"op": "take", "limit": "5/minute", "key": "k", **changed}
    return json.dumps({"groups": [[ask]]}).encode()


@pytest.mark.parametrize(
    "body",
    [
        b"", b"{", b"[]", b"null", b"\xff", b"[" * 100_000, b'{"groups": null}',
        b'{"groups": [], "more": 1}', b'{"groups": [1]}', b'{"groups": [[1]]}',
        one(op="grab"), one(op=None), one(limit=""), one(limit="5/hours/x"), one(limit=5),
        one(limit="5/minute" + " " * 2000), one(key=1), one(key=None), one(key=[["a"]]),
        one(key={"b": "*"}), one(key={"b": "YQ==", "c": 1}), one(key={}), one(cost=-1),
        one(cost=True), one(cost=1.0), one(cost=2**53), one(cost="1"), one(space=1),
        one(space="\ud800"), one(id=1), one(id="\ud800"), one(max_wait=-1), one(least=-2),
        one(token=2**63), one(token=-1), one(ttl=1.5), one(at=None), one(room=1001),
        one(extra=1), one(on_error="allow"), one(cost=float("nan")),
    ],
)  # fmt: skip
def test_bad_asks_are_value_errors(body: bytes) -> None:
    with pytest.raises(ValueError):
        decode_asks(body)


def answer(**changed: Any) -> bytes:
    found = {"wait": 0, "a": 0, "b": 0, "c": 0, "now": 1, "cost": 1, **changed}
    return json.dumps({"groups": [[found]]}).encode()


@pytest.mark.parametrize(
    "body",
    [
        b"<html>", b"{}", b'{"groups": []}', b'{"groups": [[]]}', b'{"groups": [[{}]]}',
        answer(wait=-2), answer(wait=None), answer(a=1.5), answer(b=2**63), answer(now=-1),
        answer(cost=-1), answer(own=1), answer(own="x"), answer(seen=0), answer(fence=-1),
        answer(more=1), answer(wait=False),
    ],
)  # fmt: skip
def test_bad_answers_are_value_errors(body: bytes) -> None:
    with pytest.raises(ValueError):
        decode_decisions(body, [[Ask("take", Limit.parse("5/minute"), "k")]])


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)
FIELDS = ["op", "limit", "id", "key", "cost", "space", "max_wait", "least", "token", "ttl", "room"]
WORDS = ["wait", "a", "b", "c", "now", "cost", "own", "fence", "degraded", "glance", "seen"]


@settings(max_examples=300)
@given(
    st.binary()
    | json_values.map(lambda value: json.dumps(value).encode())
    | st.dictionaries(st.sampled_from(FIELDS), json_values).map(lambda some: one(**some))
    | st.dictionaries(st.sampled_from(WORDS), json_values).map(lambda some: answer(**some))
)
def test_anything_else_is_a_value_error(body: bytes) -> None:
    for reading in (
        decode_asks,
        decode_change,
        lambda data: decode_own(data, "x"),
        lambda data: decode_decisions(data, [[Ask("take", Limit.parse("5/minute"), "k")]]),
    ):
        try:
            reading(body)
        except ValueError:
            continue


def test_a_look_is_a_glance_again() -> None:
    group = [Ask("check", Limit.parse("5/minute"), "k")]
    [arrived] = crossed(group, MemoryStore().decide(group))
    assert isinstance(arrived, Glance)
    assert arrived.granted == 0


def test_bodies_have_a_size_that_a_service_takes() -> None:
    limit = Limit.parse("5/minute")
    calls = [call_of([Ask("take", limit, f"key{number}")]) for number in range(3000)]
    shared = pieces(calls)
    assert [call for piece in shared for call in piece] == calls
    assert len(shared) > 1
    assert all(len(body_of(piece)) < LARGE + 100 for piece in shared)
    huge = call_of([Ask("take", limit, "x" * 2 * LARGE)])
    assert pieces([calls[0], huge, calls[1]]) == [[calls[0]], [huge], [calls[1]]]
