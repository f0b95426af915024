"""Book: the rules in force, and what a gate has prepared for them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from .chain import expect

if TYPE_CHECKING:
    from ..decision import Decision
    from ..facts import Facts
    from ..limit import Limit
    from ..rules.match import Bound, Busy, Matched
    from .desk import Desk
    from .guards import Guards

__all__ = ["Book", "Plan"]

MANY = 1 << 16
"""So many plans are kept; there are fewer, unless rules make limits as they match."""


class Plan:
    """One rule with one choice of limits, as far as it is the same for every call."""

    __slots__ = (
        "bound_to", "busy", "failures", "feeds", "limits", "name", "on_error", "permits",
        "priority", "rule", "shadow", "wait",
    )  # fmt: skip

    def __init__(self, bound: Bound, on_error: str, blocking: bool) -> None:
        compiled, limits = bound.rule, bound.limits
        rule: Any = compiled.rule
        self.bound_to = compiled
        self.rule = rule
        self.limits: tuple[Limit, ...] = limits
        self.name: str = rule.name
        self.shadow: bool = rule.shadow
        self.failures: bool = rule.count == "failures"
        self.wait: float = rule.wait
        self.priority: int = rule.priority
        self.on_error: str = (rule.on_error or on_error) if blocking else ""
        self.permits = any(limit.algorithm == "concurrency" for limit in limits)
        self.busy: Busy | None = compiled.busy
        """What another resource must have used up for this rule to apply."""
        self.feeds: bool = compiled.feeds
        """Whether it is no rule but counts the calls of such a resource."""

    @property
    def plain(self) -> bool:
        """Whether a take is all there is to it."""
        return bool(self.limits) and not (
            self.shadow or self.failures or self.permits or self.busy is not None
        )


class Book:
    """A snapshot of the rules, never changed but for what is remembered about it."""

    __slots__ = (
        "_coloured", "_desk", "_on_error", "_plans", "busy", "count", "digest", "format", "guards",
        "limits", "match", "patient", "source", "ways",
    )  # fmt: skip

    def __init__(
        self, desk: Desk, snapshot: Any, rules: Any, coloured: bool, guards: Guards | None = None
    ) -> None:
        self._desk = desk
        self.guards = guards
        """The policies; None if there are none."""
        self._coloured = coloured
        self.match: Callable[[Facts], Matched] = snapshot.match
        self.ways: dict[int, Any] = {}
        """Prepared takes, by the identity of a rule's limits."""
        self.patient: dict[int, Any] = {}
        """The same for rules that may wait, to be tried while nobody does."""
        self._plans: dict[int, Plan] = {}
        self.busy: dict[str, bool] = {}
        """What was last heard of the resources that rules depend on, by rule."""
        expect(rules)
        own: Sequence[Any] = getattr(rules, "rules", ())
        defaults = getattr(rules, "defaults", None)
        self._on_error: str = getattr(defaults, "on_error", "")
        self.limits = tuple(limit for rule in own for limit in getattr(rule, "limits", ()))
        self.count = len(own)
        self.source: str = getattr(rules, "source", "")
        self.digest: str = getattr(rules, "digest", "")
        self.format: str = getattr(defaults, "headers", "draft-11")

    def plan(self, bound: Bound) -> Plan:
        """What is known of a bound beforehand."""
        plan = self._plans.get(id(bound.limits))
        if plan is None or plan.bound_to is not bound.rule:
            if len(self._plans) >= MANY:
                self.ways.clear()
                self.patient.clear()
                self._plans.clear()
            plan = Plan(bound, self._on_error, self._desk.store.blocking)
            # The plan keeps the limits, so their identity stays theirs.
            self._plans[id(bound.limits)] = plan
            way = self._way(plan)
            if way is not None:
                (self.patient if plan.wait else self.ways)[id(bound.limits)] = way
        return plan

    def at_once(self, bound: Bound) -> Decision | None:
        """What a rule that may wait answers while nobody does, if it lets the call pass."""
        way = self.patient.get(id(bound.limits))
        if way is None or self._desk.crowded():
            return None
        answer: Decision = way(bound.key, bound.cost)
        return answer if answer.allowed else None

    def _way(self, plan: Plan) -> Any:
        store: Any = self._desk.store
        # A store that blocks is not asked once more than needed by those who have to wait.
        if not plan.plain or (plan.wait and store.blocking):
            return None
        if not store.blocking:
            way = store.quick(self._desk.name, plan.limits)
        else:
            quick = store.quick_async if self._coloured else store.quick
            options = {"on_error": plan.on_error} if plan.on_error else {}
            way = quick(self._desk.name, plan.limits, **options)
        if way is None:
            return None
        watch = self._desk.watch
        if watch is None or not watch.times:
            return way.hit
        from .watched import timed, timed_async

        return (timed_async if self._coloured and store.blocking else timed)(way.hit, watch)

    def anew(self) -> Book:
        """The same rules, with nothing prepared yet."""
        book = copy.copy(self)
        book.ways, book.patient, book._plans = {}, {}, {}
        return book
