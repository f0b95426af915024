"""Standing: what the policies of a gate are at now, for people, JSON and metrics."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .guards import Guards
    from .kept import Kept

__all__ = ["standing_of"]


def standing_of(guards: Guards) -> dict[str, dict[str, Any]]:
    """By policy: the states of its breakers (one for each key), calls inside, limits."""
    found: dict[str, dict[str, Any]] = {
        rule.name: {"keys": 0, "in_flight": 0} for rule in guards.rules
    }
    parted = {rule.name for rule in guards.rules if rule.adaptive and rule.adaptive.partitions}
    for name, _, live in guards.all():
        told = found[name]
        told["keys"] += 1
        if live.breaker is not None:
            told.setdefault("states", Counter())[live.breaker.state] += 1
        if live.bulkhead is not None:
            told["bulkhead_in_flight"] = told.get("bulkhead_in_flight", 0) + live.bulkhead.in_flight
            told["bulkhead_waiting"] = told.get("bulkhead_waiting", 0) + live.bulkhead.waiting
        if live.adaptive is not None:
            told["limit"] = told.get("limit", 0) + live.adaptive.limit
            told["adaptive_in_flight"] = told.get("adaptive_in_flight", 0) + live.adaptive.in_flight
            told["adaptive_waiting"] = told.get("adaptive_waiting", 0) + live.adaptive.waiting
            if name in parted:
                for part, held in live.adaptive.snapshot()["partitions"].items():
                    told.setdefault("partitions", {}).setdefault(part, Counter()).update(held)
    for rule, kept in zip(guards.rules, guards.kept, strict=True):
        found[rule.name].update(_around(kept))
    for told in found.values():
        if "states" in told:
            told["states"] = dict(told["states"])
        if "partitions" in told:
            told["partitions"] = {part: dict(held) for part, held in told["partitions"].items()}
        inside = [told.pop(f"{part}_in_flight", 0) for part in ("bulkhead", "adaptive")]
        told["in_flight"] = max(inside)
    if guards.system is not None:
        seen = guards.system.snapshot()
        words = ("room", "pressure", "in_flight", "cpu", "load", "memory", "lag", "response")
        found["system"] = {word: seen[word] for word in words}
    return found


def _around(kept: Kept) -> dict[str, Any]:
    """What is no part of a single key's."""
    found: dict[str, Any] = {}
    if kept.pool is not None:
        found["abandoned"] = kept.pool.abandoned
    if kept.collapse is not None:
        found["collapse_waiting"] = kept.collapse.waiting
    if kept.last_good is not None:
        found["last_good"] = len(kept.last_good)
    if kept.fleet is not None:
        standing = kept.fleet.fleet.standing
        found["fleet"] = None if standing is None else standing._asdict()
    return found
