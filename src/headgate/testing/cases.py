"""Every algorithm step by step, with the numbers worked out by hand.

The clock stands at 1,000,000 s when a case begins: the start of a second, 13:46:40 UTC, and
21:46:40 in Shanghai.
"""

from __future__ import annotations

from math import inf
from typing import NamedTuple

__all__ = ["ALGORITHMS", "PLAIN", "RAISED", "Case", "Step"]


class Step(NamedTuple):
    """A take, `after` so many seconds, and what it must answer."""

    after: float
    cost: int
    allowed: bool
    remaining: int
    retry_after: float
    reset_after: float

    @property
    def numbers(self) -> tuple[bool, int, float, float]:
        return self[2:]


class Case(NamedTuple):
    """A limit and the takes of one key."""

    limit: str
    steps: tuple[Step, ...]


def _case(limit: str, *steps: tuple[float, int, bool, int, float, float]) -> Case:
    return Case(limit, tuple(Step(*step) for step in steps))


ALGORITHMS = (
    _case(
        "2/second fixed-window",
        (0.3, 1, True, 1, 0, 0.7),
        (0.1, 1, True, 0, 0, 0.6),
        (0.7, 1, True, 1, 0, 0.9),
        (0.1, 1, True, 0, 0, 0.8),
        (0.3, 1, False, 0, 0.5, 0.5),
        (0.0, 3, False, 0, inf, 0.5),
    ),
    _case(
        "3/hour fixed-window anchor 1970-01-12T13:46:50Z",
        (0.0, 1, False, 0, 10, 0),
        (10.0, 1, True, 2, 0, 3600),
        (0.0, 2, True, 0, 0, 3600),
        (600.0, 1, False, 0, 3000, 3000),
    ),
    _case(
        "1/30min fixed-window first-hit",
        (0.0, 1, True, 0, 0, 1800),
        (10.0, 1, False, 0, 1790, 1790),
        (1790.0, 1, True, 0, 0, 1800),
    ),
    _case(
        "2/day fixed-window tz Asia/Shanghai",
        (0.0, 1, True, 1, 0, 8000),
        (0.0, 1, True, 0, 0, 8000),
        (0.0, 1, False, 0, 8000, 8000),
        (8000.0, 1, True, 1, 0, 86400),
    ),
    _case(
        "4/second",
        (0.0, 4, True, 0, 0, 2),
        (0.5, 1, False, 0, 0.75, 1.5),
        (0.75, 1, True, 0, 0, 1.75),
        (0.25, 1, True, 0, 0, 1.5),
    ),
    _case(
        "4/second cells 4",
        (0.99, 4, True, 0, 0, 0.76),
        (0.0, 1, False, 0, 0.76, 0.76),
        (0.76, 1, True, 3, 0, 1),
        (0.1, 4, False, 3, 0.9, 0.9),
    ),
    _case(
        "2/second sliding-log",
        (0.3, 1, True, 1, 0, 1),
        (0.1, 1, True, 0, 0, 1),
        (0.7, 1, False, 0, 0.2, 0.3),
        (0.1, 1, False, 0, 0.1, 0.2),
        (0.3, 1, True, 1, 0, 1),
        (0.0, 3, False, 1, inf, 1),
    ),
    _case(
        "10/second token-bucket burst 3",
        (0.0, 2, True, 1, 0, 0.2),
        (0.0, 2, False, 1, 0.1, 0.2),
        (0.0, 1, True, 0, 0, 0.3),
        (0.0, 1, False, 0, 0.1, 0.3),
        (0.1, 4, False, 1, inf, 0.2),
        (0.1, 1, True, 1, 0, 0.2),
        (0.7, 3, True, 0, 0, 0.3),
    ),
    _case(
        "10/second token-bucket burst 3 refill 100ms",
        (0.05, 3, True, 0, 0, 0.25),
        (0.0, 1, False, 0, 0.05, 0.25),
        (0.05, 1, True, 0, 0, 0.3),
    ),
    _case(
        "2/second token-bucket initial 0",
        (0.0, 1, False, 0, 0.5, 1),
        (0.4, 1, False, 0, 0.1, 0.6),
        (0.1, 1, True, 0, 0, 1),
    ),
    _case(
        "1/second token-bucket burst 5 debt",
        (0.0, 10, True, 0, 0, 10),
        (0.0, 1, False, 0, 5, 10),
        (5.0, 1, True, 0, 0, 6),
    ),
    _case(
        "1/second gcra burst 5",
        (0.0, 6, False, 5, inf, 0),
        (0.0, 1, True, 4, 0, 1),
        (0.0, 1, True, 3, 0, 2),
        (0.0, 1, True, 2, 0, 3),
        (0.0, 1, True, 1, 0, 4),
        (0.0, 1, True, 0, 0, 5),
        (0.0, 1, False, 0, 1, 5),
        (3.0, 1, True, 2, 0, 3),
        (0.1, 1, True, 1, 0, 3.9),
    ),
    _case(
        "2/second leaky-bucket burst 1",
        (0.0, 1, True, 1, 0, 0.5),
        (0.0, 1, True, 0, 0, 1),
        (0.0, 1, False, 0, 0.5, 1),
        (0.5, 1, True, 0, 0, 1),
    ),
    _case(
        "1/second leaky-bucket queue 5",
        (0.0, 1, True, 0, 0, 1),
        (0.0, 1, False, 0, 1, 1),
        (1.0, 1, True, 0, 0, 1),
    ),
    _case(
        "1/second leaky-bucket queue 5 delay 2",
        (0.0, 1, True, 2, 0, 1),
        (0.0, 1, True, 1, 0, 2),
        (0.0, 1, True, 0, 0, 3),
        (0.0, 1, False, 0, 1, 3),
    ),
    _case(
        "2/second even",
        (0.0, 1, True, 0, 0, 0.5),
        (0.0, 1, False, 0, 0.5, 0.5),
        (0.5, 2, True, 0, 0, 1),
        (0.5, 1, False, 0, 0.5, 0.5),
    ),
    _case(
        "2/second warm-up 4s cold 3",
        (0.0, 1, True, 0, 0, 1.875),
        (0.0, 1, False, 0, 1.375, 1.875),
        (1.375, 1, True, 0, 0, 2.125),
        (1.125, 1, True, 0, 0, 2.375),
    ),
)

