"""Rules as values: what a rules file says, checked and never changed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from ..limit import Limit
from .policy_model import (
    AdaptiveRule,
    BreakerRule,
    BulkheadRule,
    CollapseRule,
    LastGoodRule,
    RetryRule,
)

__all__ = [
    "AdaptiveRule", "BreakerRule", "BulkheadRule", "CollapseRule", "Cost", "Defaults", "KeyPart",
    "LastGoodRule", "Lists", "Match", "Otherwise", "Plans", "PolicyRule", "RetryRule", "Rule",
    "RuleSet", "SystemRule",
]  # fmt: skip

NOTHING: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Match:
    """Which calls a rule is for; what is not said matches everything.

    A pattern of a path is written in segments: `*` is one segment, `{name}` is one segment and a
    parameter, `**` or a last `*` after a slash is any rest. Hosts may begin with `*.`. All other
    values are texts, lists of texts, or `*` for "is there".
    """

    methods: frozenset[str] = frozenset()
    paths: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    headers: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: NOTHING)
    attributes: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: NOTHING)
    entries: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: NOTHING)
    origins: tuple[str, ...] = ()
    through: tuple[str, ...] = ()
    """Only calls that entered through one of these resources."""


@dataclass(frozen=True, slots=True)
class KeyPart:
    """One part of a key: `ip`, `user`, `header:X-Tenant`, `param:id`, `arg:sku`, ..."""

    source: str
    """ip, user, device, api_key, host, route, path, method, origin, resource, header, param, arg,
    attribute, entry"""
    name: str = ""


@dataclass(frozen=True, slots=True)
class Cost:
    """What a call costs: a constant, or read from a header, the body's size or an argument."""

    source: str = "constant"
    """constant, header, size, arg"""
    name: str = ""
    default: int = 1
    """The constant; or what counts when the source says nothing that is a whole number."""
    per: int = 1
    """So many units of the source are one of cost, rounded up."""
    most: int = 2**53 - 1
    least: int = 0
    """What a call costs whatever its source says; what costs 0 always passes."""


@dataclass(frozen=True, slots=True)
class Plans:
    """Limits by what is known of the user: `by` names the attribute."""

    by: str
    limits: Mapping[str, tuple[Limit, ...]]


@dataclass(frozen=True, slots=True)
class Otherwise:
    """What a refused call gets in place of an error."""

    kind: str
    """redirect, page, data, function"""
    value: Any = None
    """A URL, a file's path or its text, the data, or `module:function`."""


@dataclass(frozen=True, slots=True)
class Lists:
    """Who passes always, and who never does: origins, users, networks (192.0.2.0/24)."""

    networks: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()
    users: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule of a rules file."""

    name: str
    match: Match = Match()
    key: tuple[KeyPart, ...] = ()
    """Empty: all calls together. A call that lacks a part is not limited by this rule."""
    limits: tuple[Limit, ...] = ()
    plans: Plans | None = None
    hot: Mapping[str, tuple[Limit, ...]] = field(default_factory=lambda: NOTHING)
    """For given values of the key (its last part), limits of their own."""
    cost: Cost = Cost()
    count: str = "all"
    """all, or failures: then a success gives back what was taken."""
    wait: float = 0.0
    """Seconds that a call may wait for its turn."""
    otherwise: Otherwise | None = None
    status: int = 429
    log_level: str = "info"
    shadow: bool = False
    priority: int = 0
    on_error: str = ""
    exempt: bool = False
    """Calls that match are limited by no rule at all."""
    allow: Lists | None = None
    """Who this rule does not limit."""
    deny: Lists | None = None
    """Whom this rule always refuses."""
    busy: Mapping[str, Any] = field(default_factory=lambda: NOTHING)
    """Only while another resource is busy: {"resource": name, "limit": Limit}: the rule applies
    while that resource, under that limit, has nothing left."""
    replaces: tuple[str, ...] = ()
    """Rules that are left out where this one matches, as Envoy's `replaces`."""
    line: int = 0
    """Where the file says it."""


@dataclass(frozen=True, slots=True)
class PolicyRule:
    """One policy of a rules file: what protects the calls that it matches."""

    name: str
    match: Match = Match()
    key: tuple[KeyPart, ...] = ()
    """Each value of it has a breaker, a bulkhead and a limit of its own."""
    breaker: BreakerRule | None = None
    bulkhead: BulkheadRule | None = None
    adaptive: AdaptiveRule | None = None
    timeout: float = 0.0
    """Seconds that a call may take; 0: any."""
    retry: RetryRule | None = None
    collapse: CollapseRule | None = None
    last_good: LastGoodRule | None = None
    otherwise: Otherwise | None = None
    fallback: Otherwise | None = None
    """What a call answers that was refused or has failed."""
    status: int = 503
    log_level: str = "info"
    shadow: bool = False
    line: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class SystemRule:
    """When calls are turned away because this machine has too much to do."""

    bounds: tuple[tuple[str, float], ...] = ()
    """By word: cpu, load, memory, loop_lag, in_flight, response_time."""
    shed: tuple[tuple[int, float], ...] = ()
    """By priority: at which part of a bound it is turned away."""
    every: float = 1.0
    """Seconds between two looks at the machine."""
    otherwise: Otherwise | None = None
    status: int = 503
    log_level: str = "info"
    shadow: bool = False
    name: str = "system"
    line: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Defaults:
    """What holds for every rule that does not say otherwise."""

    on_error: str = ""
    headers: str = "draft-11"
    status: int = 429
    log_level: str = "info"


@dataclass(frozen=True, slots=True)
class RuleSet:
    """All rules of one source."""

    rules: tuple[Rule, ...] = ()
    defaults: Defaults = Defaults()
    allow: Lists | None = None
    deny: Lists | None = None
    policies: tuple[PolicyRule, ...] = ()
    system: SystemRule | None = None
    domain: str = ""
    """Of an Envoy configuration: the domain that its descriptors belong to."""
    source: str = ""
    """The file's name, or where else the rules came from."""
    digest: str = ""
