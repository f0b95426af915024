"""The kinds of writes that a process may be killed in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from headgate import Ask, Limit, Limiter, ManualClock
from headgate.decision import Decision
from headgate.stores.zone import ZoneStore

__all__ = ["KINDS", "Kind", "Scene"]

START = 1_700_000_000.0
ETERNAL = "fixed-window anchor 2001-01-01T00:00Z"
"""With a window of decades: what the real clock says does not show in a key's state."""


class Scene:
    """One process with a store and a limiter on a zone of one kind."""

    def __init__(self, kind: Kind, path: str) -> None:
        self.clock = ManualClock(start=START)
        clock = None if kind.timed else self.clock
        self.store = ZoneStore(path, size=1 << 16, clock=clock, keys=kind.keys, patience=60.0)
        # All processes hold permits in the name of one that is always there: the same words.
        zone: Any = self.store._zone
        zone.holders._me = 1
        self.limiter = Limiter(*kind.limits, store=self.store)
        self.limits = [Limit.parse(text) for text in kind.limits]

    def ask(self, op: str, key: str, **more: Any) -> tuple[bool, ...]:
        """Ask about a key under all limits at once."""
        asks = [Ask(op, limit, key, **more) for limit in self.limits]
        return tuple(decision.allowed for decision in self.store.decide(asks))

    def close(self) -> None:
        """Let go of the zone."""
        self.store.close()


Act = Callable[[Scene], Any]


def nothing(scene: Scene) -> None:
    """Nothing."""


@dataclass(frozen=True)
class Kind:
    """A write: what there is before it, what it does, and at which keys to look."""

    limits: tuple[str, ...]
    act: Act
    fill: Act = nothing
    """Once, when the zone is made."""
    ready: Act = nothing
    """In the process that will die, so that what it remembers is as in one that has run long."""
    pause: float = 0.0
    """Seconds between that and the write."""
    partly: tuple[Act, ...] = field(default=())
    """What may have been done of several decisions, where the write is made of several."""
    moving: bool = False
    """Whether others may be forgotten, and which ones depends on where idle keys were sought."""
    keys: bool = False
    timed: bool = False
    watched: tuple[str, ...] = ("a", "b", "c", "new")


def seen(decision: Decision) -> tuple[object, ...]:
    """A decision in numbers."""
    return (decision.allowed, decision.remaining, decision.retry_after, decision.reset_after)


def hit(key: str, cost: int = 1) -> Act:
    return lambda scene: seen(scene.limiter.hit(key, cost))


def used(*keys: str, times: int = 1) -> Act:
    def act(scene: Scene) -> None:
        for key in keys:
            for _ in range(times):
                scene.limiter.hit(key)

    return act


def spread(key: str, times: int) -> Act:
    """Hits at different instants, which end where time begins."""

    def act(scene: Scene) -> None:
        scene.clock.turn_back(times / 1000)
        for _ in range(times):
            scene.limiter.hit(key)
            scene.clock.advance(0.001)

    return act


def many(*keys: str) -> Act:
    return lambda scene: [seen(d) for d in scene.limiter.hit_many(keys)]


def asked(op: str, key: str, **more: Any) -> Act:
    return lambda scene: scene.ask(op, key, **more)


def reserve(*tokens: int, cost: int = 4) -> Act:
    def act(scene: Scene) -> None:
        for token in tokens:
            scene.ask("take", "a", cost=cost, token=token, ttl=10_000_000)

    return act


def own(key: str, limit: str | None) -> Act:
    def act(scene: Scene) -> list[str]:
        scene.limiter.set_limit(key, limit)
        return [str(found) for found in scene.limiter.get_limit(key)]

    return act


def reset(scene: Scene) -> None:
    scene.limiter.reset("a")


def full(scene: Scene) -> None:
    """Fill a zone with keys of which each is reset a little later than the one before."""
    number = 0
    while not scene.store.evicted:
        scene.limiter.hit(f"filler {number}")
        scene.clock.advance(0.001)
        number += 1
    scene.clock.turn_back(scene.clock.now() - START)


def full_of_log(scene: Scene) -> None:
    spread("a", 9)(scene)
    full(scene)


def abandoned(scene: Scene) -> None:
    """Permits of a process that is gone."""
    holders = scene.store._zone.holders
    holders._me = (1 << 22) - 1
    scene.ask("take", "a", token=1)
    scene.ask("take", "a", token=2)
    holders._me = 1


def each(limit: str) -> tuple[str, str]:
    return (f"{limit} name first", "500/hour fixed-window name second")


