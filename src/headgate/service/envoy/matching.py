"""Matching: what the rules say of a request of Envoy's, made ready to be asked.

Both kinds of rules serve: a configuration of envoyproxy/ratelimit, which is matched by domain
and descriptor as a tree, and headgate's own rules, whose conditions and keys read the entries.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, NamedTuple

from ...errors import HeadgateError
from ...facts import Facts
from ...gate import Each
from ...limit import Limit
from ...rules.compiled import Bound, Compiled, Matched
from ...rules.envoy import EnvoyHit, EnvoySnapshot
from ...rules.model import Rule
from .statistics import Counters, Statistics
from .status import Code, GrpcError
from .wire import Descriptor, RateLimitRequest

__all__ = ["UNITS", "Matcher", "Ready"]

UNITS = {
    "second": 1, "minute": 2, "hour": 3, "day": 4, "month": 5, "year": 6, "week": 7,
}  # fmt: skip
"""Envoy's numbers of the units of time."""
_NAMES = {number: name for name, number in UNITS.items()}
MOST = 2**53 - 1
KEPT = 1024
NOTHING = Matched(())

logger = logging.getLogger("headgate.envoy")


class Ready(NamedTuple):
    """One descriptor, made ready."""

    call: Each
    hits: int
    """For the statistics; 0 if it only looks."""
    rule: Any
    """The EnvoyRule that it met, if it met one."""
    counters: Counters | None
    """Where it is counted, if it is one rule whatever the verdict."""


class Matcher:
    """A snapshot of rules, as far as Envoy's requests are concerned."""

    def __init__(self, snapshot: Any, statistics: Statistics) -> None:
        self.snapshot = snapshot
        self.tree: EnvoySnapshot | None = snapshot if isinstance(snapshot, EnvoySnapshot) else None
        self._statistics = statistics
        self._overrides: dict[tuple[int, int], Compiled] = {}
        self._left_out: set[str] = set()

    def ready(self, request: RateLimitRequest) -> list[Ready]:
        """All descriptors of a request, in their order."""
        if not request.domain:
            raise GrpcError(Code.INVALID_ARGUMENT, "rate limit domain must not be empty")
        if not request.descriptors:
            raise GrpcError(Code.INVALID_ARGUMENT, "rate limit descriptor list must not be empty")
        hits: Sequence[EnvoyHit | None] = [None] * len(request.descriptors)
        if self.tree is not None:
            known = request.domain in self.tree.domains
            entries = [
                () if each.limit is not None and known else each.entries
                for each in request.descriptors
            ]
            hits = self.tree.match_descriptors(request.domain, entries)
        return [
            self._ready(request, each, hit)
            for each, hit in zip(request.descriptors, hits, strict=True)
        ]

    def matched(self, domain: str, entries: Sequence[tuple[str, str]]) -> Matched:
        """What the rules say of one descriptor, without what Envoy cannot end."""
        matched: Matched = self.snapshot.match(Facts(domain=domain, entries=entries))
        return self._endable(matched)

    def _ready(self, request: RateLimitRequest, each: Descriptor, hit: EnvoyHit | None) -> Ready:
        facts = Facts(domain=request.domain, entries=each.entries)
        hits = min(each.hits if each.hits is not None else request.hits or 1, MOST)
        counters = None
        if each.limit is not None and self._knows(request.domain):
            matched = self._override(request.domain, each, each.limit)
            counters = self._statistics.of(_full_key(request.domain, each.entries))
        elif self.tree is not None:
            matched = NOTHING if hit is None else hit.matched()
            if hit is not None:
                counters = self._counters(hit, each)
        else:
            matched = self._endable(self.snapshot.match(facts))
        op, cost = "take", hits
        if hits == 0:
            op, cost = "check", 1
        elif each.negative:
            op = "refund"
        elif hits > 1 and (each.hits is not None or self.tree is not None):
            op = "charge"  # what has been used counts, even if it is too much
        elif hits == 1 and self.tree is None and each.limit is None:
            cost = -1  # as the rule says
        told = 0 if op == "refund" else hits
        return Ready(Each(facts, matched, cost, op), told, hit.rule if hit else None, counters)

    def _knows(self, domain: str) -> bool:
        return self.tree is None or domain in self.tree.domains

    def _override(self, domain: str, each: Descriptor, limit: tuple[int, int]) -> Matched:
        """A limit that Envoy says itself; what is counted does not depend on how high it is."""
        compiled = self._overrides.get(limit)
        if compiled is None:
            amount, unit = limit
            if unit not in _NAMES:
                raise GrpcError(Code.INVALID_ARGUMENT, f"there is no unit {unit} of time")
            compiled = _override(amount, _NAMES[unit])
            if len(self._overrides) >= KEPT:
                self._overrides.clear()
            self._overrides[limit] = compiled
        if not compiled.limits:
            return Matched((), denied=compiled.rule)
        key = (domain, *(part for entry in each.entries for part in entry))
        return Matched((Bound(compiled, key, compiled.limits, 1),))

    def _counters(self, hit: EnvoyHit, each: Descriptor) -> Counters:
        rule = hit.rule
        name = rule.full_key
        if rule.detailed_metric or rule.value_to_metric:
            key, value = each.entries[-1]
            if name.endswith(f".{key}"):  # a key without a value in the file
                return self._statistics.of(f"{name}_{value}", name)
            return self._statistics.of(_full_key(each_domain(hit), each.entries), name)
        return self._statistics.of(name)

    def _endable(self, matched: Matched) -> Matched:
        """The same without rules that need to hear how a call ends: Envoy does not tell."""
        if all(_plain(bound) for bound in matched.bounds):
            return matched
        for bound in matched.bounds:
            name = bound.rule.name
            if not _plain(bound) and name not in self._left_out:
                self._left_out.add(name)
                logger.warning(
                    "rule %r is left out for Envoy: it counts calls in flight or failures, and "
                    "Envoy does not tell how a call ends",
                    name,
                )
        return matched._replace(bounds=tuple(filter(_plain, matched.bounds)))


def each_domain(hit: EnvoyHit) -> str:
    """The domain that a hit belongs to."""
    domain = hit.key[0] if isinstance(hit.key, tuple) else hit.key
    return domain if isinstance(domain, str) else domain.decode()


def _plain(bound: Bound) -> bool:
    if bound.rule.rule.count == "failures":
        return False
    return all(limit.algorithm != "concurrency" for limit in bound.limits)


def _override(amount: int, unit: str) -> Compiled:
    limits: tuple[Limit, ...] = ()
    if amount:
        zone = "UTC" if unit in ("week", "month", "year") else None
        try:
            limits = (Limit(amount, unit, "fixed-window", tz=zone),)
        except (ValueError, HeadgateError) as error:
            raise GrpcError(Code.INVALID_ARGUMENT, str(error)) from None
    return Compiled(Rule(f"override.{unit}", limits=limits), 0, key=None)


def _full_key(domain: str, entries: Sequence[tuple[str, str]]) -> str:
    """A descriptor as Envoy's statistics name it."""
    return ".".join([domain, *(f"{key}_{value}" if value else key for key, value in entries)])
