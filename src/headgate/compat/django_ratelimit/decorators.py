"""The decorator of views."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from asgiref.sync import markcoroutinefunction, sync_to_async
from django.conf import settings
from django.utils.module_loading import import_string

from . import ALL, UNSAFE
from .core import is_ratelimited
from .exceptions import Ratelimited

__all__ = ["ratelimit"]


def ratelimit(
    group: str | None = None,
    key: Any = None,
    rate: Any = None,
    method: Any = ALL,
    block: bool = True,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator: a view's calls are counted, and refused when there are too many.

    With `block=False` the view is called all the same and finds `request.limited`.
    """

    def decorate(view: Callable[..., Any]) -> Callable[..., Any]:
        def check(request: Any) -> None:
            over = is_ratelimited(request, group, view, key, rate, method, increment=True)
            request.limited = over or getattr(request, "limited", False)
            if over and block:
                kind = getattr(settings, "RATELIMIT_EXCEPTION_CLASS", Ratelimited)
                raise (import_string(kind) if isinstance(kind, str) else kind)()

        @functools.wraps(view)
        def now(request: Any, *args: Any, **kwargs: Any) -> Any:
            check(request)
            return view(request, *args, **kwargs)

        async def soon(request: Any, *args: Any, **kwargs: Any) -> Any:
            await sync_to_async(check)(request)  # a key may ask the database who the user is
            return await view(request, *args, **kwargs)

        if inspect.iscoroutinefunction(view):
            return markcoroutinefunction(functools.wraps(view)(soon))
        return now

    return decorate


ratelimit.ALL = ALL  # type: ignore[attr-defined] # the other library has them there too
ratelimit.UNSAFE = UNSAFE  # type: ignore[attr-defined] # as above
