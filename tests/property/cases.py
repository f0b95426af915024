"""Limits of every kind, each with its model."""

from __future__ import annotations

from hypothesis import strategies as st

from models.bucket import Bucket, DebtBucket
from models.even import Even
from models.fixed_window import FirstHitWindow, FixedWindow
from models.leaky import Meter
from models.sliding import Cells, Counter, Log

from .support import Case, rates

__all__ = [
    "buckets", "cells", "counters", "debts", "evens", "first_hits", "fixed_windows", "gcras",
    "logs", "meters", "plain", "starting_low", "stepped",
]  # fmt: skip

bursts = st.one_of(st.none(), st.integers(1, 15), st.sampled_from([1000, 10**6]))


@st.composite
def fixed_windows(draw: st.DrawFn) -> Case:
    amount, window = draw(rates)
    return Case(
        f"{amount}/{window}us fixed-window",
        lambda tick: FixedWindow(amount, window // tick),
        amount,
        window,
    )


@st.composite
def first_hits(draw: st.DrawFn) -> Case:
    amount, window = draw(rates)
    return Case(
        f"{amount}/{window}us first-hit",
        lambda tick: FirstHitWindow(amount, window // tick),
        amount,
        window,
    )


@st.composite
def counters(draw: st.DrawFn) -> Case:
    amount, window = draw(rates)
    return Case(
        f"{amount}/{window}us", lambda tick: Counter(amount, window // tick), amount, window
    )


@st.composite
def cells(draw: st.DrawFn) -> Case:
    amount, window = draw(rates)
    n = draw(st.integers(1, min(10, window)))
    return Case(
        f"{amount}/{window}us cells {n}",
        lambda tick: Cells(amount, window // tick, n),
        amount,
        window,
    )


@st.composite
def logs(draw: st.DrawFn) -> Case:
    amount, window = draw(rates)
    return Case(
        f"{amount}/{window}us sliding-log", lambda tick: Log(amount, window // tick), amount, window
    )


def _bucket(draw: st.DrawFn, algorithm: str) -> Case:
    amount, window = draw(rates)
    burst = draw(bursts)
    capacity = amount if burst is None else burst
    return Case(
        f"{amount}/{window}us {algorithm}" + ("" if burst is None else f" burst {burst}"),
        lambda tick: Bucket(amount, window // tick, capacity),
        capacity,
        window,
    )


@st.composite
def buckets(draw: st.DrawFn) -> Case:
    return _bucket(draw, "token-bucket")


@st.composite
def gcras(draw: st.DrawFn) -> Case:
    return _bucket(draw, "gcra")


@st.composite
def starting_low(draw: st.DrawFn) -> Case:
    """Buckets that are first seen with less than they hold."""
    amount, window = draw(rates)
    capacity = draw(st.integers(1, 15))
    initial = draw(st.integers(0, capacity))
    return Case(
        f"{amount}/{window}us burst {capacity} initial {initial}",
        lambda tick: Bucket(amount, window // tick, capacity, initial),
        capacity,
        window,
    )


@st.composite
def stepped(draw: st.DrawFn) -> Case:
    """Buckets filled in batches."""
    amount, window = draw(st.tuples(st.integers(1, 12), st.sampled_from([7_000, 1_000_000])))
    step = draw(st.sampled_from([1_000, 7_000, 100_000, 333_333, 1_500_000]))
    capacity = draw(st.integers(1, 15))
    initial = draw(st.one_of(st.none(), st.integers(0, capacity)))
    return Case(
        f"{amount}/{window}us burst {capacity} refill {step}us"
        + ("" if initial is None else f" initial {initial}"),
        lambda tick: Bucket(amount, window // tick, capacity, initial, step // tick),
        capacity,
        window,
    )


@st.composite
def debts(draw: st.DrawFn) -> Case:
    amount, window = draw(rates)
    capacity = draw(st.integers(1, 15))
    return Case(
        f"{amount}/{window}us debt burst {capacity}",
        lambda tick: DebtBucket(amount, window // tick, capacity),
        capacity,
        window,
    )


@st.composite
def meters(draw: st.DrawFn) -> Case:
    amount, window = draw(rates)
    burst = draw(st.integers(0, 15))
    text = draw(st.sampled_from(["burst {}", "queue {} nodelay"])).format(burst)
    return Case(
        f"{amount}/{window}us leaky-bucket {text}",
        lambda tick: Meter(amount, window // tick, burst),
        burst + 1,
        window,
    )


@st.composite
def evens(draw: st.DrawFn) -> Case:
    amount, window = draw(rates)
    return Case(
        f"{amount}/{window}us even", lambda tick: Even(amount, window // tick), amount, window
    )


plain = st.one_of(
    fixed_windows(), first_hits(), counters(), cells(), logs(), buckets(), gcras(), meters(),
    evens(), debts(),
)  # fmt: skip
"""Every algorithm that decides at once and forgets its key in time."""
