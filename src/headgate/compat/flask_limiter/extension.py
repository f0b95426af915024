"""Limiter: limits on the views of a Flask application."""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Callable
from typing import Any

import flask
from flask.wrappers import Response

from .. import NotOffered
from ..limits.storage import Storage
from ..limits.strategies import RateLimiter
from ..shared import check_retry_after, counting_of, on_error_of, told
from .checks import Checks
from .constants import ALL, ExemptionScope, HeaderNames
from .limits import NO_META, ApplicationLimit, Limit
from .requests import RequestLimit
from .settings import SETTINGS, settled

__all__ = ["Limiter", "RouteLimit"]

logger = logging.getLogger("headgate.compat.flask_limiter")


class Limiter(Checks):
    """Limits for the views of an application.

    Beside those named here it takes the arguments of SETTINGS, each of which may also be a setting
    of the application: `RATELIMIT_DEFAULT = "100/hour"`.
    """

    def __init__(
        self,
        key_func: Callable[[], str],
        *,
        app: flask.Flask | None = None,
        header_name_mapping: dict[HeaderNames, str] | None = None,
        storage_options: dict[str, Any] | None = None,
        meta_limits: Any = None,
        on_meta_breach: Any = None,
        enabled: bool = True,
        **given: Any,
    ) -> None:
        if meta_limits or on_meta_breach:
            raise NotOffered(NO_META)
        strange = set(given) - set(SETTINGS)
        if strange:
            raise TypeError(f"Limiter has no argument {', '.join(sorted(strange))}")
        super().__init__(key_func)
        self.enabled = enabled
        self.initialized = False
        self._given = {**given, "storage_options": storage_options}
        self._names = {
            name.name.lower(): (header_name_mapping or {}).get(name, "") for name in HeaderNames
        }
        self._limiter: RateLimiter | None = None
        if app is not None:
            self.init_app(app)

    def init_app(self, app: flask.Flask) -> None:
        """Count the calls of an application."""
        self.enabled = app.config.setdefault("RATELIMIT_ENABLED", self.enabled)
        if not self.enabled:
            return
        words = settled(self._given, app.config)
        self._swallow = bool(words["swallow_errors"])
        self._first_only = bool(words["fail_on_first_breach"])
        self._headers_enabled = bool(words["headers_enabled"])
        self._on_breach = words["on_breach"]
        self._key_prefix = words["key_prefix"] or ""
        self._identify = words["request_identifier"] or (lambda: flask.request.endpoint or "")
        self._retry_after = words["retry_after"]
        check_retry_after(self._retry_after)
        for name in HeaderNames:
            word = name.name.lower()
            default = app.config.get(f"RATELIMIT_HEADER_{name.name}", name.value)
            self._names[word] = self._names[word] or default
        self._limiter = counting_of(
            words["strategy"],
            words["storage_uri"],
            words["storage_options"],
            on_error_of(
                self._swallow,
                bool(words["in_memory_fallback_enabled"]),
                words["in_memory_fallback"] or (),
            ),
        )
        self._defaults = _limits(Limit, "default_limits", words)
        self._everywhere = _limits(ApplicationLimit, "application_limits", words)
        if self not in app.extensions.setdefault("limiter", set()):
            app.before_request(self.check_request)
            app.after_request(self._after)
            app.teardown_request(self._over)
            app.extensions["limiter"].add(self)
        self.initialized = True

    # -- decorators

    def limit(self, limit_value: str | Callable[[], str], **options: Any) -> RouteLimit:
        """A decorator of a view or a blueprint, whose calls are counted by themselves.

        options   key_func, per_method, methods, error_message, exempt_when, override_defaults,
                  deduct_when, on_breach, cost, scope
        """
        return RouteLimit(limit_value, limiter=self, **_route(options))

    def shared_limit(
        self, limit_value: str | Callable[[], str], scope: Any, **options: Any
    ) -> RouteLimit:
        """A decorator: all views of one scope are counted together."""
        return RouteLimit(limit_value, limiter=self, scope=scope, shared=True, **_route(options))

    def exempt(self, obj: Any = None, *, flags: ExemptionScope = ALL) -> Any:
        """A decorator: the calls of this view or blueprint are not counted."""
        if flags & (ExemptionScope.DESCENDENTS | ExemptionScope.ANCESTORS):
            raise NotOffered(
                "DESCENDENTS and ANCESTORS: name each blueprint, or exempt paths by a rule "
                "(headgate.integrations.flask)"
            )
        if obj is None:
            return functools.partial(self.exempt, flags=flags)
        named = obj.name if isinstance(obj, flask.Blueprint) else inspect.unwrap(obj)
        self._exempt[named] = flags
        return obj

    def request_filter(self, fn: Callable[[], bool]) -> Callable[[], bool]:
        """A decorator: requests of which this function is true are not counted."""
        self._filters.append(fn)
        return fn

    # -- what is known

    @property
    def limiter(self) -> RateLimiter:
        """The strategy that counts."""
        if self._limiter is None:
            raise RuntimeError("this limiter has no application yet: call init_app(app)")
        return self._limiter

    @property
    def storage(self) -> Storage:
        """Where it counts."""
        return self.limiter.storage

    @property
    def current_limit(self) -> RequestLimit | None:
        """What the headers of the present request tell of."""
        return self.context.current

    @property
    def current_limits(self) -> list[RequestLimit]:
        """All limits that the present request was counted by."""
        return self.context.limits

    def reset(self) -> None:
        """Forget all keys, where the storage can."""
        self.storage.reset()

    # -- on the way out

    def _after(self, response: Response) -> Response:
        context = self.context
        try:
            while context.pending:
                one = context.pending.pop()
                one.settle(keep=bool(one.part.deduct_when(response)))
        except Exception:
            if not self._swallow:
                raise
            logger.exception("what a call took could not be given back")
        if self.enabled and self._headers_enabled and context.current is not None:
            for name, value in told(context.current.decision, self._names, self._retry_after):
                if name.lower() != "retry-after" or name not in response.headers:
                    response.headers[name] = value
        return response

    def _over(self, _: BaseException | None = None) -> None:
        # Left over only if there was no response to ask about: then nothing is deducted.
        pending = self.context.pending
        while pending:
            pending.pop().settle(keep=False)


