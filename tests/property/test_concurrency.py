"""Permits: never more than allowed at once, and each comes back exactly once."""

from __future__ import annotations

import contextlib
import math
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from headgate import Ask, Limiter, LimitExceeded, ManualClock
from headgate.held import Hold, Permit
from models.concurrency import Leases

from .support import SECOND, make_store


class Act(NamedTuple):
    """One thing a crowd of holders does."""

    kind: str
    which: int
    cost: int
    ttl: int
    """In milliseconds; 0 for no end."""
    pause: int
    """In milliseconds, before it."""


ttls = st.one_of(st.just(0), st.integers(1, 3000))
acts = st.lists(
    st.builds(
        Act,
        st.sampled_from(["take", "take", "take", "release", "renew", "again", "stale", "reset"]),
        st.integers(0, 9),
        st.integers(0, 7),
        ttls,
        st.sampled_from([0, 0, 1, 500, 2000]),
    ),
    max_size=40,
)


@given(st.integers(1, 6), acts)
def test_leases(amount: int, trace: list[Act]) -> None:
    """The store against a plain list of leases, by the verbs of the store."""
    clock = ManualClock(1000.0)
    store = make_store(clock)
    limiter = Limiter(f"{amount} concurrent", store=store)
    limit = limiter.limits[0]
    model = Leases(amount)
    for token, act in enumerate(trace, start=1):
        clock.advance(act.pause / 1000)
        now, ttl = clock.micros(), act.ttl * 1000 or None
        named = act.which % token  # a token that was given out, or 0, which never was
        if act.kind == "take":
            ask = Ask("take", limit, "db", act.cost, token=token, ttl=ttl or 0)
            free = model.amount - model.used(now)
            decision = store.decide([ask])[0]
            if act.cost == 0:
                assert decision.allowed
            else:
                assert decision.allowed == model.take(now, token, act.cost, ttl)
                check_retry(decision.retry_after, act.cost, free, model, now)
        elif act.kind in ("release", "stale"):
            ask = Ask("release", limit, "db", 0, token=named)
            released = model.release(now, named)
            assert store.decide([ask])[0].allowed == released
            if act.kind == "stale":
                assert not store.decide([ask])[0].allowed
                assert not model.release(now, named)
        elif act.kind == "renew":
            ask = Ask("renew", limit, "db", 0, token=named, ttl=ttl or 0)
            assert store.decide([ask])[0].allowed == model.renew(now, named, ttl)
        elif act.kind == "reset":
            limiter.reset("db")
            for lease in model.leases:
                lease.released = True
        check_state(limiter, model, now)


def check_retry(retry: float, cost: int, free: int, model: Leases, now: int) -> None:
    """The earliest lease to run out is when trying again may help."""
    if cost <= free:
        assert retry == 0
        return
    ends = [lease.expires for lease in model.live(now) if lease.expires is not None]
    if cost > model.amount or not ends:
        assert retry == math.inf
    else:
        assert round(retry * SECOND) == min(ends) - now


def check_state(limiter: Limiter, model: Leases, now: int) -> None:
    seen = limiter.peek("db", 0)
    used = model.used(now)
    assert 0 <= used <= model.amount
    assert seen.remaining == model.amount - used
    ends = [lease.expires for lease in model.live(now)]
    if not ends:
        assert seen.reset_after == 0
    elif None in ends:
        assert seen.reset_after == math.inf
    else:
        assert round(seen.reset_after * SECOND) == max(e for e in ends if e is not None) - now


@given(st.integers(1, 6), acts)
def test_holds(amount: int, trace: list[Act]) -> None:
    """Entered and left in any order, released early, released twice: 0 at rest."""
    clock = ManualClock(1000.0)
    limiter = Limiter(f"{amount} concurrent", store=make_store(clock))
    inside: list[tuple[Hold, Permit, int]] = []
    tokens: list[int] = []
    for act in trace:
        clock.advance(act.pause / 1000)
        if act.kind in ("take", "again"):
            hold = limiter.hold("db", act.cost)
            fits = sum(cost for _, _, cost in inside) + act.cost <= amount
            with contextlib.suppress(LimitExceeded):
                permit = hold.__enter__()
                inside.append((hold, permit, act.cost))
                tokens.append(permit.token)
                assert fits
                continue
            assert not fits
        elif inside:
            hold, permit, cost = inside.pop(act.which % len(inside))
            if act.kind == "stale":
                assert permit.release() == (cost > 0)
                assert not permit.release()
            hold.__exit__(None, None, None)
            assert not permit.release()
        held = sum(cost for _, _, cost in inside)
        assert limiter.peek("db").remaining == amount - held
    assert tokens == sorted(set(tokens))
    for hold, _, _ in inside:
        hold.__exit__(None, None, None)
    assert limiter.peek("db").remaining == amount
    assert limiter.peek("db").reset_after == 0
