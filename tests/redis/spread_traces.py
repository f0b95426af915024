"""Traces of cells, log and permits, and what the reference algorithms answer to them."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

from headgate import Limit
from headgate.algorithms import rule_of
from headgate.decision import Ask
from headgate.stores.redis import codec
from headgate.stores.redis.bodies import dump_body, load_body
from headgate.stores.redis.scripts import script

__all__ = ["LIMITS", "SLACK", "Trace"]

MOST = 2**53 - 1
SLACK = 3_600_000
OPS = ("take", "charge", "refund", "release", "renew", "check")
TAKE, CHARGE, REFUND, RELEASE, RENEW, LOOK = range(6)
STEP = struct.Struct("<4q16s")

LIMITS = {
    "cells": (
        "5/second cells 3", "300/10s cells 7", "70000/minute cells 4", "3/hour cells 60",
        "1000000000/day cells 24", "2/7s cells 7", "9/3ms cells 1",
    ),
    "log": (
        "5/second sliding-log", "300/10s sliding-log", "3/hour sliding-log",
        "100000/hour sliding-log", "1000000000/day sliding-log", "8/50ms sliding-log",
    ),
    "permits": ("3 concurrent", "20 concurrent", "1000000 concurrent", "1 concurrent"),
}  # fmt: skip


class Step(NamedTuple):
    op: int
    now: int
    cost: int = 0
    more: int = 0
    """When it expires, or the instant a refund is for."""
    token: int = 0

    def packed(self) -> bytes:
        return STEP.pack(*self[:4], self.token.to_bytes(16, "big"))


class Model:
    """A key under the reference algorithm."""

    def __init__(self, rule: Any) -> None:
        self.rule = rule
        self.kind = codec.kind_of(rule)
        self.state = rule.empty()

    @property
    def total(self) -> int:
        return int(self.state[1] if self.kind == "cells" else self.state.total)

    def answer(self, step: Step) -> tuple[int, ...]:
        """The wait, the view, and how long the key lives."""
        rule, state, wait = self.rule, self.state, 0
        op, now, cost, more, token = step
        if op == REFUND:
            rule.refund(state, now, cost, more)
        rule.roll(state, now)
        if op == TAKE:
            wait = rule.take(state, now, cost)
            if not wait:
                rule.put(state, now, cost, token, more)
        elif op == LOOK:
            wait = rule.take(state, now, cost)
        elif op == CHARGE:
            rule.put(state, now, min(cost, MOST - self.total), token, more)
        elif op in (RELEASE, RENEW):
            held = self.kind == "permits" and (
                rule.release(state, token) if op == RELEASE else rule.renew(state, token, more)
            )
            wait = 0 if held else -1
        a, b, c = rule.view(state, now, cost if op in (TAKE, LOOK) else 0)
        if self.kind == "log" and not a:
            c = 0  # the reference may remember the last event that left
        if not self.total and self.kind != "permits":
            self.state = rule.empty()  # as if never used, and so forgotten
        return wait, a, b, c, rule.look(a, b, c, now, 0)[2]


def steps_of(rule: Any, chance: random.Random, count: int) -> Iterator[Step]:
    """Random steps: close together, windows apart, and back in time."""
    now = chance.choice((0, 1_700_000_000_000_000, chance.randrange(2**50))) // rule.tick
    span, quota, permits = rule.window or 1000, rule.quota, codec.kind_of(rule) == "permits"
    # Tokens that look like other bytes of a body, and tokens that do not.
    tokens = range(4) if chance.random() < 0.5 else [chance.randrange(2**128) for _ in range(4)]
    weights = (10, 0.5, 0.5, 5, 3, 1) if permits else (10, 1, 2, 0.1, 0.1, 1)
    past = [now]
    for _ in range(count):
        way = chance.random()
        if way > 0.4:
            near = max(1, span // 10)
            jumps = (near, near, near, near, span // 2, span // 2, span, span + 1, 3 * span)
            now += chance.randrange(chance.choice(jumps)) + (way > 0.9)
        elif way < 0.08:
            now = max(0, now - chance.randrange(chance.choice((span, span + 2, 3 * span))))
        past.append(now)
        (op,) = chance.choices(range(6), weights)
        small = chance.randrange(1, max(2, quota // 3))
        cost = chance.choice((1, 1, 1, 1, 2, small, chance.randrange(1, quota + 1), quota + 1))
        expires = now + chance.randrange(1, 2 * span) if chance.random() < 0.75 else 0
        if op == REFUND:
            instant = chance.choice((now, chance.choice(past), chance.choice(past) + 1))
            yield Step(op, now, cost, instant)
        elif op == CHARGE:
            yield Step(op, now, cost if chance.random() < 0.8 else chance.choice((MOST, 2**40)))
        else:
            yield Step(op, now, cost, expires if permits else 0, chance.choice(tokens))


class Trace:
    """Steps that a key goes through, perhaps with a past in Python."""

    def __init__(self, kind: str, chance: random.Random, count: int) -> None:
        self.model = Model(rule_of(Limit.parse(chance.choice(LIMITS[kind]))))
        rule, before = self.model.rule, chance.choice((0, 0, 5))
        self.steps = list(steps_of(rule, chance, before + count))
        for step in self.steps[:before]:
            self.model.answer(step)
        self.body = dump_body(rule, self.model.state)
        if not self.model.total:
            self.model.state = rule.empty()
        del self.steps[:before]
        self.expected = [self.model.answer(step) for step in self.steps]

    def arguments(self) -> tuple[bytes, bytes, bytes]:
        return codec.blob(self.model.rule, 0), self.body, b"".join(s.packed() for s in self.steps)

    def calls(self, name: str, chance: random.Random) -> Iterator[tuple[Any, ...]]:
        """The script of the store for each step, and its arguments."""
        rule, kind = self.model.rule, self.model.kind
        blob, tick = codec.blob(rule, 0), rule.tick
        for op, now, cost, more, token in self.steps:
            micros = now * tick
            if op == TAKE and kind != "permits" and chance.random() < 0.7:
                how = codec.take_blob(blob, cost, 0, micros, SLACK)
                yield script("take", (kind,)).sha, 1, name, how
                continue
            ask = Ask(OPS[op], rule.limit, cost=cost, token=token)
            if op == REFUND:
                ask = ask._replace(at=more * tick)
            elif more:
                ask = ask._replace(ttl=(more - now) * tick)
            arguments = (codec.time_blob(micros, SLACK), blob, codec.op_blob(ask))
            yield script("decide", (kind,)).sha, 1, name, *arguments

    def check(self, replies: list[tuple[int, ...]], body: bytes) -> None:
        """Whether these are the answers, and this the state, of the reference."""
        rule = self.model.rule
        for number, (want, have) in enumerate(zip(self.expected, replies, strict=True)):
            assert have == want[: len(have)], (
                str(rule.limit), self.body, self.steps[: number + 1], have, want
            )  # fmt: skip
        if not self.model.total:
            assert not body or self.model.kind == "permits"
            return
        assert codec.tag_of(body) == codec.shape_tag(rule)
        state = load_body(rule, body)
        if self.model.kind == "permits":
            assert state.held == self.model.state.held
            assert state.total == self.model.total
        else:
            assert dump_body(rule, state) == dump_body(rule, self.model.state)
