"""Counting by hand: `get_usage` and `is_ratelimited`."""

from __future__ import annotations

import math
import threading
from typing import Any

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed

from ...decision import Decision
from ...limit import Limit
from ..limits.storage import Storage
from . import ALL, UNSAFE
from .keys import group_of, matches, rate_of, value_of
from .places import store_of

__all__ = ["get_usage", "is_ratelimited", "storage"]

_lock = threading.Lock()
_storage: Storage | None = None


def storage() -> Storage:
    """Where calls are counted: by HEADGATE["STORE"], else where Django's cache is."""
    global _storage
    with _lock:
        if _storage is None:
            _storage = Storage(store_of())
        return _storage


def _changed(**words: Any) -> None:
    """Settings that a test overrides hold from then on."""
    global _storage
    if words["setting"] in ("HEADGATE", "CACHES", "RATELIMIT_USE_CACHE"):
        _storage = None


setting_changed.connect(_changed)


def is_ratelimited(
    request: Any,
    group: str | None = None,
    fn: Any = None,
    key: Any = None,
    rate: Any = None,
    method: Any = ALL,
    increment: bool = False,
) -> bool:
    """Whether a request is over its limit; with `increment` it is counted first."""
    usage = get_usage(request, group, fn, key, rate, method, increment)
    return usage is not None and bool(usage["should_limit"])


def get_usage(
    request: Any,
    group: str | None = None,
    fn: Any = None,
    key: Any = None,
    rate: Any = None,
    method: Any = ALL,
    increment: bool = False,
) -> dict[str, Any] | None:
    """What was used of a limit: `count`, `limit`, `should_limit`, `time_left` in seconds.

    None if the request is not counted. A refused call does not count further: `count` is at most
    one more than `limit`.
    """
    if group is None and fn is None:
        raise ImproperlyConfigured("get_usage must be called with either `group` or `fn` arguments")
    if not getattr(settings, "RATELIMIT_ENABLE", True) or not matches(request, method):
        return None
    group = group_of(fn) if group is None else group
    found = rate_of(rate, group, request)
    if found is None:
        return None
    limit, seconds = found
    decision = _counted(group, value_of(key, group, request), found, method, increment)
    open_anyway = getattr(settings, "RATELIMIT_FAIL_OPEN", False)
    if decision.degraded:
        return None if open_anyway else _refusal()
    count = limit + 1 - decision.remaining
    left = decision.reset_after if count else seconds
    return {
        "count": count,
        "limit": limit,
        "should_limit": count > limit,
        "time_left": math.ceil(left),
    }


def _counted(
    group: str, value: str, rate: tuple[int, int], method: Any, increment: bool
) -> Decision:
    # One more than the rate is kept, so that a look can tell "all used" from "over": the call
    # after the last one that passes takes it.
    limit, seconds = rate
    kept = Limit(limit + 1, per=seconds, algorithm="fixed-window", first_hit=True)
    prefix = getattr(settings, "RATELIMIT_CACHE_PREFIX", "rl:")
    limiter = storage().limiter(kept.named(f"{limit}/{seconds}s"), prefix, "deny")
    methods = [] if method == ALL else method if isinstance(method, list | tuple) else [method]
    who = (group, value, *sorted(word.upper() for word in methods))
    return limiter.hit(who) if increment else limiter.peek(who)


def _refusal() -> dict[str, Any]:
    """What is told when nobody could count."""
    return {"count": 0, "limit": 0, "should_limit": True, "time_left": -1}


is_ratelimited.ALL = get_usage.ALL = ALL  # type: ignore[attr-defined] # it has them there too
is_ratelimited.UNSAFE = get_usage.UNSAFE = UNSAFE  # type: ignore[attr-defined] # as above
