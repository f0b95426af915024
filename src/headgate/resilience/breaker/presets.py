"""Presets: the settings that other breakers have, with their own defaults and comparisons."""

from __future__ import annotations

from typing import Any

from .settings import Settings

__all__ = [
    "consecutive",
    "hystrix",
    "resilience4j",
    "sentinel_error_count",
    "sentinel_error_ratio",
    "sentinel_slow_ratio",
]


def resilience4j(**changes: Any) -> Settings:
    """Resilience4j's defaults: half of the last 100 calls, all of them slower than a minute.

    As there, probes are judged when as many have ended as the `minimum` says, if that is less.
    """
    defaults: dict[str, Any] = {
        "failure_ratio": 0.5, "slow_ratio": 1.0, "slow_after": 60.0, "window": 100,
        "minimum": 100, "wait": 60.0, "probes": 10, "judge_early": True, "automatic": False,
    }  # fmt: skip
    return Settings(**(defaults | changes))


def sentinel_slow_ratio(
    max_rt: float, *, wait: float, ratio: float = 1.0, minimum: int = 5, interval: float = 1.0,
    **changes: Any,
) -> Settings:  # fmt: skip
    """Sentinel's slow ratio: more than `ratio` of an interval's calls took more than `max_rt` s."""
    return _sentinel(wait, minimum, interval, changes, failure_ratio=None, slow_ratio=ratio,
                     slow_after=max_rt)  # fmt: skip


def sentinel_error_ratio(
    ratio: float, *, wait: float, minimum: int = 5, interval: float = 1.0, **changes: Any
) -> Settings:
    """Sentinel's error ratio: more than `ratio` of an interval's calls failed.

    As there, a ratio of 1 is never passed, so it never trips.
    """
    return _sentinel(wait, minimum, interval, changes, failure_ratio=ratio)


def sentinel_error_count(
    count: int, *, wait: float, minimum: int = 5, interval: float = 1.0, **changes: Any
) -> Settings:
    """Sentinel's error count: more than `count` calls of an interval failed."""
    return _sentinel(wait, minimum, interval, changes, failure_ratio=None, failure_count=count)


def _sentinel(
    wait: float, minimum: int, interval: float, changes: dict[str, Any], **strategy: Any
) -> Settings:
    # One interval that begins anew, one probe, thresholds that must be passed.
    common: dict[str, Any] = {
        "window_seconds": interval, "cells": 1, "minimum": minimum, "wait": wait, "probes": 1,
        "above": True, "at_wait": True, "automatic": False,
    }  # fmt: skip
    return Settings(**(common | strategy | changes))


def hystrix(**changes: Any) -> Settings:
    """Hystrix's defaults: half of at least 20 calls in 10 s, 5 s open, one probe."""
    defaults: dict[str, Any] = {
        "failure_ratio": 0.5, "window_seconds": 10.0, "cells": 10, "minimum": 20, "wait": 5.0,
        "probes": 1, "automatic": False,
    }  # fmt: skip
    return Settings(**(defaults | changes))


def consecutive(count: int = 5, /, *, wait: float = 60.0, **changes: Any) -> Settings:
    """So many failures in a row, as pybreaker, circuitbreaker and purgatory count; one probe.

    With more `probes`, all of them have to go well: the first that fails opens it again.
    """
    defaults: dict[str, Any] = {
        "failure_ratio": 1.0, "window": count, "minimum": count, "wait": wait, "probes": 1,
        "probe_failures": 1, "at_wait": True,
    }  # fmt: skip
    return Settings(**(defaults | changes))
