"""Routes: limits that are written beside a function, in the words of a rules file."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ..limit import Limit
from ..rules.match import Matched, Snapshot
from ..rules.model import Defaults, Rule, RuleSet
from ..rules.reading import read_rules

if TYPE_CHECKING:
    from ..facts import Facts
    from ..gate import Gate, Verdict

__all__ = ["Joined", "Key", "Own", "defaults_of", "tell"]

Key = str | Sequence[str] | Callable[[Any], Any]
"""What to count by, in the words of a rules file, or a function of the request."""

_STRANGE = re.compile(r"[^A-Za-z0-9._:/@+-]")


class Own:
    """Limits of one function; what else is said of them is said as in a rules file.

    >>> Own(("5/minute",), "ip", "", {"count": "failures"}).rule("login").name
    'login'
    """

    def __init__(
        self, limits: Sequence[str | Limit], key: Key, name: str, words: dict[str, Any]
    ) -> None:
        if not limits:
            raise TypeError("a limit is missing, such as '5/minute'")
        self.limits = [str(limit) for limit in limits]
        self.key = key
        self.name = name
        """Functions of one name count together; without one each counts for itself."""
        self.words = words
        self.rule("limited")  # what is wrong is told where it is written

    def rule(self, name: str, before: Sequence[str] = (), place: int = 0) -> Rule:
        """The rule for them; `name` is for those without one, `before` is what its key begins with.

        Of several for one call each has a `place` of its own.
        """
        key: Any = self.key
        parts = [f"arg:key{place}"] if callable(key) else [key] if isinstance(key, str) else [*key]
        said = {
            **self.words,
            "name": self.name or _STRANGE.sub("-", name)[-100:],
            "key": [*before, *parts],
            "limits": self.limits,
        }
        text = json.dumps({"version": 1, "rules": [said]})
        return read_rules(text, name="limited()", format="json").rules[0]

    @property
    def text(self) -> str:
        """What tells them from others of the same view."""
        key: Any = getattr(self.key, "__qualname__", self.key)
        return f"{', '.join(self.limits)} by {key if isinstance(key, str) else ', '.join(key)}"

    def args(self, request: Any, place: int = 0) -> dict[str, Any]:
        """What the function that is the key says of a request."""
        return self.args_of(self.key(request), place) if callable(self.key) else {}

    def args_of(self, key: Any, place: int = 0) -> dict[str, Any]:
        """What is known of a request if that function has been asked already."""
        return {f"key{place}": key}


def defaults_of(gate: Any) -> Defaults:
    """What the rules of a gate say for all, so that others beside them do the same."""
    book = gate._book
    return Defaults(on_error=book._on_error, headers=book.format)


class Joined:
    """A gate with more rules, asked together: still one call of the store."""

    def __init__(self, gate: Gate, rules: Iterable[Rule]) -> None:
        self._gate = gate
        self._rules = tuple(rules)
        self._own = Snapshot(RuleSet(self._rules))
        self._base: Any = None
        self._face: Any = None

    def check(self, facts: Facts) -> Verdict:
        """As the gate's own; rules that it takes up later count from then on."""
        base, face = self._base, self._face
        if base is not self._gate._book:
            face = self._renewed()
        verdict: Verdict = face.check(facts)
        return verdict

    def _renewed(self) -> Any:
        base = self._gate._book
        face: Any = copy.copy(self._gate)  # at the same desk, watched by the same
        face._prepared = {}
        face._install(_Both(base, self._own, RuleSet(self._rules, defaults_of(self._gate))))
        self._face = face
        self._base = base  # the last, as others may be asking
        return face


class _Both:
    """A snapshot of two: what frees or refuses a call in one holds for both."""

    def __init__(self, base: Any, own: Snapshot, ruleset: RuleSet) -> None:
        self._base, self._own = base.match, own.match
        self.guards = base.guards
        self.ruleset = ruleset

    def match(self, facts: Facts) -> Matched:
        base: Matched = self._base(facts)
        if base.exempt is not None or base.denied is not None:
            return base
        own = self._own(facts)
        if own.exempt is not None or own.denied is not None:
            return own
        return Matched((*base.bounds, *own.bounds), shadowed=(*base.shadowed, *own.shadowed))


def tell(headers: Any, pairs: Iterable[tuple[str, str]]) -> None:
    """Add to the headers of a response, a mapping; lists go on, and the rest stays as it was."""
    for name, value in pairs:
        if name not in headers:
            headers[name] = value
        elif name in ("RateLimit", "RateLimit-Policy"):
            headers[name] = f"{headers[name]}, {value}"
