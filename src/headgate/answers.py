"""Answers: what a decision means for somebody who waits, and how a take is undone."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

from .decision import INFINITY, Ask, Decision

__all__ = [
    "FOREVER", "by_token", "forecast", "given_back", "next_try", "refused_for_good", "too_large",
    "turned_away",
]  # fmt: skip

FOREVER = 1 << 62


def given_back(asks: Sequence[Ask], decision: Decision) -> list[Ask]:
    """The asks that undo a take."""
    back = []
    for ask, part in zip(asks, decision.parts, strict=True):
        if ask.limit.algorithm == "concurrency":
            back.append(ask._replace(op="release"))
        elif ask.token and ask.ttl:  # a reservation, which must not come back a second time
            back.append(ask._replace(op="settle", cost=0))
        else:
            at = part.at + round(part.delay * 1_000_000)
            back.append(ask._replace(op="refund", cost=part.granted, at=at))
    return back


def by_token(asks: Sequence[Ask]) -> list[Ask]:
    """The asks that undo a take of which nobody knows whether it came about."""
    return [
        ask._replace(op="release")
        if ask.limit.algorithm == "concurrency"
        else ask._replace(op="settle", cost=0)
        for ask in asks
        if ask.token and (ask.ttl or ask.limit.algorithm == "concurrency")
    ]


def too_large(decision: Decision) -> bool:
    """Whether a refusing limit could not hold the cost even when it is unused."""
    return any(
        part.limit.raised(part.limit.capacity, 1000) < part.cost
        for part in decision.parts
        if not part.allowed and part.retry_after == INFINITY
    )


def turned_away(decision: Decision) -> bool:
    """Whether a queue refuses: who finds it full, or too slow, is not to wait in front of it."""
    refusing = [part.limit for part in decision.parts if not part.allowed]
    return bool(refusing) and all(limit.queues for limit in refusing)


def refused_for_good(decision: Decision) -> bool:
    """Whether there is nothing to wait for."""
    return not decision.allowed and (too_large(decision) or turned_away(decision))


def next_try(
    decision: Decision, now: int, deadline: int, pause: Callable[[], int] | None
) -> int | None:
    """When somebody refused asks again: at an instant, FOREVER if only when told, or never.

    A permit may come back at any time. Where nobody would tell, `pause` says how long to wait
    before looking.
    """
    if refused_for_good(decision):
        return None
    latest = soonest = now + 1
    for part in decision.parts:
        if part.allowed:
            continue
        wait = part.retry_after
        again = FOREVER if wait == INFINITY else now + round(wait * 1_000_000)
        if again > deadline and part.limit.algorithm != "concurrency":
            return None  # time alone gives this back, and too late
        latest = max(latest, again)
        if part.limit.algorithm != "concurrency":
            soonest = max(soonest, again)
    if pause is not None and soonest < latest:
        return min(latest, max(soonest, now + pause()))
    # Whoever gives a permit back will tell.
    return latest if latest <= deadline else FOREVER


def forecast(
    asks: Sequence[Ask], decision: Decision, since: int, ahead: int, more: Sequence[int] = ()
) -> int:
    """Not before how many microseconds the asks can pass behind `ahead` of others.

    As far as can be told from a decision about the same limits, made `since` microseconds ago.
    `more` is for each ask what else is ahead of it alone.
    """
    if len(asks) != len(decision.parts):
        return 0
    return max(
        _forecast(ask.cost, part, since, ahead + extra)
        for ask, part, extra in zip(
            asks, decision.parts, more or itertools.repeat(0, len(asks)), strict=True
        )
    )


def _forecast(cost: int, part: Decision, since: int, ahead: int) -> int:
    rule: Any = part._source
    tick: int = 1_000_000 // rule.per_second
    if getattr(rule, "words", False):
        now = part._now + since // tick
        ticks: int = rule.forecast(*part._outcome[1:], now, ahead, cost)
        return ticks * tick
    limit = part.limit
    if limit.algorithm not in ("sliding-log", "sliding-window"):
        return 0  # nobody knows when the holder of a permit is done
    # A whole quota later is a window later, or nearly so where it is counted in cells.
    later, rest = divmod(max(1, ahead + cost) - 1, limit.raised(limit.amount, 1000))
    first = 0
    if not part.allowed and rest + 1 >= part.cost and part.retry_after != INFINITY:
        first = max(0, round(part.retry_after * 1_000_000) - since)
    blur = limit.window // (limit.cells or 1) if limit.algorithm == "sliding-window" else 0
    return max(first, first + later * limit.window - blur)
