"""Matching among 10,000 rules beside matching among 10, and what 10,000 rules hold in memory."""

from benchmarks.rivals import Rival

WAYS = (
    "path", "path prefix", "path parameter", "path parameter first", "resource", "host",
    "host suffix", "header value", "header name", "entry value", "origin", "path and header",
)  # fmt: skip
"""By what rules differ."""
_ROUNDS, _QUICK = 15, 5


def matching(rival: Rival, make: object, way: str, quick: bool) -> dict[str, float]:
    """Time a match among many rules, in turns with one among few."""
    from benchmarks import rules_matching  # here, so that others' processes do not load rules

    kind = rules_matching.KINDS[way]
    found = rules_matching.measured(kind, _QUICK if quick else _ROUNDS)
    return {
        "ns": found["many_ns"],
        "yardstick_ns": found["few_ns"],
        "held": rules_matching.held(kind),
        "right": True,  # every match was looked at before
    }