PLAIN = tuple(case for case in ALGORITHMS if case.steps[0].allowed or case.steps[0].cost > 1)
"""The cases in which a key's first call of cost 1 passes."""

# A limit, the one that takes its place, and what is left after 4 were used of the first.
RAISED = (
    ("10/minute fixed-window", "20/minute fixed-window", 16),
    ("10/minute fixed-window", "20/hour fixed-window", 16),
    ("10/minute fixed-window", "5/minute fixed-window", 1),
    ("10/minute", "20/minute", 16),
    ("10/minute", "20/hour", 16),
    ("10/minute cells 6", "20/minute cells 6", 16),
    ("10/minute cells 6", "20/minute cells 4", 16),
    ("10/minute sliding-log", "20/hour sliding-log", 16),
    ("10/minute token-bucket", "20/minute token-bucket", 16),
    ("10/minute token-bucket", "20/hour token-bucket", 16),
    ("10/minute token-bucket", "3/minute token-bucket", 0),
    ("10/minute gcra", "20/minute gcra", 16),
    ("10/minute gcra", "1000000/day gcra", 999_996),
    ("10/minute leaky-bucket burst 9", "10/minute leaky-bucket burst 19", 16),
    ("10/minute gcra", "20/minute token-bucket", 16),
    ("10/minute token-bucket", "20/minute sliding-log", 16),
    ("10/minute sliding-log", "20/minute", 16),
)
