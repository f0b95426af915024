"""Parts: breakers, bulkheads and the like, made as the policies of a rules file describe them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..resilience.adaptive import AIMD, AdaptiveLimiter, Gradient2, Vegas
from ..resilience.breaker import Breaker, Settings
from ..resilience.breaker import presets as known
from ..resilience.bulkhead import Bulkhead
from ..resilience.collapse import Collapse
from ..resilience.last_good import LastGood
from ..resilience.pools import Pool
from ..resilience.retry import Retry
from ..resilience.system import SystemGuard
from ..rules.model import Match
from ..verdict import SHED, Refused

if TYPE_CHECKING:
    from ..clock import Clock
    from ..resilience.borrowed import Outcome
    from ..resilience.notices import Listener
    from ..rules.model import (
        AdaptiveRule,
        BreakerRule,
        BulkheadRule,
        LastGoodRule,
        PolicyRule,
        RetryRule,
        SystemRule,
    )

__all__ = [
    "CallRetry", "adaptive_of", "breaker_of", "bulkhead_of", "collapse_of", "last_good_of",
    "pool_of", "retry_of", "settings_of", "state_of", "system_of",
]  # fmt: skip

ESTIMATORS: dict[str, Any] = {"gradient2": Gradient2, "vegas": Vegas, "aimd": AIMD}
WORDS = {"loop_lag": "lag", "response_time": "response"}


def settings_of(rule: BreakerRule) -> Settings:
    """The settings of a breaker."""
    said: dict[str, Any] = {
        "failure_ratio": rule.failure_ratio, "failure_count": rule.failure_count,
        "slow_ratio": rule.slow_ratio, "slow_after": rule.slow_after,
        "window": rule.window_calls, "window_seconds": rule.window_seconds,
        "minimum": rule.minimum, "wait": rule.wait, "probes": rule.probes, "ramp": rule.ramp,
        "probe_lease": rule.probe_lease, "probe_failures": rule.probe_failures,
        "half_open_for": rule.half_open_for, "ramp_from": rule.ramp_from,
    }  # fmt: skip
    said = {name: value for name, value in said.items() if value is not None}
    preset = rule.preset
    if preset.startswith("sentinel"):
        if "window_seconds" in said:
            said["interval"] = said.pop("window_seconds")
        if preset == "sentinel-slow-ratio":
            ratio = said.pop("slow_ratio", 1.0)
            return known.sentinel_slow_ratio(said.pop("slow_after"), ratio=ratio, **said)
        if preset == "sentinel-error-ratio":
            return known.sentinel_error_ratio(said.pop("failure_ratio"), **said)
        return known.sentinel_error_count(said.pop("failure_count"), **said)
    if preset == "consecutive":
        return known.consecutive(said.pop("failure_count", 5), **said)
    if "window" in said:
        said |= {"window_seconds": None, "cells": None}
    if preset == "hystrix":
        return known.hystrix(**said)
    return known.resilience4j(**said) if preset == "resilience4j" else Settings(**said)


def breaker_of(
    name: str, rule: BreakerRule, clock: Clock | None, listeners: list[Listener]
) -> Breaker:
    """A breaker, closed."""
    return Breaker(name, settings_of(rule), clock=clock, listeners=listeners)


def bulkhead_of(name: str, rule: BulkheadRule, clock: Clock | None) -> Bulkhead:
    """A bulkhead, empty."""
    return Bulkhead(rule.limit, timeout=rule.wait, queue=rule.queue, name=name, clock=clock)


def pool_of(name: str, rule: BulkheadRule, clock: Clock | None) -> Pool:
    """The threads of a bulkhead.

    Who has a place has a thread, or will as soon as the one before has left it: so nobody is
    refused here, and the queue is for no more than that.
    """
    return Pool(rule.limit, queue=rule.limit, name=name, clock=clock)


def adaptive_of(
    name: str, rule: AdaptiveRule, clock: Clock | None, listeners: list[Listener]
) -> AdaptiveLimiter:
    """An adaptive limit at its beginning."""
    said = {"least": rule.least, "most": rule.most}
    bounds = {word: value for word, value in said.items() if value is not None}
    first = rule.initial
    if first is None:  # the usual 20, as far as the bounds let it
        first = min(max(20, rule.least or 1), rule.most or max(20, rule.least or 1))
    if "most" not in bounds and first > 200:
        bounds["most"] = first
    estimator = ESTIMATORS[rule.estimator](first, **bounds)
    parted = rule.partitions
    return AdaptiveLimiter(
        estimator, name=name, priorities=dict(rule.shed) or None,
        partitions=None if parted is None else dict(parted.shares),
        lend=parted is None or parted.lend, queue=rule.queue, timeout=rule.wait,
        listeners=listeners, clock=clock,
    )  # fmt: skip


def system_of(rule: SystemRule, clock: Clock | None, listeners: list[Listener]) -> SystemGuard:
    """What looks at this machine."""
    bounds: dict[str, Any] = {WORDS.get(word, word): bound for word, bound in rule.bounds}
    return SystemGuard(
        **bounds, name=rule.name, priorities=dict(rule.shed) or None, every=rule.every,
        listeners=listeners, clock=clock,
    )  # fmt: skip


class CallRetry(Retry):
    """Tries again what was refused by a limit, but nothing that a policy refused."""

    def wants(self, outcome: Outcome, args: Any, kwargs: Any) -> bool:
        """Whether an outcome is one to try again."""
        error = outcome.error
        if isinstance(error, Refused) and error.verdict._place == SHED:
            return False  # trying again at once is what policies are there to prevent
        return super().wants(outcome, args, kwargs)


def retry_of(
    name: str, rule: RetryRule, clock: Clock | None, listeners: list[Listener]
) -> CallRetry:
    """What makes a call again."""
    return CallRetry(
        rule.attempts, pause=rule.pause, longest=rule.longest, budget=rule.budget, safe=rule.safe,
        name=name, clock=clock, listeners=listeners,
    )  # fmt: skip


def last_good_of(
    name: str, rule: LastGoodRule, clock: Clock | None, listeners: list[Listener]
) -> LastGood:
    """What keeps good results, with none yet."""
    return LastGood(rule.age, size=rule.size, name=name, clock=clock, listeners=listeners)


def collapse_of(name: str, clock: Clock | None, listeners: list[Listener]) -> Collapse:
    """What makes one call of many."""
    return Collapse(name=name, clock=clock, listeners=listeners)


def state_of(rule: PolicyRule) -> PolicyRule:
    """As much of a policy as its live state depends on."""
    breaker = None if rule.breaker is None else replace(rule.breaker, switch="", fleet=None)
    return replace(rule, match=Match(), otherwise=None, fallback=None, status=503,
                   log_level="info", shadow=False, breaker=breaker)  # fmt: skip
