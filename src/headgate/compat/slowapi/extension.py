"""Limiter: limits on routes, by decorators and for all of them."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from starlette.config import Config
from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from .. import NotOffered
from ..limits.strategies import RateLimiter
from ..shared import HEADERS, check_retry_after, counting_of, on_error_of, told
from .checks import Checks, Current
from .errors import RateLimitExceeded
from .wrappers import Group

__all__ = ["Limiter"]

View = TypeVar("View", bound=Callable[..., Any])
Text = str | Callable[..., str]


def _rate_limit_exceeded_handler(request: Request, exc: RateLimitExceeded) -> Response:
    """The response to a call over its limit, as JSON."""
    response = JSONResponse({"error": f"Rate limit exceeded: {exc.detail}"}, status_code=429)
    limiter: Limiter = request.app.state.limiter
    limiter._inject_headers(response, request.state.view_rate_limit)
    return response


class Limiter(Checks):
    """Limits for the routes of an application, which knows it as `app.state.limiter`."""

    def __init__(
        self,
        key_func: Callable[..., str],
        default_limits: Sequence[Text] = (),
        application_limits: Sequence[Text] = (),
        headers_enabled: bool = False,
        strategy: str | None = None,
        storage_uri: str | None = None,
        storage_options: dict[str, Any] | None = None,
        auto_check: bool = True,
        swallow_errors: bool = False,
        in_memory_fallback: Sequence[Text] = (),
        in_memory_fallback_enabled: bool = False,
        retry_after: str | None = None,
        key_prefix: str = "",
        enabled: bool = True,
        config_filename: str | None = None,
        key_style: str = "url",
    ) -> None:
        super().__init__()
        if key_style not in ("url", "endpoint"):
            raise ValueError(f"key_style is url or endpoint, not {key_style!r}")
        file = config_filename or (".env" if Path(".env").is_file() else None)
        config = Config(file)

        def said(word: str, default: Any = None, cast: type[Any] = str) -> Any:
            return config(f"RATELIMIT_{word}", cast=cast, default=default)

        if said("STORAGE_OPTIONS") or said("IN_MEMORY_FALLBACK"):
            raise NotOffered(
                "RATELIMIT_STORAGE_OPTIONS and RATELIMIT_IN_MEMORY_FALLBACK: write a store's "
                "options into RATELIMIT_STORAGE_URL, such as redis://host:6379?on_error=local"
            )
        self.enabled: bool = said("ENABLED", enabled, bool)
        self._swallow = said("SWALLOW_ERRORS", swallow_errors, bool)
        self._headers_enabled = headers_enabled or said("HEADERS_ENABLED", False, bool)  # noqa: FBT003 # as config has it
        self._retry_after = retry_after or said("HEADER_RETRY_AFTER_VALUE")
        check_retry_after(self._retry_after)
        fallback = in_memory_fallback_enabled or said("IN_MEMORY_FALLBACK_ENABLED", False, bool)  # noqa: FBT003 # as above
        self._limiter = counting_of(
            strategy or said("STRATEGY", "fixed-window"),
            storage_uri or said("STORAGE_URL", "memory://"),
            storage_options or {},
            on_error_of(self._swallow, fallback, in_memory_fallback),
        )
        self._names = {word: said(f"HEADER_{word.upper()}", name) for word, name in HEADERS.items()}
        self._key_func = key_func
        self._key_prefix = key_prefix or said("KEY_PREFIX", "")
        self._key_style = key_style
        self._auto_check = auto_check
        defaults = default_limits or [said("DEFAULT")]
        everywhere = application_limits or [said("APPLICATION")]
        self._defaults = [Group(text, key_func).ready() for text in defaults if text]
        self._everywhere = [Group(text, key_func, "global").ready() for text in everywhere if text]

    @property
    def limiter(self) -> RateLimiter:
        """The strategy that counts."""
        return self._limiter

    def reset(self) -> None:
        """Forget all keys, where the storage can."""
        self._limiter.storage.reset()

    # -- decorators

    def limit(
        self,
        limit_value: Text,
        key_func: Callable[..., str] | None = None,
        per_method: bool = False,
        methods: list[str] | None = None,
        error_message: Text | None = None,
        exempt_when: Callable[..., bool] | None = None,
        cost: int | Callable[..., int] = 1,
        override_defaults: bool = True,
    ) -> Callable[[View], View]:
        """A decorator: the calls of one route are counted by themselves."""
        key = key_func or self._key_func
        more = (per_method, methods, error_message, exempt_when, cost, override_defaults)
        return self._decorator(Group(limit_value, key, "", *more).ready())

    def shared_limit(
        self,
        limit_value: Text,
        scope: str,
        key_func: Callable[..., str] | None = None,
        error_message: Text | None = None,
        exempt_when: Callable[..., bool] | None = None,
        cost: int | Callable[..., int] = 1,
        override_defaults: bool = True,
    ) -> Callable[[View], View]:
        """A decorator: all routes of one scope are counted together."""
        key = key_func or self._key_func
        more = (False, None, error_message, exempt_when, cost, override_defaults)
        return self._decorator(Group(limit_value, key, scope, *more).ready())

    def exempt(self, obj: View) -> View:
        """A decorator: the calls of this route are not counted."""
        self._exempt.add(inspect.unwrap(obj))
        return obj

    def _decorator(self, group: Group) -> Callable[[View], View]:
        def decorate(view: View) -> View:
            place = _place_of_request(view)
            self._decorated.setdefault(inspect.unwrap(view), []).append(group)

            def request_of(args: Any, kwargs: Any) -> Request:
                request = kwargs.get("request", args[place] if len(args) > place else None)
                if not isinstance(request, Request):
                    raise TypeError("the argument `request` is a starlette.requests.Request")
                return request

            @functools.wraps(view)
            async def soon(*args: Any, **kwargs: Any) -> Any:
                if not self.enabled:
                    return await view(*args, **kwargs)
                request = request_of(args, kwargs)
                if self._due(request):
                    await self._limiter.storage.run_async(self.checking(request, view))
                return self._answered(request, await view(*args, **kwargs), kwargs)

            @functools.wraps(view)
            def now(*args: Any, **kwargs: Any) -> Any:
                if not self.enabled:
                    return view(*args, **kwargs)
                request = request_of(args, kwargs)
                if self._due(request):
                    self._limiter.storage.run(self.checking(request, view))
                return self._answered(request, view(*args, **kwargs), kwargs)

            return soon if inspect.iscoroutinefunction(view) else now  # type: ignore[return-value] # called the same way

        return decorate

    # -- headers

    def _answered(self, request: Request, answer: Any, kwargs: dict[str, Any]) -> Any:
        target = answer if isinstance(answer, Response) else kwargs.get("response")
        self._inject_headers(target, request.state.view_rate_limit)
        return answer

    def _inject_headers(self, response: Any, current_limit: Any) -> Any:
        """Write headers into a response, if there is something to tell."""
        if self.enabled and self._headers_enabled and current_limit is not None:
            if not isinstance(response, Response):
                raise TypeError(
                    "with headers_enabled a route returns a Response or has an argument "
                    "`response: starlette.responses.Response`"
                )
            self.write(response.headers, current_limit)
        return response

    def write(self, headers: MutableHeaders, current: Current | None) -> None:
        """Write into the headers of a response what is told of a limit."""
        if self._headers_enabled and current is not None:
            for name, value in told(current.decision, self._names, self._retry_after):
                if name.lower() != "retry-after" or name not in headers:
                    headers[name] = value


def _place_of_request(view: Callable[..., Any]) -> int:
    names = list(inspect.signature(view).parameters)
    if "request" in names:
        return names.index("request")
    if "websocket" in names:
        raise NotOffered(
            f"{view.__qualname__} is a websocket's, which no decorator here limits: use "
            "headgate.integrations.asgi, which counts each connection"
        )
    raise TypeError(f'No "request" argument on function "{view}"')
