"""Keys and rates: whom a request is counted for, and how many of them pass."""

from __future__ import annotations

import functools
import re
from typing import Any

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import import_string

from ...addresses import ip_key, read_address
from . import ALL

__all__ = ["group_of", "matches", "rate_of", "value_of"]

_RATE = re.compile(r"(\d+)/(\d*)([a-z]*)", re.ASCII)
_UNITS = {"": 1, "s": 1, "sec": 1, "second": 1, "m": 60, "min": 60, "minute": 60,
          "h": 3600, "hour": 3600, "d": 86_400, "day": 86_400}  # fmt: skip


def group_of(view: Any) -> str:
    """The name of a view, which its calls are counted under."""
    view = view.func if isinstance(view, functools.partial) else view
    owner = getattr(view, "__self__", None)
    words = [view.__module__, *([type(owner).__name__] if owner is not None else [])]
    return ".".join([*words, view.__qualname__])


def matches(request: Any, method: Any) -> bool:
    """Whether requests of this method are counted."""
    if method == ALL:
        return True
    methods = method if isinstance(method, list | tuple) else [method]
    return request.method in [word.upper() for word in methods]


def rate_of(rate: Any, group: str, request: Any) -> tuple[int, int] | None:
    """How many in how many seconds: of `5/m`, `100/5h`, a pair, or a function; None: no limit."""
    if isinstance(rate, str) and "." in rate:
        rate = import_string(rate)
    if callable(rate):
        rate = rate(group, request)
    if rate is None:
        return None
    if isinstance(rate, tuple):
        count, seconds = rate
    else:
        found = _RATE.fullmatch(rate) if isinstance(rate, str) else None
        if found is None or found[3] not in _UNITS:
            raise ImproperlyConfigured(
                f"a rate is a text such as '5/m', '100/5h' or '10/s', not {rate!r}"
            )
        count, seconds = int(found[1]), int(found[2] or 1) * _UNITS[found[3]]
    if seconds <= 0:
        raise ImproperlyConfigured("Ratelimit period must be greater than 0")
    return count, seconds


def value_of(key: Any, group: str, request: Any) -> str:
    """Whom a request is counted for."""
    if not key:
        raise ImproperlyConfigured("Ratelimit key must be specified")
    if isinstance(key, str):
        source, mark, name = key.partition(":")
        if not mark and source in _WHOLE:
            return str(_WHOLE[source](request))
        if mark and source in _NAMED:
            return str(_NAMED[source](request, name))
        if mark or "." not in key:
            raise ImproperlyConfigured(
                f"Could not understand ratelimit key: {key!r}; known are "
                f"{', '.join(_WHOLE)}, {', '.join(f'{word}:name' for word in _NAMED)}, a function "
                "and its dotted path"
            )
        key = import_string(key)
    return str(key(group, request))


def _ip(request: Any) -> str:
    source = getattr(settings, "RATELIMIT_IP_META_KEY", None)
    if isinstance(source, str) and "." in source:
        source = import_string(source)
    ip = source(request) if callable(source) else request.META.get(source or "REMOTE_ADDR")
    if not ip or read_address(ip) is None:
        raise ImproperlyConfigured(
            f"{source or 'REMOTE_ADDR'} holds no address ({ip!r}). Behind a proxy on a Unix "
            "socket set RATELIMIT_IP_META_KEY to a function of the request"
        )
    six = getattr(settings, "RATELIMIT_IPV6_MASK", 64)
    return ip_key(ip, six, getattr(settings, "RATELIMIT_IPV4_MASK", 32))


def _user_or_ip(request: Any) -> str:
    return str(request.user.pk) if request.user.is_authenticated else _ip(request)


_WHOLE: dict[str, Any] = {
    "ip": _ip,
    "user": lambda request: request.user.pk,
    "user_or_ip": _user_or_ip,
}
_NAMED: dict[str, Any] = {
    "get": lambda request, name: request.GET.get(name, ""),
    "post": lambda request, name: request.POST.get(name, ""),
    "header": lambda request, name: request.headers.get(name, ""),
}
