"""Kinds: the kernels there are, and the numbers that each is given of its rule."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...algorithms.concurrency import Concurrency
from ...algorithms.even import Even
from ...algorithms.fixed_window import CalendarWindow, FirstHitWindow, FixedWindow
from ...algorithms.gcra import Gcra
from ...algorithms.leaky_bucket import LeakyMeter, LeakyQueue
from ...algorithms.sliding_cells import SlidingCells
from ...algorithms.sliding_log import SlidingLog
from ...algorithms.sliding_window import SlidingWindow
from ...algorithms.token_bucket import DebtBucket, TokenBucket
from ...algorithms.warm_up import WarmUp

__all__ = ["CLASSES", "FRESH", "KINDS", "MOST", "NUMBERS", "PARAMETERS", "SPREAD", "kept_ticks"]

MOST = 2**53 - 1
"""The largest number that a script counts to."""
DAY = 86_400_000_000

KINDS = (
    "gcra", "bucket", "debt", "queue", "fixed", "first", "calendar", "sliding", "even", "warm",
    "cells", "log", "permits",
)  # fmt: skip
"""A kind's number is its place here, from 1 on."""
SPREAD = ("cells", "log", "permits")
"""Kinds whose state is more than three words."""
FRESH = ("bucket", "debt")
"""Kinds whose new keys may have something missing."""

CLASSES: dict[type[Any], str] = {
    Gcra: "gcra", TokenBucket: "bucket", LeakyMeter: "bucket", DebtBucket: "debt",
    LeakyQueue: "queue", FixedWindow: "fixed", FirstHitWindow: "first",
    CalendarWindow: "calendar", SlidingWindow: "sliding", Even: "even", WarmUp: "warm",
    SlidingCells: "cells", SlidingLog: "log", Concurrency: "permits",
}  # fmt: skip

_BUCKET = ("capacity", "window", "quota", "step", "first", "keep")
PARAMETERS: dict[str, tuple[str, ...]] = {
    "gcra": ("capacity", "window", "quota"),
    "bucket": _BUCKET,
    "debt": _BUCKET,
    "queue": ("capacity", "window", "quota", "free"),
    "fixed": ("quota", "window", "anchor"),
    "first": ("quota", "window"),
    "calendar": ("quota", "begin", "finish"),
    "sliding": ("quota", "window", "most"),
    "even": ("quota", "window"),
    "warm": ("quota", "window", "cold", "span"),
    "cells": ("quota", "window", "n"),
    "log": ("quota", "window"),
    "permits": ("quota",),
}
"""The names of a kernel's numbers, in the order in which they are sent."""


def kept_ticks(rule: Any) -> int:
    """How long a key is kept beyond its reset."""
    # A full bucket that started low is not as if never used: forgotten, it would be low again,
    # and somebody who comes seldom would never find anything in it.
    return int(DAY // rule.tick + rule.window) if rule.sticky else 0


_SPECIAL: dict[str, Callable[[Any], int]] = {
    "keep": kept_ticks,
    "most": lambda rule: min(int(rule.most), MOST),
    "n": lambda rule: int(rule.cells),
    "span": lambda rule: int(rule.limit.warm_up // rule.tick),
}


def _getter(name: str) -> Callable[[Any], int]:
    return _SPECIAL.get(name) or (lambda rule: int(getattr(rule, name)))


NUMBERS: dict[str, tuple[Callable[[Any], int], ...]] = {
    kind: tuple(_getter(name) for name in names if name not in ("begin", "finish"))
    for kind, names in PARAMETERS.items()
}
"""How each number is read from a rule; a calendar's window depends on the time as well."""
