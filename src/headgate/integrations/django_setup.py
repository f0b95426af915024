"""Django's settings: what HEADGATE says, the gates made of it, and who calls.

Who calls is found out when a rule asks for it: a flood that is counted by address costs no query.
"""

from __future__ import annotations

import threading
from typing import Any

from asgiref.sync import async_to_sync, iscoroutinefunction, sync_to_async
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured, SynchronousOnlyOperation
from django.core.signals import setting_changed
from django.utils.module_loading import import_string

from ..gate import AsyncGate, Gate
from ..limit import Limit
from ..rules.model import RuleSet
from .common import Find, Finder, known_of
from .environs import UNKNOWN, EnvironFacts, EnvironGate, Words
from .routes import Own, defaults_of

__all__ = ["LaterFacts", "Setup", "Wanted", "asked", "configured", "signed_in"]

AUTH = "django.contrib.auth.middleware.AuthenticationMiddleware"
DOTTED = (*Find._fields, "gate", "body", "failed", "room", "clock")
"""What settings may also name by its dotted path."""


def signed_in(request: Any) -> Any:
    """The primary key of the user, if there is one."""
    if not hasattr(request, "user") and AUTH in settings.MIDDLEWARE:
        raise ImproperlyConfigured(f"nobody is known yet: put RateLimitMiddleware below {AUTH}")
    return _key_of(getattr(request, "user", None))


def _key_of(user: Any) -> Any:
    return user.pk if user is not None and user.is_authenticated else None


async def asked(finder: Finder, request: Any) -> Any:
    """What a function says of a request, asked by a task."""
    if finder is signed_in and hasattr(request, "auser"):
        return _key_of(await request.auser())
    if iscoroutinefunction(finder):
        return await finder(request)
    try:
        return finder(request)
    except SynchronousOnlyOperation:  # it needs the database
        return await sync_to_async(finder)(request)


class Wanted(Exception):
    """A rule asks for something that has to be awaited."""


class LaterFacts(EnvironFacts):
    """Facts for tasks: who calls is awaited, if a rule wants it."""

    __slots__ = ()

    def _found(self, name: str) -> Any:
        if getattr(self._find, name, None) is not None:
            raise Wanted(name)
        return UNKNOWN[name]

    async def learn(self, *names: str) -> None:
        """Find out what is not known yet."""
        for name in names:
            try:
                getattr(self, name)
            except Wanted:
                value = await asked(getattr(self._find, name), self._request)
                known = known_of(Find(**{name: lambda _, it=value: it}), None)
                setattr(self, name, known.get(name, UNKNOWN[name]))


class Setup:
    """What the setting HEADGATE says, and the gates made of it."""

    def __init__(self, said: dict[str, Any]) -> None:
        words: dict[str, Any] = {name.lower(): value for name, value in said.items()}
        unknown = set(words) - set(Words.__annotations__) - {"limits"}
        if unknown:
            raise ImproperlyConfigured(f"HEADGATE has no {', '.join(sorted(unknown)).upper()}")
        for word in DOTTED:
            if isinstance(words.get(word), str):
                words[word] = import_string(words[word])
        words.setdefault("user", signed_in)
        limits = words.pop("limits", None) or ()
        self._limits = (limits,) if isinstance(limits, str | Limit) else tuple(limits)
        self.given = bool(self._limits or words.get("rules") or words.get("gate"))
        if not self.given:
            words["rules"] = RuleSet()
        self._words = words
        self._ways: dict[Any, EnvironGate] = {}
        self._lock = threading.RLock()
        self._base: Any = words.get("gate")
        """A gate of either kind, whose store the others share."""

    def way(self, kind: type[Any], own: Own | None = None, space: str = "") -> EnvironGate:
        """The gate for all requests, or the one for limits of their own.

        space   what counts together; without one each view counts for itself
        """
        found = self._ways.get((kind, own))
        if found is None:
            with self._lock:
                found = self._ways.get((kind, own)) or self._made(kind, own, space)
                self._ways[kind, own] = found
        return found

    def _made(self, kind: type[Any], own: Own | None, space: str) -> EnvironGate:
        words, limits = {**self._words}, self._limits
        if own is not None:
            if self._base is None:
                self.way(kind)
            words["name"] = f"{self._base.name}/{space or own.text}"
            rule = own.rule("limited", () if space else ("resource",))
            words["rules"] = RuleSet((rule,), defaults_of(self._base))
            words["gate"], limits = None, ()
        if self._base is not None and words.get("gate") is None:
            words["store"] = self._base.store
            words.pop("clock", None)
        if kind is Gate:
            for word in Find._fields:
                if iscoroutinefunction(words.get(word)):
                    words[word] = async_to_sync(words[word])
        made = EnvironGate(limits, kind, **words)
        made.facts_kind = LaterFacts if kind is AsyncGate else EnvironFacts
        if self._base is None:
            self._base = made.gate
        return made


_setup: Setup | None = None
_making = threading.Lock()


def configured() -> Setup:
    """What the settings say now."""
    global _setup
    found = _setup
    if found is None:
        with _making:
            found = _setup = _setup or Setup(getattr(settings, "HEADGATE", {}))
    return found


def _changed(*, setting: str, **_: Any) -> None:
    global _setup
    if setting == "HEADGATE":
        _setup = None


setting_changed.connect(_changed)  # tests change settings
