"""A limit with all that it was told."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from flask import request
from flask.wrappers import Response

from .. import NotOffered
from ..limits import RateLimitItem, parse_many

__all__ = ["NO_META", "ApplicationLimit", "Limit", "MetaLimit", "Part"]

NO_META = (
    "meta limits, which count refusals: give on_breach= a function that counts them by a "
    "headgate.Limiter and answers with a Response"
)


@dataclass(eq=False)
class Limit:
    """The limits of a text or of a function that gives one, and whom and what they are for."""

    limit_provider: str | Callable[[], str]
    key_function: Callable[[], str] | None = None
    scope: str | Callable[[str], str] | None = None
    cost: int | Callable[[], int] | None = None
    shared: bool = False
    methods: Sequence[str] | None = None
    per_method: bool = False
    error_message: str | Callable[[], str] | None = None
    meta_limits: Any = None
    exempt_when: Callable[[], bool] | None = None
    deduct_when: Callable[[Response], bool] | None = None
    on_breach: Callable[[Any], Response | None] | None = None
    override_defaults: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        if self.meta_limits:
            raise NotOffered(NO_META)
        self.methods = None if self.methods is None else [word.lower() for word in self.methods]
        given = self.limit_provider
        self.items = None if callable(given) else parse_many(given)

    def __iter__(self) -> Iterator[Part]:
        items = self.items
        if items is None and callable(self.limit_provider):
            text = self.limit_provider()
            items = parse_many(text) if text else []
        return (Part(item, self) for item in items or ())

    @property
    def other_method(self) -> bool:
        """Whether the present request is not of the methods that are counted."""
        return self.methods is not None and request.method.lower() not in self.methods

    def spares(self) -> bool:
        """Whether the present request is not counted."""
        return self.other_method or bool(self.exempt_when and self.exempt_when())

    def scope_for(self, endpoint: str) -> str:
        """What the present request is counted with."""
        scope = self.scope(request.endpoint or "") if callable(self.scope) else self.scope
        words = [scope] if scope and self.shared else [endpoint, *([scope] if scope else [])]
        if self.per_method:
            words.append(request.method.upper())
        return ":".join(words)

    def price(self) -> int:
        """What the present request costs."""
        found = self.cost() if callable(self.cost) else self.cost
        return 1 if found is None else found


@dataclass(eq=False)
class ApplicationLimit(Limit):
    """A limit on all views together."""

    scope: str | Callable[[str], str] | None = "global"
    shared: bool = field(default=True, init=False)


class MetaLimit:
    """Not offered."""

    def __init__(self, *_: Any, **__: Any) -> None:
        raise NotOffered(NO_META)


class Part:
    """One of the limits of a text."""

    __slots__ = ("group", "limit")

    def __init__(self, item: RateLimitItem, group: Limit) -> None:
        self.limit = item
        self.group = group

    def __getattr__(self, name: str) -> Any:
        return getattr(self.group, name)
