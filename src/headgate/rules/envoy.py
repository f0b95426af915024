"""Envoy: configurations of envoyproxy/ratelimit, loaded as they are and matched as it does.

A call is a descriptor, which is a list of entries (key, value). At each level the exact key and
value come first, then values that end in `*`, in the order of the file, then the key without a
value; what was chosen is not taken back. The rule lies exactly as deep as the call has entries.
Every combination of values is counted by itself, in windows of the calendar in UTC.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, NamedTuple

from ..errors import RulesError
from ..facts import Facts
from ..keys import Key
from ..limit import Limit
from .compiled import Bound, Compiled, Matched
from .envoy_reading import Descriptor, read_document
from .model import Rule, RuleSet

__all__ = ["EnvoyHit", "EnvoyRule", "EnvoySnapshot", "read_envoy"]

NOTHING = Matched(())
_EMPTY: dict[Any, Any] = {}  # never filled
Entries = Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True, eq=False)
class EnvoyRule:
    """A descriptor's rate limit."""

    full_key: str
    """Domain, keys and values, as Envoy's statistics name the rule: `shop.user_anna.path`."""
    name: str
    """As the file names it, so that others may replace it; else empty."""
    unit: str
    requests_per_unit: int
    unlimited: bool
    shadow_mode: bool
    quota_mode: bool
    """As in shadow, a call over the limit passes."""
    replaces: tuple[str, ...]
    detailed_metric: bool
    value_to_metric: bool
    limit: Limit | None
    """None where there is nothing to count: unlimited, or nothing is let pass at all."""
    compiled: Compiled
    """The same as a rule of headgate's own."""

    @property
    def refuses(self) -> bool:
        """Whether nothing passes: `requests_per_unit: 0`."""
        return self.limit is None and not self.unlimited


class EnvoyHit(NamedTuple):
    """A rule that a descriptor met, and the key it is counted under."""

    rule: EnvoyRule
    key: Key

    def bound(self, cost: int = 1) -> Bound:
        """What is to be asked of the store."""
        return Bound(self.rule.compiled, self.key, self.rule.compiled.limits, cost)

    def matched(self) -> Matched:
        """What the rule says of the call."""
        rule = self.rule
        own = rule.compiled.rule
        if rule.limit is not None:
            return Matched((self.bound(),))
        if rule.unlimited:
            return Matched((), exempt=own)
        return Matched((), shadowed=(own,)) if own.shadow else Matched((), denied=own)


class Beginnings:
    """Values of one key that end in `*`: found by their lengths, however many there are."""

    __slots__ = ("_lengths", "_places")

    def __init__(self) -> None:
        self._places: dict[str, tuple[int, Place]] = {}
        self._lengths: tuple[int, ...] = ()

    def add(self, beginning: str, place: Place) -> None:
        self._places[beginning] = (len(self._places), place)
        if len(beginning) not in self._lengths:
            self._lengths += (len(beginning),)

    def first(self, value: str) -> Place | None:
        """The first in the order of the file that the value begins with."""
        found = [self._places.get(value[:length]) for length in self._lengths]
        return min(filter(None, found), default=(0, None), key=itemgetter(0))[1]


class Level:
    """Descriptors that lie beside each other."""

    __slots__ = ("bare", "exact", "wild")

    exact: dict[tuple[str, str], Place]
    wild: dict[str, Beginnings]
    bare: dict[str, Place]

    def __init__(self) -> None:
        # One empty table for all: most levels need only one of the three.
        self.exact = self.wild = self.bare = _EMPTY

    def add(self, key: str, value: str, place: Place) -> None:
        if not value:
            self.bare = self.bare or {}
            self.bare[key] = place
            return
        if value.endswith("*"):
            self.wild = self.wild or {}
            self.wild.setdefault(key, Beginnings()).add(value[:-1], place)
        self.exact = self.exact or {}
        self.exact[key, value] = place


class Place:
    """One descriptor: its rule, if it has one, and the level below it."""

    __slots__ = ("below", "rule", "shared")

    def __init__(self, rule: EnvoyRule | None, below: Level | None, shared: str) -> None:
        self.rule = rule
        self.below = below
        self.shared = shared
        """The value under which all that match are counted together; else empty."""