BUCKET = ("10/minute token-bucket",)
LOG = ("100/minute sliding-log",)
CELLS = ("100/minute sliding-window cells 60",)
PERMITS = ("2 concurrent",)
KINDS: dict[str, Kind] = {
    "first": Kind(BUCKET, hit("new")),
    "new": Kind(BUCKET, hit("new"), ready=used("a", "b", "c")),
    "new-kept": Kind(BUCKET, hit("new"), ready=used("a", "b"), keys=True),
    "known-bucket": Kind(BUCKET, hit("a"), ready=used("a", "b"), pause=1.5),
    "known-gcra": Kind(("10/minute gcra",), hit("a", 2), ready=used("a", "b"), pause=1.5),
    "known-window": Kind(("10/minute",), hit("a"), ready=used("a", "b", times=3), pause=61.5),
    "known-fixed": Kind(("10/minute fixed-window",), hit("a"), ready=used("a", "b"), pause=61.5),
    "known-timed": Kind((f"10/10000d {ETERNAL}",), hit("a"), ready=used("a", "b"), timed=True),
    "known-kept": Kind(BUCKET, hit("a"), ready=used("a", "b"), keys=True),
    "queued": Kind(
        ("10/minute leaky-bucket queue 5",),
        asked("take", "a", max_wait=30_000_000),
        ready=used("a", "b"),
    ),
    "refused": Kind(BUCKET, hit("a"), ready=used("a", "b", times=10)),
    "refused-first": Kind(("10/minute token-bucket initial 0",), hit("new"), ready=used("a")),
    "together": Kind(each("10/second token-bucket"), hit("a"), ready=used("a", "b"), pause=0.5),
    "together-new": Kind(each("10/second token-bucket"), hit("new"), ready=used("a", "b")),
    "together-refused": Kind(
        ("10/minute token-bucket", "1/hour fixed-window"), hit("a"), ready=used("a", "b"), pause=5
    ),
    "together-swept": Kind(
        each("10/second token-bucket"), hit("new"), ready=used("a", "b"), pause=7200, moving=True
    ),
    "together-full": Kind(each("10/minute token-bucket"), hit("new"), fill=full, moving=True),
    "together-mixed": Kind(
        (*BUCKET, "5/minute sliding-log name log", "3 concurrent name permits"),
        asked("take", "a", token=7),
        ready=asked("take", "a", token=6),
        pause=2,
    ),
    "many": Kind(
        BUCKET, many("a", "new", "b"), ready=used("a", "b"), pause=1,
        partly=(many("a"), many("a", "new")),
    ),
    "cells": Kind(CELLS, hit("a"), ready=used("a", "b"), pause=2.5),
    "cells-new": Kind(CELLS, hit("new"), ready=used("a")),
    "log": Kind(LOG, hit("a", 2), ready=used("a", "b"), pause=1.5),
    "log-longer": Kind(LOG, hit("a"), fill=spread("a", 9), ready=used("b"), pause=1.5),
    "log-shorter": Kind(LOG, hit("a"), fill=spread("a", 60), ready=used("b"), pause=90),
    "taken": Kind(PERMITS, asked("take", "a", token=7), ready=asked("take", "b", token=3)),
    "released": Kind(
        PERMITS, asked("release", "a", token=7), ready=asked("take", "a", token=7)
    ),
    "renewed": Kind(
        PERMITS, asked("renew", "a", token=7, ttl=60_000_000),
        ready=asked("take", "a", token=7, ttl=30_000_000), pause=1,
    ),
    "taken-from-the-dead": Kind(PERMITS, asked("take", "a", token=7), fill=abandoned),
    "reserved": Kind(BUCKET, reserve(7), ready=reserve(3, cost=2)),
    "settled-lower": Kind(BUCKET, asked("settle", "a", token=7, cost=1), ready=reserve(3, 7)),
    "settled-higher": Kind(
        BUCKET, asked("settle", "a", token=7, cost=9), ready=reserve(3, 7, cost=3)
    ),
    "expired": Kind(BUCKET, hit("b"), ready=reserve(3, 7, cost=2), pause=11, moving=True),
    "own-set": Kind(BUCKET, own("a", "500/hour fixed-window"), ready=used("a", "b")),
    "own-gone": Kind(BUCKET, own("a", None), ready=own("a", "500/hour fixed-window")),
    "own-used": Kind(
        BUCKET, hit("a"), fill=own("a", "500/hour fixed-window"), ready=used("a"), pause=1
    ),
    "full": Kind(BUCKET, hit("new"), fill=full, moving=True),
    "full-log": Kind(
        LOG, hit("a", 3), fill=full_of_log, pause=1, moving=True
    ),
    "swept": Kind(BUCKET, hit("new"), ready=used("a", "b", "c"), pause=3600, moving=True),
    "reset": Kind(BUCKET, reset, ready=lambda scene: (used("a", "b")(scene), reserve(3, 7)(scene))),
    "reset-log": Kind(LOG, reset, fill=spread("a", 40), ready=used("b")),
    "token": Kind(BUCKET, lambda scene: scene.store.token(), ready=used("a")),
}  # fmt: skip
