"""A limit with all that its decorator was told."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from starlette.requests import Request

from .. import NotOffered
from ..limits import RateLimitItem, parse_many

__all__ = ["Group", "Limit"]


@dataclass(frozen=True)
class Limit:
    """One limit, and whom and what it is for."""

    limit: RateLimitItem
    group: Group

    @property
    def error_message(self) -> str | Callable[..., str] | None:
        """What a refused call is told in place of the limit."""
        return self.group.error_message

    def __getattr__(self, name: str) -> Any:
        return getattr(self.group, name)


@dataclass(frozen=True)
class Group:
    """The limits of one decorator, from a text or from a function that gives one."""

    provider: str | Callable[..., str]
    key_func: Callable[..., str]
    scope: str = ""
    per_method: bool = False
    methods: Sequence[str] | None = None
    error_message: str | Callable[..., str] | None = None
    exempt_when: Callable[..., bool] | None = None
    cost: int | Callable[..., int] = 1
    override_defaults: bool = True
    items: tuple[RateLimitItem, ...] = ()

    def ready(self) -> Group:
        """The same, read and checked once and for all."""
        if callable(self.scope):
            raise NotOffered("a shared limit's scope is a text; take one shared_limit for each")
        methods = None if self.methods is None else [word.lower() for word in self.methods]
        items = () if callable(self.provider) else tuple(parse_many(self.provider))
        return replace(self, methods=methods, items=items)

    def limits(self, request: Request) -> list[Limit]:
        """The limits that hold for a request."""
        items: Sequence[RateLimitItem] = self.items
        if callable(self.provider):
            takes = "key" in _arguments(self.provider)
            given = self.provider(self.key(request)) if takes else self.provider()
            items = parse_many(given)
        return [Limit(item, self) for item in items]

    def key(self, request: Request) -> str:
        """Whom a request is counted for."""
        takes = "request" in _arguments(self.key_func)
        return self.key_func(request) if takes else self.key_func()

    def spares(self, request: Request) -> bool:
        """Whether this request is not counted."""
        if self.methods is not None and request.method.lower() not in self.methods:
            return True
        if self.exempt_when is None:
            return False
        takes = len(_arguments(self.exempt_when)) == 1
        return bool(self.exempt_when(request) if takes else self.exempt_when())

    def price(self, request: Request) -> int:
        """What a request costs."""
        return self.cost(request) if callable(self.cost) else self.cost


@lru_cache(maxsize=1024)
def _arguments(function: Callable[..., Any]) -> tuple[str, ...]:
    return tuple(inspect.signature(function).parameters)
