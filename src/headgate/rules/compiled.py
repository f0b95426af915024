"""Compiled: a rule with everything prepared, and what a call gets from it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ..facts import Facts
from ..keys import Key
from ..limit import Limit
from .conditions import Check
from .keys import Reader, cost_reader, key_reader, text_of
from .lists import named_by
from .model import Rule
from .patterns import pattern

__all__ = ["Bound", "Busy", "Compiled", "Matched"]


class Bound(NamedTuple):
    """One rule that applies to a call: whom it limits, by what, at what cost."""

    rule: Compiled
    key: Key
    limits: tuple[Limit, ...]
    cost: int


class Matched(NamedTuple):
    """What the rules say of a call: the limits to ask, or that nothing is to be asked."""

    bounds: tuple[Bound, ...]
    exempt: Rule | None = None
    """By which rule the call is free of all rules."""
    denied: Rule | None = None
    """By which rule the call is refused, whatever was used."""
    shadowed: tuple[Rule, ...] = ()
    """Rules in shadow whose deny lists name the call."""


class Busy(NamedTuple):
    """Another resource's limit: the rule counts only while that has nothing left."""

    key: Key
    limit: Limit


class Compiled:
    """A rule, ready to be asked."""

    __slots__ = (
        "_bound", "_by", "_cost", "_hot", "_key", "_plans", "_varies", "allow", "busy", "checks",
        "deny", "feeds", "kept", "limits", "name", "order", "plain", "replaces", "rule",
    )  # fmt: skip

    checks: tuple[Check, ...]
    """Conditions that the index does not settle."""
    kept: Any
    """Where the one who asks keeps what it derived from this rule."""

    def __init__(self, rule: Rule, order: int, *, feeds: bool = False, key: Reader | None) -> None:
        self.rule = rule
        self.name = rule.name
        self.order = order
        self.feeds = feeds
        """Whether this is no rule of the file but counts the calls of a resource, for `busy`."""
        self.checks = ()
        self.kept = None
        self.limits = filed(rule.limits, rule.name)
        plans = rule.plans
        self._by = plans.by if plans else ""
        self._plans = _filed_all(plans.limits, rule.name) if plans else None
        self._hot = _filed_all(rule.hot, rule.name) if rule.hot else None
        self._varies = bool(plans or rule.hot)
        self._cost: int | Callable[[Facts], int] = cost_reader(rule.cost)
        self._key = key
        self.allow = named_by(rule.allow)
        self.deny = named_by(rule.deny)
        self.busy = _busy(rule)
        # A rule that only watches, or counts only at times, must not switch others off.
        self.replaces = () if rule.shadow or self.busy else rule.replaces
        self.plain = not (self.allow or self.deny or self.replaces or rule.exempt)
        fixed = key is None and plans is None and isinstance(self._cost, int)
        self._bound = Bound(self, "", self.limits, self._cost) if fixed else None  # type: ignore[arg-type]

    def applies(self, facts: Facts) -> bool:
        """Whether the conditions hold that the index leaves open."""
        for check in self.checks:  # noqa: SIM110 - a generator costs more than the checks
            if not check(facts):
                return False
        return True

    def bind(self, facts: Facts) -> Bound | None:
        """What the rule asks of a call that it matches; None if a part of its key is missing."""
        if self._bound is not None:
            return self._bound
        key: Key = ""
        if self._key is not None:
            key = self._key(facts)
            if not key:
                return None
        limits = self._chosen(facts, key) if self._varies else self.limits
        cost = self._cost
        if type(cost) is not int:
            cost = cost(facts)  # type: ignore[operator]
        return _new(Bound, (self, key, limits, cost))  # type: ignore[no-any-return]

    def _chosen(self, facts: Facts, key: Key) -> tuple[Limit, ...]:
        """The limits of the user's plan, or those of a hot value."""
        limits = self.limits
        if self._plans is not None:
            plan = facts.attributes.get(self._by)
            if plan is not None:
                limits = self._plans.get(text_of(plan), limits)
        if self._hot is not None:
            limits = self._hot.get(key[-1] if isinstance(key, tuple) else key, limits)
        return limits

    def __repr__(self) -> str:
        return f"<rule {self.name}>"


_new: Callable[..., Any] = tuple.__new__  # a NamedTuple's own takes twice the time


def compiled(rule: Rule, order: int, readers: dict[Any, Reader | None]) -> Compiled:
    """A rule prepared; rules of one key share what reads it."""
    sources = {part.source for part in rule.key}
    paths = rule.match.paths if sources & {"param", "route"} else ()
    form = (rule.key, paths)
    if form not in readers:
        readers[form] = key_reader(rule.key, tuple(map(pattern, paths)))
    return Compiled(rule, order, key=readers[form])


def filed(limits: tuple[Limit, ...], name: str) -> tuple[Limit, ...]:
    """Limits under the ids of a rule: those that stand in for others keep their state."""
    return tuple(limit.named(f"{name}#{place}") for place, limit in enumerate(limits))


def _filed_all(
    table: Mapping[str, tuple[Limit, ...]], name: str
) -> dict[str | bytes, tuple[Limit, ...]]:
    return {value: filed(limits, name) for value, limits in table.items()}


def _busy(rule: Rule) -> Busy | None:
    if not rule.busy:
        return None
    return Busy("", Limit.of(rule.busy["limit"]).named(f"{rule.name}#busy"))
