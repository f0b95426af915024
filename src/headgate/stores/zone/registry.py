"""Registry: the rules that states were written under, known to every process by a number.

A rule is a limit's text and the open share of its elastic part. Its number is that of the chunk
which holds it, and it is never forgotten while the zone lives, so a process may remember what it
has read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...algorithms import rule_of
from ...errors import StoreError
from ...limit import Limit
from .engine import Engine, Full
from .places import IS_RULE, LINK, RULES

__all__ = ["MOST_RULES", "Registry"]

MOST_RULES = 1 << 15
PERMILLE, TEXT = 2, 3


class Registry:
    """Rules by number and numbers by rule."""

    def __init__(self, engine: Engine, name: Callable[[bytes], int]) -> None:
        self._engine = engine
        self._name = name
        self._rules: dict[int, Any] = {}
        self._numbers: dict[tuple[str, int], int] = {}
        self._new: list[tuple[int, tuple[str, int]]] = []

    def rule(self, number: int) -> Any:
        """The rule of a number."""
        rule = self._rules.get(number)
        if rule is None:
            rule = self._rules[number] = self._read(number)
        return rule

    def known(self, rule: Any) -> int:
        """The number of a rule, if this process has used it; 0 if not, or not for certain."""
        return 0 if self._new else self._numbers.get((rule.limit.text, rule.permille), 0)

    def number(self, rule: Any) -> int:
        """The number of a rule, which is entered if it is new."""
        text = (rule.limit.text, rule.permille)
        number = self._numbers.get(text)
        if number is None:
            number = self._find(*text)
            if not number:
                number = self._enter(*text)
                self._new.append((number, text))
            self._numbers[text] = number
        return number

    def commit(self) -> None:
        """What was entered stays."""
        if self._new:
            self._new.clear()

    def forget(self) -> None:
        """Forget what was entered and not committed."""
        while self._new:
            number, text = self._new.pop()
            self._rules.pop(number, None)
            self._numbers.pop(text, None)

    def _find(self, text: str, permille: int) -> int:
        at = self._engine.find(self._named(text, permille), IS_RULE)
        return self._engine.chunk(at) if at else 0

    def _named(self, text: str, permille: int) -> int:
        return self._name(b"rule %d %b" % (permille, text.encode()))

    def _enter(self, text: str, permille: int) -> int:
        engine, data = self._engine, text.encode()
        if engine.get(RULES) >= MOST_RULES:
            raise StoreError(
                f"the zone {engine.path} knows {MOST_RULES} different limits and takes no more; "
                "give keys limits from a smaller set"
            )
        at = engine.insert(self._named(text, permille), IS_RULE)
        if not at:
            raise Full(f"the zone {engine.path} is full")
        engine.put(at + PERMILLE, permille)
        engine.put(at + TEXT, engine.save(0, data) | len(data) << 32)
        engine.add(RULES, 1)
        return engine.chunk(at)

    def _read(self, number: int) -> Any:
        engine = self._engine
        at = engine.at(number)
        if engine.kind(at) != IS_RULE:
            raise engine.damaged("the number of a limit")
        permille, text = engine.get(at + PERMILLE), engine.get(at + TEXT)
        try:
            limit = Limit.parse(engine.load(text & LINK, text >> 32).decode())
        except ValueError:
            limit = None
        if limit is None or not 0 <= permille <= 1000:
            raise engine.damaged("the text of a limit")
        return rule_of(limit, permille)
