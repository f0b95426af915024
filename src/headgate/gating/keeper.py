"""Keeper: which rules a gate has in force, where they come from, and how they change."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ..errors import HeadgateError
from ..keys import Key
from ..stores import MemoryStore
from ..workers import made
from .book import Book

if TYPE_CHECKING:
    from ..clock import Clock
    from ..limit import Limit
    from ..resilience.breaker import Breaker, Fleet
    from ..resilience.notices import Notice
    from ..stores.base import Store
    from .desk import Desk
    from .guards import Guards

__all__ = ["Keeper"]


class Keeper:
    """What keeps the rules of a gate."""

    coloured: bool
    """Whether callers await."""

    name: str
    store: Store
    _desk: Desk
    _book: Book
    _clock: Clock | None
    _roomy: bool
    """Whether somebody else says how much room elastic limits have."""
    snapshot: Any
    """The rules in force, ready to be matched."""

    def __init__(self, functions: Mapping[str, Callable[..., Any]] | None) -> None:
        self._functions = dict(functions or {})
        self._found: dict[str, Callable[..., Any]] = {}
        self._prepared: dict[int, Any] | None = {}
        """The prepared ways of the rules in force; None while they are closed: see workers."""
        self.on_notice: list[Callable[[Notice], object]] = []
        """Called with each Notice of the policies: changes of state, refusals, new limits; what
        they raise is dropped."""
        self._made = False
        self._updates = self._errors = 0
        self._last_error = ""
        self._loaded_at = 0.0
        self._source: Any = None
        self._started = False

    def _open(self, rules: Any) -> None:
        if not callable(getattr(rules, "start", None)):
            self.reload(rules)
            return
        self._source = rules
        self._started = not rules.status()["following"]
        before = rules.on_rules
        if before is None:
            rules.on_rules = self._install
        else:  # several gates follow one source

            def both(new: Any) -> None:
                before(new)
                self._install(new)

            rules.on_rules = both
        current = rules.start()
        if self._updates == 0:  # it was under way already
            self._install(current)

    def reload(self, rules: Any) -> None:
        """Put other rules in force: a RuleSet, the path of a file, its text, or a snapshot.

        Calls under way end by the rules they began with; keys keep what they have used. If the
        new rules are wrong that is raised, and the old ones stay.
        """
        try:
            self._install(_read(rules))
        except Exception as error:
            self._errors += 1
            self._last_error = str(error)
            raise

    def _install(self, rules: Any) -> None:
        if callable(getattr(rules, "match", None)):
            snapshot, rules = rules, getattr(rules, "ruleset", rules)
        else:
            from ..rules.match import Snapshot

            snapshot = Snapshot(rules)
        # The book is put in place whole: whoever checks has all of the old rules or of the new.
        before = getattr(getattr(self, "_book", None), "guards", None)
        guards = self._guards_of(snapshot, rules, before)
        self._book = Book(self._desk, snapshot, rules, self.coloured, guards)
        self.snapshot = snapshot
        if guards is not before:
            if guards is not None:
                guards.begin()
            if before is not None:
                before.end(guards)
        if not self._roomy:
            system = guards.system if guards is not None else None
            self._desk.follow(None if system is None else system.room)
        self.open()
        self._updates += 1
        self._last_error = ""
        self._loaded_at = time.time()
        if not self._made and self._book.limits and isinstance(self.store, MemoryStore):
            self._made = True
            made(self)

    def _guards_of(self, snapshot: Any, rules: Any, before: Guards | None) -> Guards | None:
        """The policies of new rules; those that stay as they were keep what they know."""
        known: Guards | None = getattr(snapshot, "guards", None)
        if known is not None:
            return known
        if not getattr(rules, "policies", ()) and getattr(rules, "system", None) is None:
            return None
        from .guards import Guards

        return Guards(rules, self._clock, self._notice, before, self.store, self.name)

    def _notice(self, notice: Notice) -> None:
        if notice.kind in ("breaker.state", "system.strained", "system.relieved"):
            _log(notice)
        for hook in list(self.on_notice):
            try:
                hook(notice)
            except Exception:  # who watches must not break what is watched
                continue

    def breaker(self, policy: str, key: Key = "") -> Breaker:
        """The breaker of a policy, to be looked at, or switched by hand."""
        guards = self._book.guards
        if guards is None:
            raise LookupError(f"there is no policy {policy!r}; the rules have none")
        return guards.breaker(policy, key)

    def fleet(self, policy: str) -> Fleet:
        """The fleet that a policy's breaker belongs to: how it stands, and one switch for all."""
        guards = self._book.guards
        if guards is None:
            raise LookupError(f"there is no policy {policy!r}; the rules have none")
        return guards.fleet(policy)

    def policies(self) -> dict[str, dict[str, Any]]:
        """What the policies are at now, by name: states of breakers, calls inside, limits."""
        if self._book.guards is None:
            return {}
        from .standing import standing_of

        return standing_of(self._book.guards)

    def open(self) -> None:
        """Let checks take the prepared ways, unless they are closed for the moment."""
        if self._prepared is not None:
            self._prepared = self._book.ways

    @property
    def limits(self) -> tuple[Limit, ...]:
        """All limits of the rules in force, but for those of plans."""
        return self._book.limits

    def status(self) -> dict[str, Any]:
        """What is known of the rules in force, and of what went wrong with others."""
        book, guards = self._book, self._book.guards
        found: dict[str, Any] = {
            "name": self.name,
            "source": book.source,
            "digest": book.digest,
            "rules": book.count,
            "policies": 0 if guards is None else len(guards.rules),
            "system": guards is not None and guards.system is not None,
            "loaded_at": self._loaded_at,
            "updates": self._updates,
            "errors": self._errors,
            "last_error": self._last_error or None,
            "following": False,
        }
        if self._source is not None:
            found.update(self._source.status())
        return found

    def function(self, name: str) -> Callable[..., Any]:
        """What a rule calls by this name: one of the gate's functions, or `module:function`.

        Rules that others publish name functions of the gate alone.
        """
        found = self._functions.get(name) or self._found.get(name)
        if found is None:
            if self._source is not None and getattr(self._source, "kind", "") != "file":
                raise HeadgateError(
                    f"rules from {self._source.name} call {name!r}, which the gate was not given: "
                    "Gate(..., functions={name: function})"
                )
            found = self._found[name] = _imported(name)
        return found

    def _stop(self) -> None:
        if self._book.guards is not None:
            self._book.guards.close()
        if self._started:
            self._started = False
            self._source.stop()


