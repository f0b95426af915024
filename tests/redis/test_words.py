"""Scripts against the reference: random traces, the same words after every step.

States of three words alone; what else there is has its own tests. Every trace has keys of its
own, and the time is sent along, so that many of them travel in one pipeline.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from struct import Struct
from typing import Any

import pytest
from traces import TRACES, Reference, Wire, instants, limit_text, reference

from headgate import Limit
from headgate.algorithms import rule_of
from headgate.stores.redis import codec
from headgate.stores.redis.answers import outcome_of
from headgate.stores.redis.scripts import script
from servers import Server

KINDS = (
    "gcra", "bucket", "meter", "debt", "queue", "fixed", "first", "calendar", "sliding", "even",
    "warm",
)  # fmt: skip
OUTCOME = Struct("<5q")
ANSWER = Struct("<7q")
SLACK = 3_600_000
HALF = -(-TRACES // 2)
"""Half of the traces are takes alone, the others asks of every kind."""
STEPS = 8
LIMITS = 100
BATCH = 1000

Limited = tuple[str, Any, Any, Any]
"""A limit's text, our rule of it, and the reference's limit and rule."""


@pytest.fixture
def wire(server: Server) -> Iterator[Wire]:
    client = server.client()
    client.flushall()
    connection = Wire(client)
    yield connection
    connection.close()
    client.close()


def limited(kind: str, random: Random) -> Limited:
    text = limit_text(kind, random)
    theirs = reference("limit").Limit.parse(text)
    rule = rule_of(Limit.parse(text))
    return text, rule, theirs, reference("algorithms").rule_of(theirs)


def costs(random: Random, rule: Any) -> int:
    most = getattr(rule, "capacity", rule.quota)
    return random.choice((1, 1, 1, 2, most, most + 1, random.randint(1, most)))


def waits(random: Random, rule: Any) -> int:
    window = rule.limit.window
    return random.choice((0, 0, 0, 1, random.randint(0, 2 * window), 2**52))


@pytest.mark.parametrize("kind", KINDS)
def test_a_take_leaves_the_words_that_the_reference_leaves(kind: str, wire: Wire) -> None:
    random = Random(f"take {kind}")
    pool = [limited(kind, random) for _ in range(LIMITS)]
    for start in range(0, HALF, BATCH):
        expected: list[Any] = []
        for number in range(start, min(HALF, start + BATCH)):
            text, ours, _, theirs = random.choice(pool)
            short = script("take", (codec.kind_of(ours),))
            key, state = b"%s %d" % (kind.encode(), number), None
            for at in instants(random, ours.limit.window, STEPS):
                now = at // ours.tick
                cost, wait = costs(random, theirs), waits(random, theirs)
                how = codec.take_blob(codec.blob(ours, at), cost, wait, at, SLACK)
                wire.call(short, (key,), (how,))
                most = min(wait // ours.tick, theirs.horizon) if theirs.books else 0
                before = theirs.fresh(now) if state is None else state
                taken = theirs.take(*before, now, cost, most)
                if taken[0] >= 0 or state is not None or theirs.sticky:
                    state = taken[1:]
                expected.append(((*taken, now), text, number, cost, wait))
        check(wire, expected, OUTCOME)


@pytest.mark.parametrize("kind", KINDS)
def test_asks_of_every_kind_are_answered_as_the_reference_answers(kind: str, wire: Wire) -> None:
    traces(kind, wire, [kind])


def test_limits_of_all_kinds_are_decided_together(wire: Wire) -> None:
    traces("together", wire, KINDS)


def test_takes_spelt_out_are_answered_as_the_reference_answers(wire: Wire) -> None:
    random = Random("spelt out")
    kinds = [kind for kind in KINDS if kind != "calendar"]
    pool = [limited(kind, random) for kind in kinds for _ in range(LIMITS)]
    sets = [random.sample(pool, random.choice((2, 3, 4))) for _ in range(200)]  # a script for each
    passed = 0
    for start in range(0, HALF, BATCH):
        expected: list[Any] = []
        for number in range(start, min(HALF, start + BATCH)):
            chosen, store = random.choice(sets), Reference()
            made = script("together", tuple(codec.kind_of(ours) for _, ours, _, _ in chosen))
            keys = [b"spelt %d %d" % (number, place) for place in range(len(chosen))]
            for at in instants(random, chosen[0][1].limit.window, STEPS):
                store.time.at = at
                cost = costs(random, random.choice(chosen)[3])
                rules = [codec.blob(ours, at) for _, ours, _, _ in chosen]
                wire.call(
                    made, keys, (codec.together_blob(codec.time_blob(at, SLACK), cost, rules),)
                )
                asks = [
                    reference("decision").Ask("take", theirs, str(place), cost, str(place))
                    for place, (_, _, theirs, _) in enumerate(chosen)
                ]
                answers = [(*d._outcome, d._now, 0, d._cost) for d in store.decide(asks)]
                expected.append((answers, asks, number, at))
        for reply, (answers, *case) in zip(wire.send(), expected, strict=True):
            if type(reply) is bytes:
                passed += 1
                now, *words = Struct(f"<{len(reply) // 8}q").unpack(reply)
                assert now == case[-1]
                assert words == [word for answer in answers for word in answer[1:4]], case
                assert {answer[0] for answer in answers} == {0}, case
            else:
                assert [ANSWER.unpack(part) for part in reply] == answers, case
                assert any(answer[0] for answer in answers), case
    assert passed > HALF


def traces(name: str, wire: Wire, kinds: Any) -> None:
    random = Random(f"asks {name}")
    pool = [limited(kind, random) for kind in kinds for _ in range(LIMITS)]
    # Debts that grow beyond 2^53 are forgiven earlier here than in the reference.
    pool = [each for each in pool if each[1].quota * each[1].window < 2**44]
    for start in range(0, HALF, BATCH):
        expected: list[Any] = []
        for number in range(start, min(HALF, start + BATCH)):
            chosen = [random.choice(pool) for _ in range(random.choice((1, 1, 2, 3)))]
            store, tokens = Reference(), [0] * 4
            for at in instants(random, chosen[0][1].limit.window, STEPS // 2):
                store.time.at = at
                asks, keys, words = [], [], [codec.time_blob(at, SLACK)]
                places = some(random, len(chosen))
                for place in places:
                    _, ours, theirs, _ = chosen[place]
                    ask = an_ask(random, theirs, at, place, tokens)
                    if ask.op == "reset" and places.count(place) > 1:
                        ask = ask._replace(op="check")  # what is undone then is not defined
                    asks.append(ask)
                    keys.append(b"%s %d %d" % (name.encode(), number, place))
                    words += (codec.blob(ours, at), codec.op_blob(ask))
                needed = tuple(sorted({codec.kind_of(each[1]) for each in chosen}))
                wire.call(script("decide", needed), keys, words)
                answers = [(*d._outcome, d._now, 0, d._cost) for d in store.decide(asks)]
                expected.append((answers, asks, number, at))
        check(wire, expected, ANSWER)


def some(random: Random, count: int) -> list[int]:
    """Places to ask at; now and then the same one twice."""
    if random.random() < 0.1:
        return [random.randrange(count) for _ in range(count + 1)]
    return random.sample(range(count), random.randint(1, count))


def an_ask(random: Random, limit: Any, now: int, place: int, tokens: list[int]) -> Any:
    rule = reference("algorithms").rule_of(limit)
    op = random.choice(("take",) * 8 + codec.OPS)
    cost = costs(random, rule) if random.random() < 0.95 else 0
    values: dict[str, Any] = {"key": str(place), "cost": cost, "space": str(place)}
    if op in ("take", "check", "shadow"):
        values["max_wait"] = waits(random, rule)
    if op == "take" and random.random() < 0.2:
        values["least"] = random.choice((0, 1, cost))
    if op in ("settle", "renew", "release") or (op == "take" and random.random() < 0.3):
        older = random.random() < 0.3
        tokens[place] += op == "take" and not older  # now and then a token is used twice
        values["token"] = 16 * max(1, tokens[place] - older) + place
        values["ttl"] = random.randint(1, 3 * limit.window)
    if op == "refund":
        span = 2 * limit.window
        values["at"] = max(0, now + random.choice((0, random.randint(-span, span))))
    return reference("decision").Ask(op, limit, **values)


def check(wire: Wire, expected: list[Any], form: Struct) -> None:
    replies = wire.send()
    assert len(replies) == len(expected)
    for reply, case in zip(replies, expected, strict=True):
        if form is OUTCOME:
            found: Any = outcome_of(reply) if type(reply) is bytes else reply
        else:
            found = [form.unpack(part) if type(part) is bytes else part for part in reply]
        assert found == case[0], case[1:]
