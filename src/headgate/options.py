"""Options: which belong to which algorithm, what they may be, and how fine time can be."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .errors import BadOption

if TYPE_CHECKING:
    from .limit import Limit

__all__ = ["ALGORITHMS", "CEILING", "check", "chosen", "label", "tick_of", "whole"]

CEILING = 2**53
"""Every number a decision computes stays below this, so C and Lua agree with Python."""

ALGORITHMS = (
    "sliding-window",
    "fixed-window",
    "sliding-log",
    "leaky-bucket",
    "token-bucket",
    "gcra",
    "even",
    "warm-up",
    "concurrency",
)

# An option belongs to the algorithms listed and, where one is given first, implies it.
_OPTIONS: dict[str, tuple[str, ...]] = {
    "burst": ("token-bucket", "gcra", "leaky-bucket"),
    "initial": ("token-bucket",),
    "refill": ("token-bucket",),
    "debt": ("token-bucket",),
    "cells": ("sliding-window",),
    "queue": ("leaky-bucket",),
    "delay": ("leaky-bucket",),
    "nodelay": ("leaky-bucket",),
    "tz": ("fixed-window",),
    "anchor": ("fixed-window",),
    "first_hit": ("fixed-window",),
    "calendar": ("fixed-window",),
    "warm_up": ("warm-up",),
    "cold": ("warm-up",),
}
_WORDS = {"first_hit": "first-hit", "warm_up": "warm-up", "calendar": "month or year"}


def chosen(algorithm: str | None, options: list[str]) -> str:
    """The algorithm that was named, or that the options imply."""
    if algorithm is None:
        implied = [_OPTIONS[option] for option in options]
        algorithm = implied[0][0] if implied else "sliding-window"
        for owners in implied:  # `burst 5 queue 2` means the one algorithm that knows both
            if algorithm not in owners:
                algorithm = owners[0]
    if algorithm not in ALGORITHMS:
        known = ", ".join(ALGORITHMS)
        raise BadOption("algorithm", f"unknown algorithm {algorithm!r}; known are {known}")
    for option in options:
        if algorithm not in _OPTIONS[option]:
            those = " or ".join(_OPTIONS[option])
            word = _WORDS.get(option, option)
            raise BadOption(option, f"{word} belongs to {those}, not to {algorithm}")
    if algorithm == "warm-up" and "warm_up" not in options:
        raise BadOption("cold", "warm-up needs a time, such as 'warm-up 10s'")
    return algorithm


def check(limit: Limit) -> None:
    """Refuse options that contradict each other."""
    capacity = limit.capacity
    if limit.initial is not None and limit.initial > capacity:
        raise BadOption(
            "initial", f"initial {limit.initial} is more than the bucket holds ({capacity})"
        )
    if limit.burst is not None and limit.queue is not None:
        raise BadOption(
            "queue", "burst and queue exclude each other: queue 5 is burst 5 with delay"
        )
    if (limit.delay or limit.nodelay) and limit.queue is None:
        option = "delay" if limit.delay else "nodelay"
        raise BadOption(option, "delay and nodelay say how a queue passes: add queue N")
    if limit.queue is not None and limit.delay > limit.queue:
        raise BadOption(
            "delay", f"delay {limit.delay} is more than the queue holds ({limit.queue})"
        )
    for option in ("soft", "elastic"):
        if getattr(limit, option) > 10_000:
            raise BadOption(option, f"{option} is a percentage up to 10000")
    if limit.unit not in ("", "B"):
        raise BadOption("unit", f"a unit is '' or 'B' (bytes), not {limit.unit!r}")


def tick_of(limit: Limit) -> int:
    """The finest tick that keeps every product of this limit below the ceiling."""
    most = limit.raised(max(limit.amount, limit.capacity), 1000)
    if most >= CEILING:
        raise BadOption("amount", f"a limit admits less than 2**53, not {most}")
    for tick in (1, 1_000, 1_000_000):
        if any(span % tick for span in (limit.window, limit.refill, limit.warm_up)):
            break  # a coarser tick would round the window
        if limit.anchor is not None and limit.anchor % tick:
            break
        window = limit.window // tick
        if 2 * most * window >= CEILING:
            continue
        if limit.cells is not None:
            if limit.cells > window:
                raise BadOption(
                    "cells", f"{limit.cells} cells do not fit into {window} ticks of time"
                )
            if limit.cells * window >= CEILING:
                continue
        if limit.warm_up:
            # Both scales of warm_up.py: a permit's and the full coldness.
            cold, span = limit.cold, limit.warm_up // tick
            permit = 2 * (1 + cold) * window * most
            if max(permit, span * most * (5 + cold)) >= CEILING:
                continue
        return tick
    raise BadOption("amount", "the limit is too large for its window: 2 * amount * window >= 2**53")


def whole(value: object, option: str, least: int) -> int:
    """A whole number from `least` on, or an error that names the option."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{option} is a whole number, not {type(value).__name__} {value!r}")
    if not least <= value < CEILING:
        raise BadOption(
            option, f"{option} is a whole number from {int(least)} to 2**53 - 1, not {value}"
        )
    return value


def label(name: object) -> str:
    """A name, checked."""
    if not isinstance(name, str):
        raise TypeError(f"a limit's name is a str, not {type(name).__name__}")
    if not name or not name.isprintable() or " " in name:
        raise BadOption("name", f"a name has at least one character and no space, not {name!r}")
    return name
