"""Checks: which limits hold for the present request, and whether it may pass."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import flask
from flask.wrappers import Response

from ..limits.strategies import Wanted
from .constants import ExemptionScope
from .errors import RateLimitExceeded
from .limits import Limit, Part
from .requests import Context, RequestLimit

if TYPE_CHECKING:
    from ..limits.strategies import RateLimiter

__all__ = ["Checks"]

PLACE = "headgate.compat.flask_limiter"
logger = logging.getLogger(PLACE)


class Checks:
    """The checking half of a limiter."""

    enabled: bool
    initialized: bool
    _swallow = False
    _first_only = True
    _headers_enabled = False
    _on_breach: Callable[[RequestLimit], Response | None] | None = None
    _key_prefix = ""
    _identify: Callable[[], str]

    def __init__(self, key_func: Callable[[], str]) -> None:
        self._key_func = key_func
        self.decorated: dict[Any, list[Limit]] = {}
        self.blueprint_limits: dict[str, list[Limit]] = {}
        self._exempt: dict[Any, ExemptionScope] = {}
        self._filters: list[Callable[[], bool]] = []
        self._defaults: list[Limit] = []
        self._everywhere: list[Limit] = []

    @property
    def limiter(self) -> RateLimiter:
        """The strategy that counts."""
        raise NotImplementedError

    @property
    def context(self) -> Context:
        """What this limiter knows of the present request."""
        all_of_them = flask.request.environ.setdefault(PLACE, {})
        found: Context = all_of_them.setdefault(id(self), Context())
        return found

    def check_request(self) -> None:
        """Count a request before its view is called."""
        view = _view()
        flags = self._flags(view)
        groups = [] if flags & ExemptionScope.APPLICATION else list(self._everywhere)
        if view not in self.decorated:
            own = self._of_blueprint()
            groups += self._with_defaults(own, flags)
        self._check(groups)

    def check_view(self, root: Any) -> None:
        """Count a request when a decorated function is called."""
        own = [] if self._exempt.get(root) else list(self.decorated[root])
        if all(not group.override_defaults for group in own):
            own += self._of_blueprint()
        view = _view()
        # The defaults of other functions than views were counted before the view was called.
        flags = self._flags(view) if view is root else ExemptionScope.DEFAULT
        self._check(self._with_defaults(own, flags))

    def _with_defaults(self, own: list[Limit], flags: ExemptionScope) -> list[Limit]:
        """Limits, with the defaults unless they stand in their place."""
        beside = all(group.other_method for group in own)
        beside = beside or all(not group.override_defaults for group in own)
        seen = self.context.seen
        if flags & ExemptionScope.DEFAULT or not beside:
            return own
        defaults = [group for group in self._defaults if id(group) not in seen]
        seen.update(map(id, defaults))
        return [*defaults, *own]

    def _flags(self, view: Any) -> ExemptionScope:
        flags = self._exempt.get(view, ExemptionScope.NONE)
        name = self._blueprint()
        return flags | self._exempt.get(name, ExemptionScope.NONE) if name else flags

    def _blueprint(self) -> str:
        named = flask.request.blueprint
        found = flask.current_app.blueprints.get(named) if named else None
        return found.name if found is not None else ""

    def _of_blueprint(self) -> list[Limit]:
        """The limits of the present blueprint, and of those around it unless it overrides them."""
        name = self._blueprint()
        if not name or self._exempt.get(name, ExemptionScope.NONE) & ExemptionScope.META:
            return []
        own = self.blueprint_limits.get(name, [])
        if own and all(group.override_defaults for group in own):
            return list(own)
        around = (flask.request.blueprint or "").split(".")
        return [group for one in around for group in self.blueprint_limits.get(one, [])]

    def _check(self, groups: list[Limit]) -> None:
        if not (self.enabled and self.initialized):
            return
        try:
            identity = self._identify()
            static = identity.rpartition(".")[2] == "static"
            if not identity or static or any(spares() for spares in self._filters):
                return
            found = self._counted(groups, identity)
        except Exception:
            if not self._swallow:
                raise
            logger.exception("a call could not be counted and passes")
            return
        self._judge(found)

    def _counted(self, groups: list[Limit], identity: str) -> list[RequestLimit]:
        """Take from all limits that hold, or from none."""
        parts = [part for group in groups if not group.spares() for part in group]
        wanted: list[tuple[Part, Wanted]] = []
        for part in sorted(parts, key=lambda part: part.limit):
            group = part.group
            key = (group.key_function or self._key_func)()
            if not key:
                logger.error("%s counts nobody: its key function found no key", part.limit)
                continue
            ids = [key, group.scope_for(identity)]
            ids = [self._key_prefix, *ids] if self._key_prefix else ids
            wanted.append((part, Wanted(part.limit, ids, group.price())))
        limiter = self.limiter
        flow = limiter.deciding([one for _, one in wanted])
        decisions = limiter.storage.run(flow)
        return [
            RequestLimit(limiter, part, one, decision)
            for (part, one), decision in zip(wanted, decisions, strict=True)
        ]

    def _judge(self, found: list[RequestLimit]) -> None:
        context = self.context
        failed = [one for one in found if one.breached]
        if failed and self._first_only:
            failed = failed[:1]
        alone = [one for one in found if not one.shared]
        context.current = failed[-1] if failed else next(iter(alone or found), None)
        context.limits = found
        if not failed:
            context.pending += [one for one in found if one.part.deduct_when is not None]
            return
        logger.info("%s is over %s", failed[0].key, failed[0].limit)
        response = None
        for one in failed:
            for call in dict.fromkeys([self._on_breach, one.part.on_breach]):
                said = self._said(call, one) if call is not None else None
                response = said if isinstance(said, Response) else response
        raise RateLimitExceeded(failed[0].part, response=response)

    def _said(self, call: Callable[[RequestLimit], Any], one: RequestLimit) -> Any:
        try:
            return call(one)
        except Exception:
            if not self._swallow:
                raise
            logger.exception("on_breach failed")
            return None


def _view() -> Any:
    """The function that answers the present request, below all decorators."""
    view = flask.current_app.view_functions.get(flask.request.endpoint or "")
    return None if view is None else inspect.unwrap(view)
