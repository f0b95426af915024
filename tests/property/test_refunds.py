"""What is given back, charged afterwards, or settled, against the models."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate import Ask, Limiter, LimitExceeded, ManualClock
from models.base import Model
from models.bucket import Bucket

from . import cases
from .support import SECOND, Cost, Move, Run, check_numbers, costs, make_store, moves, starts

KINDS = {
    "fixed-window": cases.fixed_windows(),
    "first-hit": cases.first_hits(),
    "sliding-window": cases.counters(),
    "cells": cases.cells(),
    "sliding-log": cases.logs(),
    "token-bucket": cases.buckets(),
    "stepped": cases.stepped(),
    "gcra": cases.gcras(),
    "leaky-bucket": cases.meters(),
    "debt": cases.debts(),
}
acts = st.lists(
    st.tuples(
        moves, costs, st.sampled_from(["hit", "hit", "refund", "part", "charge"]), st.integers(0, 9)
    ),
    min_size=1,
    max_size=25,
)


def too_deep(model: Model, now: int, cost: int) -> bool:
    """Beyond a whole bucket of debt, which a charge may forgive."""
    return isinstance(model, Bucket) and model.level(now) - cost < -model.capacity


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data(), start=starts, trace=acts)
def test_refunds_and_charges(
    kind: str, data: st.DataObject, start: int, trace: list[tuple[Move, Cost, str, int]]
) -> None:
    """Windows and cells give back where it was taken, the log in that event, buckets a level."""
    case = data.draw(KINDS[kind])
    run = Run(case, start)
    taken: list[tuple[int, int]] = []
    for move, cost, act, which in trace:
        asked = run.cost(cost)
        if act in ("hit", "charge") or not taken:
            if act == "charge" and asked:
                run.move(move)
                if too_deep(run.model, run.now, asked):
                    continue
                run.model.enter(run.now, asked)
                run.store.decide([Ask("charge", run.limit, "key", asked)])
            else:
                decision = run.step(move, cost)
                if decision.allowed and decision.granted:
                    taken.append((decision.at, decision.granted))
        else:
            run.move(move)
            at, whole = taken.pop(which % len(taken))
            back = whole if act == "refund" else whole * which // 10
            run.model.refund(run.now, back, at // run.tick)
            run.store.decide([Ask("refund", run.limit, "key", back, at=at)])
        seen = run.limiter.peek("key", 1)
        run.last = seen
        assert seen.allowed == run.model.fits(run.now, 1)
        if run.model.seen():
            check_numbers(run.model, run.now, 1, seen, run.tick)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "stepped"])
@given(data=st.data(), start=starts, trace=acts)
def test_a_refund_at_the_same_instant_undoes_the_take(
    kind: str, data: st.DataObject, start: int, trace: list[tuple[Move, Cost, str, int]]
) -> None:
    case = data.draw(KINDS[kind])
    run, twin = Run(case, start), Run(case, start)
    for move, cost, act, _ in trace:
        run.move(move)
        twin.move(move)
        asked = run.cost(cost)
        decision = run.hit(asked)
        if act == "hit":
            twin.hit(asked)
        elif decision.allowed:
            run.store.decide([Ask("refund", run.limit, "key", asked, at=decision.at)])
        run.last, other = run.limiter.peek("key", 1), twin.limiter.peek("key", 1)
        twin.last = run.last
        assert (run.last.allowed, run.last.remaining) == (other.allowed, other.remaining)
        assert run.last.retry_after == other.retry_after
        assert run.last.reset_after == other.reset_after


@given(
    st.integers(1, 30),
    st.lists(
        st.tuples(
            st.sampled_from(["open", "settle", "cancel", "abandon", "again"]),
            st.integers(1, 12),
            st.integers(0, 40),
            st.integers(0, 5),
        ),
        max_size=30,
    ),
)
def test_reservations(amount: int, trace: list[tuple[str, int, int, int]]) -> None:
    """What counts is the estimate while open, then the real cost; abandoned, nothing."""
    clock = ManualClock()
    limiter = Limiter(f"{amount}/day fixed-window", store=make_store(clock))
    settled = 0
    opened: list[tuple[object, int, int]] = []
    for act, estimate, real, which in trace:
        clock.advance(1)
        expired = [entry for entry in opened if entry[2] <= clock.micros()]
        opened = [entry for entry in opened if entry not in expired]
        used = settled + sum(entry[1] for entry in opened)
        assert limiter.peek().remaining == max(0, amount - used)
        if act in ("open", "abandon"):
            ttl = 3 if act == "abandon" else 80_000
            with contextlib.suppress(LimitExceeded):
                reservation = limiter.reserve(cost=estimate, ttl=ttl).__enter__()
                opened.append((reservation, estimate, clock.micros() + ttl * SECOND))
                assert used + estimate <= amount
                continue
            assert used + estimate > amount
        elif opened:
            chosen = [entry for entry in opened if entry[2] > clock.micros() + 10 * SECOND]
            if not chosen:
                continue
            entry = chosen[which % len(chosen)]
            opened.remove(entry)
            cost = 0 if act == "cancel" else real
            assert entry[0].settle(cost)  # type: ignore[attr-defined]  # a Reservation
            settled += cost
            if act == "again":
                assert not entry[0].settle(0)  # type: ignore[attr-defined]  # a Reservation


@given(
    st.sampled_from(
        ["fixed-window", "sliding-window", "sliding-log", "token-bucket", "gcra", "cells 7"]
    ),
    st.integers(1, 20),
    st.lists(st.tuples(st.sampled_from(["open", "open", "succeed", "fail"]), st.integers(0, 99))),
)
def test_count_failures(algorithm: str, amount: int, trace: list[tuple[str, int]]) -> None:
    """Failures and calls in flight together never exceed the limit, at any instant."""
    limiter = Limiter(f"{amount}/day {algorithm}", store=make_store(ManualClock(1e9)))
    flying = []
    failures = 0
    for act, which in [*[("open", 0)] * 100, *trace]:
        if act == "open":
            attempt = limiter.attempt()
            try:
                flying.append((attempt, attempt.__enter__()))
            except LimitExceeded:
                assert len(flying) + failures == amount
        elif flying:
            attempt, under_way = flying.pop(which % len(flying))
            if act == "fail":
                under_way.fail()
                failures += 1
            attempt.__exit__(None, None, None)
        assert len(flying) + failures <= amount
        assert limiter.peek().remaining == amount - len(flying) - failures
