"""Parts of policies as values: what a rules file says of them, checked and never changed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .model import KeyPart

__all__ = [
    "AdaptiveRule", "BreakerRule", "BulkheadRule", "CollapseRule", "FleetRule", "LastGoodRule",
    "PartitionsRule", "RetryRule",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class FleetRule:
    """How the breakers of many instances listen to each other."""

    least: int = 2
    """So many of them must be sick, before all open."""
    share: float = 0.5
    """And this share of those alive."""
    every: float = 1.0
    ttl: float = 5.0
    """Seconds after which an instance that is silent is taken for dead."""
    keep_switch: bool = False
    """What was forced upon all stays so while Redis is lost."""


@dataclass(frozen=True, slots=True)
class BreakerRule:
    """When calls are refused because what they need is sick; None: as the preset has it."""

    preset: str = ""
    failure_ratio: float | None = None
    failure_count: int | None = None
    slow_ratio: float | None = None
    slow_after: float | None = None
    """Seconds from which on a call is slow."""
    window_calls: int | None = None
    window_seconds: float | None = None
    minimum: int | None = None
    wait: float | None = None
    """Seconds it stays open."""
    probes: int | None = None
    ramp: float | None = None
    probe_lease: float | None = None
    """Seconds after which a probe without an end has failed."""
    probe_failures: int | None = None
    """So many failed probes open it again at once."""
    half_open_for: float | None = None
    """Seconds within which the probes are judged, or it opens again."""
    ramp_from: float | None = None
    switch: str = ""
    """A state that it is held in: forced_open, disabled or metrics_only."""
    fleet: FleetRule | None = None


@dataclass(frozen=True, slots=True)
class BulkheadRule:
    """How many calls there may be at once, and who may wait for a place."""

    limit: int
    queue: int | None = None
    wait: float = 0.0
    pool: bool = False
    """Whether plain functions are called in threads of its own."""


@dataclass(frozen=True, slots=True)
class PartitionsRule:
    """Guaranteed shares of an adaptive limit."""

    by: KeyPart
    """What says to which of them a call belongs."""
    shares: tuple[tuple[str, float], ...]
    lend: bool = True


@dataclass(frozen=True, slots=True)
class AdaptiveRule:
    """How many calls at once are right, found out while they run."""

    estimator: str = "gradient2"
    initial: int | None = None
    least: int | None = None
    most: int | None = None
    shed: tuple[tuple[int, float], ...] = ()
    """By priority: which part of the limit it may fill."""
    partitions: PartitionsRule | None = None
    queue: int = 0
    wait: float = 0.0


@dataclass(frozen=True, slots=True)
class RetryRule:
    """How often a call that failed is made again; only where the gate makes the call itself."""

    attempts: int = 3
    pause: float = 0.1
    longest: float = 30.0
    budget: float = 0.2
    safe: bool = False


@dataclass(frozen=True, slots=True)
class LastGoodRule:
    """How old a result may be that stands in for a call that failed."""

    age: float
    size: int = 1024
    key: tuple[KeyPart, ...] = ()
    """What tells calls apart; empty: their arguments, and all that is known of them."""


@dataclass(frozen=True, slots=True)
class CollapseRule:
    """That calls which are alike and under way together become one."""

    key: tuple[KeyPart, ...] = ()
    """As for results that are kept."""
