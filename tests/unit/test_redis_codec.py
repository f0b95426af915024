"""Names, rules and values of the Redis store, without a server."""

from __future__ import annotations

from random import Random
from struct import unpack

import pytest

from headgate import Limit
from headgate.algorithms import rule_of
from headgate.decision import Ask
from headgate.errors import StoreError
from headgate.keys import Key
from headgate.stores.redis import codec
from headgate.stores.redis.bodies import dump_body
from headgate.stores.redis.kinds import KINDS, PARAMETERS
from headgate.stores.redis.naming import Names
from headgate.stores.redis.scripts import script

TEXTS = {
    "gcra": "100/minute gcra burst 5",
    "bucket": "100/minute token-bucket burst 20 initial 0 refill 100ms",
    "debt": "10/second debt",
    "queue": "10/second leaky-bucket queue 5 delay 2",
    "fixed": "3/hour fixed-window anchor 2026-01-01T00:30Z",
    "first": "1/30min fixed-window first-hit",
    "calendar": "1/day fixed-window tz Asia/Shanghai",
    "sliding": "100/minute",
    "even": "50/10s even",
    "warm": "100/second warm-up 10s cold 3",
    "cells": "500/hour sliding-window cells 60",
    "log": "5/second sliding-log",
    "permits": "20 concurrent",
}
NOW = 1_767_225_600_000_000


def slot_part(name: bytes) -> bytes:
    """What a cluster hashes of a key, as it documents that."""
    start = name.find(b"{")
    end = name.find(b"}", start + 1)
    return name[start + 1 : end] if start >= 0 and end > start + 1 else name


# -- names


def test_a_name_holds_the_format_the_limit_and_the_key() -> None:
    name = Names().key("api", "100/minute", "user:0000042")
    assert name.startswith(b"hg1:")
    assert name.endswith(b":{user:0000042}")
    assert len(name) == 27


def test_names_differ_by_space_limit_and_key() -> None:
    names = Names()
    keys: list[Key] = [
        "",
        "}",
        "{}",
        "a",
        "a}b",
        b"\xff",
        ("a", "b/c"),
        ("a/b", "c"),
        ("a",),
        "{a}",
        "}}",
    ]
    seen = {names.key(s, i, k) for s in ("", "a", "b") for i in ("1/s", "2/s") for k in keys}
    assert len(seen) == 3 * 2 * len(keys)
    assert names.key("", "1/s", "ä") == names.key("", "1/s", "ä".encode())


@pytest.mark.parametrize(
    "key", ["", "}", "}a", "{", "{}", "a", "a}b", "{a}b", ("a", "}"), b"\xff}"]
)
def test_all_limits_of_a_key_share_a_slot(key: str | bytes | tuple[str, ...]) -> None:
    names = Names()
    slots = {slot_part(names.key(space, limit, key)) for space in "ab" for limit in ("1/s", "2/s")}
    assert len(slots) == 1
    assert names.key("a", "1/s", key) not in slots


def test_a_tag_puts_every_key_into_one_slot() -> None:
    names = Names(tag="app")
    keys = [names.key("", "1/s", key) for key in ("a", "", "}", "{b}")]
    assert {slot_part(name) for name in (*keys, names.register)} == {b"app"}
    assert len(set(keys)) == 4


@pytest.mark.parametrize("bad", [{"prefix": ""}, {"prefix": "a{"}, {"tag": ""}, {"tag": "}"}])
def test_what_cannot_be_part_of_a_name_is_refused(bad: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="brace"):
        Names(**bad)


# -- rules


def test_every_kind_has_its_number_and_its_parameters() -> None:
    assert set(TEXTS) == set(KINDS) == set(PARAMETERS)
    for number, kind in enumerate(KINDS, 1):
        rule = rule_of(Limit.parse(TEXTS[kind]))
        assert codec.kind_of(rule) == kind
        blob = codec.blob(rule, NOW)
        assert blob[0] == number
        assert len(blob) == 17 + 8 * len(PARAMETERS[kind])
        assert unpack("<2d", blob[1:17]) == (codec.shape_tag(rule), rule.tick)


def test_a_leaky_bucket_that_does_not_queue_is_a_bucket() -> None:
    assert codec.kind_of(rule_of(Limit.parse("10/second leaky-bucket burst 5"))) == "bucket"