class EnvoySnapshot:
    """Rules of one or several domains; it never changes."""

    __slots__ = ("_domains", "rules", "ruleset")

    def __init__(
        self, domains: dict[str, Level], rules: Iterable[EnvoyRule], ruleset: RuleSet
    ) -> None:
        self._domains = domains
        self.rules = tuple(rules)
        self.ruleset = ruleset
        """The rules as headgate's own, for those who show them."""

    @property
    def domains(self) -> tuple[str, ...]:
        """The domains that there are rules for."""
        return tuple(self._domains)

    def __len__(self) -> int:
        return len(self.rules)

    @classmethod
    def joined(cls, snapshots: Sequence[EnvoySnapshot]) -> EnvoySnapshot:
        """Several files together; each domain belongs to one of them."""
        domains: dict[str, Level] = {}
        for snapshot in snapshots:
            for domain, level in snapshot._domains.items():
                if domain in domains:
                    raise RulesError(
                        f"the domain {domain!r} is there twice", snapshot.ruleset.source
                    )
                domains[domain] = level
        rules = [rule for snapshot in snapshots for rule in snapshot.rules]
        sources = ", ".join(snapshot.ruleset.source for snapshot in snapshots)
        return cls(domains, rules, _as_ruleset(rules, "", sources))

    def find(self, domain: str, entries: Entries) -> EnvoyHit | None:
        """The rule that a descriptor meets, with its key; None if it is not limited."""
        level = self._domains.get(domain)
        rule = None
        key: list[str] = [domain]
        for name, value in entries:
            if level is None:
                return None
            place = level.exact.get((name, value))
            if place is None and name in level.wild:
                place = level.wild[name].first(value)
            if place is None:
                place = level.bare.get(name)
                if place is None:
                    return None
            key += (name, place.shared or value)
            rule, level = place.rule, place.below
        return None if rule is None else EnvoyHit(rule, tuple(key))

    def match_descriptor(self, domain: str, entries: Entries) -> EnvoyRule | None:
        """The rule that a descriptor meets; None if it is not limited."""
        hit = self.find(domain, entries)
        return None if hit is None else hit.rule

    def match_descriptors(
        self, domain: str, descriptors: Iterable[Entries]
    ) -> list[EnvoyHit | None]:
        """What the descriptors of one request meet, in their order, without what is replaced."""
        hits = [self.find(domain, entries) for entries in descriptors]
        gone = {name for hit in hits if hit for name in hit.rule.replaces}
        return [
            None if hit and hit.rule.name in gone and not hit.rule.unlimited else hit
            for hit in hits
        ]

    def match(self, facts: Facts) -> Matched:
        """What the rules say of a call that is one descriptor: `facts.entries`."""
        hit = self.find(facts.domain, facts.entries)
        return NOTHING if hit is None else hit.matched()


def read_envoy(text: str, name: str = "ratelimit.yaml") -> EnvoySnapshot:
    """Read a configuration file of envoyproxy/ratelimit; a RulesError names file and line."""
    domain, descriptors = read_document(text, name)
    rules: list[EnvoyRule] = []
    level = _level(descriptors, domain, name, rules)
    return EnvoySnapshot({domain: level}, rules, _as_ruleset(rules, domain, name))


def _as_ruleset(rules: Iterable[EnvoyRule], domain: str, source: str) -> RuleSet:
    return RuleSet(tuple(rule.compiled.rule for rule in rules), domain=domain, source=source)


def _level(
    descriptors: tuple[Descriptor, ...], above: str, file: str, rules: list[EnvoyRule]
) -> Level:
    level = Level()
    seen: set[tuple[str, str]] = set()
    for each in descriptors:
        full_key = f"{above}.{each.key}_{each.value}" if each.value else f"{above}.{each.key}"
        if (each.key, each.value) in seen:
            raise RulesError(f"the descriptor is there twice: {full_key}", file, each.line)
        seen.add((each.key, each.value))
        rule = _rule(each, full_key, file, len(rules))
        if rule is not None:
            rules.append(rule)
        below = _level(each.descriptors, full_key, file, rules) if each.descriptors else None
        place = Place(rule, below, each.value if each.share_threshold else "")
        level.add(each.key, each.value, place)
    return level


def _rule(each: Descriptor, full_key: str, file: str, order: int) -> EnvoyRule | None:
    given = each.limit
    if given is None:
        return None
    limit = None
    if not given.unlimited and given.requests_per_unit:
        # Weeks, months and years are those of the calendar; shorter units begin with it anyway.
        zone = "UTC" if given.unit in ("week", "month", "year") else None
        try:
            limit = Limit(given.requests_per_unit, given.unit, "fixed-window", tz=zone)
            limit = limit.named(f"{full_key}#0")  # as it is filed, so that there is only one
        except ValueError as error:
            raise RulesError(str(error), file, each.line, full_key) from None
    rule = Rule(
        full_key,
        limits=(limit,) if limit else (),
        shadow=each.shadow_mode or each.quota_mode,
        replaces=given.replaces,
        exempt=given.unlimited,
        line=each.line,
    )
    compiled = Compiled(rule, order, key=None)
    return EnvoyRule(
        full_key, given.name, given.unit, given.requests_per_unit, given.unlimited,
        each.shadow_mode, each.quota_mode, given.replaces, each.detailed_metric,
        each.value_to_metric,
        compiled.limits[0] if limit else None, compiled,
    )  # fmt: skip
