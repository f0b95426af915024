"""Book: the rules in force, and what a gate has prepared for them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ..limit import Limit

if TYPE_CHECKING:
    from ..facts import Facts
    from ..rules.match import Bound, Matched
    from .desk import Desk

__all__ = ["Book", "Plan", "named"]

MANY = 1 << 16
"""So many plans are kept; there are fewer, unless rules make limits as they match."""
NOBODY: Mapping[str, Any] = {}


def named(facts: Facts) -> str:
    """What a call is known by to other rules: its resource, or what stands for one."""
    return facts.resource or facts.route or facts.path


class Plan:
    """One rule with one choice of limits, as far as it is the same for every call."""

    __slots__ = (
        "busy", "failures", "limits", "name", "on_error", "permits", "priority", "resource",
        "rule", "shadow", "wait",
    )  # fmt: skip

    def __init__(self, rule: Any, limits: tuple[Limit, ...], blocking: bool) -> None:
        self.rule = rule
        self.limits = limits
        self.name: str = rule.name
        self.shadow: bool = rule.shadow
        self.failures: bool = rule.count == "failures"
        self.wait: float = rule.wait
        self.priority: int = rule.priority
        self.on_error: str = rule.on_error if blocking else ""
        self.permits = any(limit.algorithm == "concurrency" for limit in limits)
        self.busy = busy_limit(rule)
        """The limit that another resource must have used up for this rule to apply."""
        self.resource: str = rule.busy.get("resource", "") if self.busy is not None else ""

    @property
    def plain(self) -> bool:
        """Whether a take is all there is to it."""
        return bool(self.limits) and not (
            self.shadow or self.failures or self.permits or self.wait or self.busy is not None
        )


class Book:
    """A snapshot of the rules, never changed but for what is remembered about it."""

    __slots__ = (
        "_coloured", "_desk", "_plans", "busy", "count", "digest", "format", "limits", "match",
        "source", "watched", "ways",
    )  # fmt: skip

    def __init__(self, desk: Desk, snapshot: Any, rules: Any, coloured: bool) -> None:
        self._desk = desk
        self._coloured = coloured
        self.match: Callable[[Facts], Matched] = snapshot.match
        self.ways: dict[int, Any] = {}
        """Prepared takes, by the identity of a rule's limits."""
        self._plans: dict[int, Plan] = {}
        self.busy: dict[str, bool] = {}
        """What was last heard of the resources that rules depend on, by rule."""
        own: Iterable[Any] = getattr(rules, "rules", ())
        self.watched: dict[str, list[tuple[Limit, str]]] = {}
        """By resource: what notes that it is busy."""
        for rule in own:
            limit = busy_limit(rule)
            if limit is not None:
                noted = self.watched.setdefault(rule.busy["resource"], [])
                noted.append((limit, rule.on_error if desk.store.blocking else ""))
        self.limits = tuple(limit for rule in own for limit in rule.limits)
        self.count = len(tuple(own))
        self.source: str = getattr(rules, "source", "")
        self.digest: str = getattr(rules, "digest", "")
        self.format: str = getattr(getattr(rules, "defaults", None), "headers", "draft-11")

    def plan(self, bound: Bound) -> Plan:
        """What is known of a bound beforehand."""
        plan = self._plans.get(id(bound.limits))
        if plan is None or plan.rule is not bound.rule:
            if len(self._plans) >= MANY:
                self.ways.clear()
                self._plans.clear()
            plan = Plan(bound.rule, bound.limits, self._desk.store.blocking)
            # The plan keeps the limits, so their identity stays theirs.
            self._plans[id(bound.limits)] = plan
            way = self._way(plan)
            if way is not None:
                self.ways[id(bound.limits)] = way
        return plan

    def _way(self, plan: Plan) -> Any:
        if not plan.plain or self.watched:
            return None
        store: Any = self._desk.store
        if not store.blocking:
            way = store.quick(self._desk.name, plan.limits)
        else:
            quick = store.quick_async if self._coloured else store.quick
            options = {"on_error": plan.on_error} if plan.on_error else {}
            way = quick(self._desk.name, plan.limits, **options)
        return None if way is None else way.hit


def busy_limit(rule: Any) -> Limit | None:
    """The limit by which a rule tells whether another resource is busy, under an id of its own."""
    limit = (rule.busy or NOBODY).get("limit")
    return None if limit is None else Limit.of(limit).named(f"{rule.name}#busy")