def test_a_calendars_window_is_that_of_the_time_it_is_asked_for() -> None:
    rule = rule_of(Limit.parse("1/day fixed-window tz Asia/Shanghai"))
    windows = set()
    for hours in (0, 1, 24, 48):
        at = NOW + hours * 3_600_000_000
        blob = codec.blob(rule, at)
        begin, finish = unpack("<2d", blob[25:41])
        assert begin <= at // rule.tick < finish
        windows.add((begin, finish))
    assert len(windows) == 3


def test_rules_of_one_shape_have_one_tag() -> None:
    tags = {}
    for text in (
        "1/minute",
        "2/minute",
        "1/hour",
        "1/minute gcra",
        "2/minute gcra",
        "1/minute even",
    ):
        tags[text] = codec.shape_tag(rule_of(Limit.parse(text)))
        assert 1 <= tags[text] <= 2**32 - 2
    assert tags["1/minute"] == tags["2/minute"]
    assert len(set(tags.values())) == 5


# -- values


def random_held(random: Random) -> codec.Held:
    def token() -> bytes:
        return random.randbytes(16)

    def number() -> int:
        return random.randint(0, 2**53 - 1)

    own = random.random() < 0.5
    reservations = [codec.Reservation(token(), number(), number(), number()) for _ in range(3)]
    tickets = [codec.Ticket(token(), number(), number()) for _ in range(3)]
    return codec.Held(
        random.randbytes(random.randint(17, 99)) if own else b"",
        random.choice(["5/minute", "1/day fixed-window tz Asia/Shanghai"]) if own else "",
        tuple(reservations[: random.randint(0, 3)]),
        tuple(tickets[: random.randint(0, 3)]),
        b"" if random.random() < 0.3 else b"\1\0\0\0" + random.randbytes(random.randint(0, 50)),
    )


def test_a_value_is_read_as_it_was_written() -> None:
    random = Random(1)
    for _ in range(2000):
        held = random_held(random)
        value = codec.join(held)
        assert codec.split(value) == held
        plain = not (held.own_text or held.reservations or held.tickets)
        assert (value == held.body) == plain


def test_a_key_never_seen_holds_nothing() -> None:
    assert codec.split(b"") == codec.Held()
    assert codec.join(codec.Held()) == b""
    assert codec.tag_of(b"") == 0


def test_what_somebody_else_wrote_is_an_error() -> None:
    good = codec.join(codec.Held(reservations=(codec.Reservation(bytes(16), 1, 2, 3),)))
    for bad in (good[:-1], good[:30], good[:10], b"\xff" * 40):
        with pytest.raises(StoreError, match="somebody else"):
            codec.split(bad)


def test_a_value_lives_as_long_as_anything_in_it() -> None:
    rule = rule_of(Limit.parse("10/minute gcra"))
    body = dump_body(rule, rule.charge(0, 0, 0, NOW, 5))
    held = codec.Held(body=body)
    assert codec.lives_ms(held, rule, NOW) == 30_002
    late = codec.Reservation(bytes(16), 1, NOW, NOW + 90_000_000)
    assert codec.lives_ms(held._replace(reservations=(late,)), rule, NOW) == 90_002
    assert codec.lives_ms(held, None, NOW) == codec.UNKNOWN_MS + 2
    low = rule_of(Limit.parse("10/minute burst 10 initial 0"))
    kept = codec.Held(body=dump_body(low, low.fresh(NOW)))
    assert codec.lives_ms(kept, low, NOW) == 2 + 60_000 + 86_460_000


# -- asks and scripts


def test_an_ask_is_six_numbers_and_a_token() -> None:
    ask = Ask("settle", Limit.parse("5/minute"), cost=3, token=2**64 + 1, ttl=4, at=5, max_wait=6)
    packed = codec.op_blob(ask)
    assert len(packed) == 64
    assert unpack("<6d", packed[:48]) == (6, 3, 6, -1, 4, 5)
    assert packed[48:] == codec.token_bytes(2**64 + 1)


def test_a_script_depends_on_names_alone() -> None:
    assert script("decide", ("gcra", "even")) == script("decide", ("even", "gcra", "even"))
    assert script("take", ("gcra",)).sha != script("take", ("even",)).sha
    assert "warm_take" not in script("decide", ("gcra",)).text
    assert "gcra_charge" not in script("take", ("gcra",)).text
