"""Policies: which of them protect a call, and under which key."""

from __future__ import annotations

from operator import attrgetter
from typing import Any

from ..errors import RulesError
from ..facts import Facts
from ..keys import Key
from .compiled import Compiled, compiled
from .conditions import Condition, conditions_of
from .index import Index
from .model import PolicyRule, Rule

__all__ = ["Policies"]

_ORDER = attrgetter("order")


class Policies:
    """All policies of a set, ready to be matched as rules are; it never changes."""

    __slots__ = ("_index", "rules")

    def __init__(self, rules: tuple[PolicyRule, ...], source: str = "") -> None:
        self.rules = rules
        readers: dict[Any, Any] = {}
        entries: list[tuple[Compiled, list[Condition]]] = []
        for policy in rules:
            rule = Rule(policy.name, policy.match, policy.key, line=policy.line)
            try:
                entries.append((compiled(rule, len(entries), readers), conditions_of(rule.match)))
            except (ValueError, KeyError) as error:
                raise RulesError(str(error), source, policy.line, policy.name) from error
        self._index = Index(entries)

    def match(self, facts: Facts) -> list[tuple[int, Key]]:
        """The places of the policies that protect a call, in the order of the file, with its key.

        A call that lacks a part of the key is not protected, as it is not limited by a rule.
        """
        found: list[Compiled] = []
        self._index.gather(facts, found)
        if len(found) > 1:
            found = sorted(set(found), key=_ORDER)
        matched = []
        for each in found:
            if each.checks and not each.applies(facts):
                continue
            bound = each.bind(facts)
            if bound is not None:
                matched.append((each.order, bound.key))
        return matched
