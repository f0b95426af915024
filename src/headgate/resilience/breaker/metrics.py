"""Metrics: a breaker's numbers at one moment."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Metrics"]


class Metrics(NamedTuple):
    """A breaker's numbers; the first ones since it was made, those of the window as it is now.

    permitted = succeeded + failed + ignored + in_flight, exactly so when no call is on its way.
    """

    name: str
    state: str
    since: float
    """When the state began, in seconds since the epoch."""
    permitted: int
    succeeded: int
    failed: int
    slow: int
    """How many of those that succeeded or failed were slow."""
    ignored: int
    refused: int
    in_flight: int
    opened: int
    """How often it has opened."""
    calls: int
    """Calls in the window; while half open, the probes that have ended."""
    failures: int
    slow_calls: int
    failure_ratio: float | None
    """None before there are enough calls to judge by."""
    slow_ratio: float | None
    retry_after: float | None
    """Seconds until a call might pass; 0 if it may now, None if nobody can tell."""
