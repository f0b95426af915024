"""Standing: what the policies of a gate are at now, for people, JSON and metrics."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .guards import Guards

__all__ = ["standing_of"]


def standing_of(guards: Guards) -> dict[str, dict[str, Any]]:
    """By policy: the states of its breakers (one for each key), calls inside, limits."""
    found: dict[str, dict[str, Any]] = {
        rule.name: {"keys": 0, "in_flight": 0} for rule in guards.rules
    }
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
    for told in found.values():
        if "states" in told:
            told["states"] = dict(told["states"])
        inside = [told.pop(f"{part}_in_flight", 0) for part in ("bulkhead", "adaptive")]
        told["in_flight"] = max(inside)
    if guards.system is not None:
        seen = guards.system.snapshot()
        words = ("room", "pressure", "in_flight", "cpu", "load", "memory", "lag", "response")
        found["system"] = {word: seen[word] for word in words}
    return found