def _read(rules: Any) -> Any:
    if isinstance(rules, str | os.PathLike):
        from ..rules.either import load_either, read_either
        from ..rules.reading import format_of

        if isinstance(rules, str) and ("\n" in rules or rules.lstrip().startswith("{")):
            toml = format_of(rules) == "toml"  # of the others, YAML is both
            return read_either(rules, name="rules.toml" if toml else "rules.yaml")
        return load_either(rules)
    if not hasattr(rules, "rules") and not callable(getattr(rules, "match", None)):
        raise TypeError(
            f"rules are a RuleSet, a file's path, its text or a source, not {type(rules).__name__}"
        )
    return rules


def _log(notice: Notice) -> None:
    """One line for what whoever is called at night wants to find; it never breaks the call."""
    try:
        import logging

        logger, values = logging.getLogger("headgate"), notice.values
        if notice.kind == "breaker.state":
            level = logging.WARNING if values["state"] == "open" else logging.INFO
            said = "policy %s: the breaker was %s and is %s: %s"
            logger.log(level, said, notice.name, values["before"], values["state"], values["why"])
        else:
            logger.warning("%s, pressure %.2f", notice.kind, values["pressure"])
    except Exception:  # whoever logs may fail, the call does not
        pass


def _imported(name: str) -> Callable[..., Any]:
    from importlib import import_module

    module, colon, path = name.partition(":")
    try:
        found: Any = import_module(module)
        for part in path.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError, ValueError) as error:
        raise HeadgateError(f"there is no function {name!r}: {error}") from error
    if not colon or not callable(found):
        raise HeadgateError(f"{name!r} is no function; write module:function")
    result: Callable[..., Any] = found
    return result