class RouteLimit(Limit):
    """A limit as a decorator of a view, of another function, or of a blueprint."""

    def __init__(
        self,
        limit_provider: str | Callable[[], str],
        *,
        limiter: Limiter,
        override_defaults: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(limit_provider, **options)
        self.override_defaults = override_defaults
        self._limiter = limiter

    def __call__(self, obj: Any) -> Any:
        limiter = self._limiter
        if isinstance(obj, flask.Blueprint):
            limiter.blueprint_limits.setdefault(obj.name, []).append(self)
            return None
        root = inspect.unwrap(obj)
        limiter.decorated.setdefault(root, []).append(self)
        if getattr(obj, "_counted_by", None) is limiter:  # below another decorator of ours
            return obj

        @functools.wraps(obj)
        def counted(*args: Any, **kwargs: Any) -> Any:
            limiter.check_view(root)
            return flask.current_app.ensure_sync(obj)(*args, **kwargs)

        counted._counted_by = limiter  # type: ignore[attr-defined] # a mark that is ours
        return counted

    def __enter__(self) -> None:
        raise NotOffered(
            "a limit as a block: `with headgate.Limiter('10/second').hold(key):` counts what is "
            "inside, and raises headgate.LimitExceeded"
        )

    def __exit__(self, *_: object) -> None:
        """Never reached."""


def _route(options: dict[str, Any]) -> dict[str, Any]:
    """The options of a decorator, under the names of the class."""
    words = {"override_defaults": True, **options}
    if "key_func" in words:
        words["key_function"] = words.pop("key_func")
    return words


def _limits(kind: type[Limit], name: str, words: dict[str, Any]) -> list[Limit]:
    """Limits for all views, of texts and functions with the options for all of them."""
    given = words[name] or []
    options = {
        "per_method": bool(words[f"{name}_per_method"]),
        "exempt_when": words[f"{name}_exempt_when"],
        "deduct_when": words[f"{name}_deduct_when"],
        "cost": words[f"{name}_cost"],
    }
    listed = given if isinstance(given, list | tuple) else [given]
    return [one if isinstance(one, Limit) else kind(one, **options) for one in listed]
