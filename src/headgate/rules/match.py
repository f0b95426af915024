"""Match: a set of rules made ready, and which of them apply to a call."""

from __future__ import annotations

from operator import attrgetter
from typing import Any

from ..errors import RulesError
from ..facts import Facts
from .compiled import Bound, Busy, Compiled, Matched, compiled
from .conditions import Condition, conditions_of
from .index import Index
from .lists import named_by
from .model import Match, Rule, RuleSet

__all__ = ["Bound", "Busy", "Compiled", "Matched", "Snapshot"]

NOTHING = Matched(())
_ORDER = attrgetter("order")
_new: Any = tuple.__new__


class Snapshot:
    """All rules of a set, ready to be matched; it never changes.

    All rules that match apply, in the order of the file. Lists that refuse come before lists
    that let pass, those of the whole file before those of a rule; a call that matches an exempt
    rule is limited by none.
    """

    __slots__ = ("_allow", "_always", "_deny", "_free", "_looks", "_refused", "rules", "ruleset")

    def __init__(self, ruleset: RuleSet) -> None:
        self.ruleset = ruleset
        readers: dict[Any, Any] = {}
        entries: list[tuple[Compiled, list[Condition]]] = []
        for rule in ruleset.rules:
            try:
                prepared = compiled(rule, len(entries), readers)
                entries.append((prepared, conditions_of(rule.match)))
            except (ValueError, KeyError) as error:
                raise RulesError(str(error), ruleset.source, rule.line, rule.name) from error
        self.rules = tuple(prepared for prepared, _ in entries)
        for prepared in self.rules:
            if prepared.busy is not None:
                entries.append(_feeder(prepared, len(entries)))
        index = Index(entries)
        self._always, self._looks = index.always, index.looks
        self._allow = named_by(ruleset.allow)
        self._deny = named_by(ruleset.deny)
        self._free = Matched((), exempt=Rule("allow"))
        self._refused = Matched((), denied=Rule("deny", status=403))

    def __len__(self) -> int:
        return len(self.rules)

    def match(self, facts: Facts) -> Matched:
        """The rules that apply to a call, each with its key, its limits and its cost."""
        if self._deny is not None and self._deny(facts):
            return self._refused
        if self._allow is not None and self._allow(facts):
            return self._free
        found = [*self._always] if self._always else []
        for look in self._looks:
            look(facts, found)
        if len(found) == 2 and found[0] is found[1]:  # by its path and by its route
            del found[1]
        if len(found) == 1:  # by far the most frequent
            rule = found[0]
            if rule.plain:
                if rule.checks and not rule.applies(facts):
                    return NOTHING
                bound = rule.bind(facts)
                if bound is None or not bound.limits:
                    return NOTHING
                return _new(Matched, ((bound,), None, None, ()))  # type: ignore[no-any-return]
        elif not found:
            return NOTHING
        return _weighed(found, facts)


def _weighed(found: list[Compiled], facts: Facts) -> Matched:
    """What several rules, or one that does more than limit, say together."""
    found.sort(key=_ORDER)
    bounds: list[Bound] = []
    special: list[Compiled] = []
    previous = None
    for rule in found:
        if rule is previous:
            continue
        previous = rule
        if rule.checks and not rule.applies(facts):
            continue
        if not rule.plain:
            special.append(rule)
            if rule.deny is not None and rule.deny(facts):
                continue
            if (rule.allow is not None and rule.allow(facts)) or rule.rule.exempt:
                continue
        bound = rule.bind(facts)
        if bound is not None:
            bounds.append(bound)
    if special:
        return _with_special(special, bounds, facts)
    return Matched(tuple([bound for bound in bounds if bound.limits]))


def _with_special(special: list[Compiled], bounds: list[Bound], facts: Facts) -> Matched:
    """Leave out what is replaced, then see who is exempt, then who is refused."""
    gone = {name for bound in bounds for name in bound.rule.replaces}
    denied = None
    shadowed = []
    for rule in special:
        if rule.name in gone:
            continue
        if rule.deny is not None and rule.deny(facts):
            if rule.rule.shadow:
                shadowed.append(rule.rule)
            else:
                denied = denied or rule.rule
        elif not rule.rule.exempt or rule.rule.shadow:
            continue
        elif rule.allow is None or not rule.allow(facts):
            return Matched((), exempt=rule.rule)
    if denied is not None:
        return Matched((), denied=denied, shadowed=tuple(shadowed))
    kept = [bound for bound in bounds if bound.limits and bound.rule.name not in gone]
    return Matched(tuple(kept), shadowed=tuple(shadowed))


def _feeder(prepared: Compiled, order: int) -> tuple[Compiled, list[Condition]]:
    """What counts the calls of the resource that another rule watches: always in shadow."""
    assert prepared.busy is not None
    resource = prepared.rule.busy["resource"]
    path = resource.startswith("/")
    match = Match(paths=(resource,)) if path else Match(resources=(resource,))
    name = prepared.busy.limit.id
    rule = Rule(name, match, limits=(prepared.busy.limit,), shadow=True, line=prepared.rule.line)
    feeder = Compiled(rule, order, feeds=True, key=None)
    feeder.limits = (prepared.busy.limit,)  # under the very id that the other rule checks
    feeder._bound = Bound(feeder, prepared.busy.key, feeder.limits, 1)
    return feeder, conditions_of(match)
