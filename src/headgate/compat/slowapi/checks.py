"""Checks: which limits hold for a request, and whether it may pass."""

from __future__ import annotations

import inspect
import logging
from typing import Any

from starlette.requests import Request

from ...decision import Decision
from ...flows import Flow
from ..limits import RateLimitItem
from ..limits.strategies import RateLimiter, Wanted
from .errors import RateLimitExceeded
from .wrappers import Group, Limit

__all__ = ["Checks", "Current"]

logger = logging.getLogger("headgate.compat.slowapi")


class Current(tuple[RateLimitItem, list[str]]):
    """What headers tell of: an item, and what it was counted by."""

    decision: Decision


class Checks:
    """The checking half of a limiter."""

    enabled: bool
    _auto_check: bool
    _swallow: bool
    _key_prefix: str
    _key_style: str
    _limiter: RateLimiter

    def __init__(self) -> None:
        self._defaults: list[Group] = []
        self._everywhere: list[Group] = []
        self._decorated: dict[Any, list[Group]] = {}
        self._exempt: set[Any] = set()

    def leaves_alone(self, view: Any) -> bool:
        """Whether the middleware has nothing to say about a route."""
        root = inspect.unwrap(view) if callable(view) else None
        return not self.enabled or root is None or root in self._exempt or root in self._decorated

    def _due(self, request: Request) -> bool:
        """Whether to check now; of several decorators only the outermost does."""
        state = request.state
        due = self._auto_check and not getattr(state, "_rate_limiting_complete", False)
        state._rate_limiting_complete = True
        if not hasattr(state, "view_rate_limit"):
            state.view_rate_limit = None
        return due

    def checking(self, request: Request, view: Any, *, everywhere: bool = False) -> Flow[None]:
        """The flow of a check; raises RateLimitExceeded."""
        request.state.view_rate_limit = None
        try:
            found = self._wanted(request, view, everywhere)
            decisions = yield from self._limiter.deciding([one for _, one in found])
        except Exception:
            if not self._swallow:
                raise
            logger.exception("a call could not be counted and passes")
            return
        refused = [n for n, decision in enumerate(decisions) if not decision.allowed]
        if not found:
            return
        shown = refused[0] if refused else min(range(len(found)), key=lambda n: found[n][0].limit)
        limit, wanted = found[shown]
        current = Current((limit.limit, list(wanted.identifiers)))
        current.decision = decisions[shown]
        request.state.view_rate_limit = current
        if refused:
            logger.warning("%s is over %s", wanted.identifiers, limit.limit)
            raise RateLimitExceeded(limit)

    def _wanted(self, request: Request, view: Any, everywhere: bool) -> list[tuple[Limit, Wanted]]:
        root = inspect.unwrap(view)
        if root in self._exempt:
            return []
        own = self._decorated.get(root, [])
        groups = [*(self._everywhere if everywhere else ()), *own]
        if not any(group.override_defaults for group in own):
            groups += self._defaults
        by_url = self._key_style == "url"
        endpoint = request.scope["path"] if by_url else f"{root.__module__}.{root.__name__}"
        found = []
        for group in groups:
            if group.spares(request):
                continue
            for limit in group.limits(request):
                scope = (group.scope or endpoint) + f":{request.method}" * group.per_method
                key = group.key(request)
                if not key:
                    logger.error("%s counts nobody: its key function found no key", limit.limit)
                    continue
                ids = [self._key_prefix, key, scope] if self._key_prefix else [key, scope]
                found.append((limit, Wanted(limit.limit, ids, group.price(request))))
        return found
