"""Policies: which of them protect a call, and under which key."""

from __future__ import annotations

from operator import attrgetter
from typing import Any, NamedTuple

from ..errors import RulesError
from ..facts import Facts
from ..keys import Key
from .compiled import Compiled, compiled
from .conditions import Condition, conditions_of
from .index import Index
from .keys import Reader, key_reader
from .model import PolicyRule, Rule
from .patterns import pattern

__all__ = ["Policies", "Readers"]

_ORDER = attrgetter("order")


class Readers(NamedTuple):
    """What parts of a policy read from a call; None: nothing."""

    partition: Reader | None
    last_good: Reader | None
    collapse: Reader | None


class Policies:
    """All policies of a set, ready to be matched as rules are; it never changes."""

    __slots__ = ("_index", "prepared", "readers", "rules")

    def __init__(self, rules: tuple[PolicyRule, ...], source: str = "") -> None:
        self.rules = rules
        self.readers: list[Readers] = []
        self.prepared: list[Compiled] = []
        readers: dict[Any, Any] = {}
        entries: list[tuple[Compiled, list[Condition]]] = []
        for policy in rules:
            rule = Rule(policy.name, policy.match, policy.key, line=policy.line)
            try:
                one = compiled(rule, len(entries), readers)
                entries.append((one, conditions_of(rule.match)))
                self.prepared.append(one)
                self.readers.append(_readers(policy))
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


def _readers(policy: PolicyRule) -> Readers:
    patterns = tuple(map(pattern, policy.match.paths))
    adaptive = policy.adaptive
    parted = None if adaptive is None else adaptive.partitions
    return Readers(
        None if parted is None else key_reader((parted.by,), patterns),
        None if policy.last_good is None else key_reader(policy.last_good.key, patterns),
        None if policy.collapse is None else key_reader(policy.collapse.key, patterns),
    )
