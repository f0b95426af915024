"""Resilience: what to do when what you call is sick, or you are overloaded yourself.

Names are looked up when they are first used, so nobody pays for what they do not use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .adaptive import AIMD, AdaptiveLimiter, Gradient2, Vegas
    from .breaker import Breaker
    from .budget import RetryBudget
    from .bulkhead import Bulkhead
    from .collapse import Collapse
    from .errors import BreakerOpen, BulkheadFull, TimeLimitExceeded, Unavailable
    from .fallback import Fallback
    from .last_good import LastGood
    from .overload import Overloaded, TooLate
    from .policy import Policy
    from .pools import Pool
    from .retry import Retry
    from .system import SystemGuard
    from .timing import TimeLimit, check_deadline, deadline_in, time_left

__all__ = [
    "AIMD",
    "AdaptiveLimiter",
    "Breaker",
    "BreakerOpen",
    "Bulkhead",
    "BulkheadFull",
    "Collapse",
    "Fallback",
    "Gradient2",
    "LastGood",
    "Overloaded",
    "Policy",
    "Pool",
    "Retry",
    "RetryBudget",
    "SystemGuard",
    "TimeLimit",
    "TimeLimitExceeded",
    "TooLate",
    "Unavailable",
    "Vegas",
    "check_deadline",
    "deadline_in",
    "time_left",
]

_ROOMS = {
    "AIMD": "adaptive",
    "AdaptiveLimiter": "adaptive",
    "Gradient2": "adaptive",
    "Overloaded": "overload",
    "SystemGuard": "system",
    "TooLate": "overload",
    "Vegas": "adaptive",
    "Breaker": "breaker",
    "BreakerOpen": "errors",
    "Bulkhead": "bulkhead",
    "BulkheadFull": "errors",
    "Collapse": "collapse",
    "Fallback": "fallback",
    "LastGood": "last_good",
    "Policy": "policy",
    "Pool": "pools",
    "Retry": "retry",
    "RetryBudget": "budget",
    "TimeLimit": "timing",
    "TimeLimitExceeded": "errors",
    "Unavailable": "errors",
    "check_deadline": "timing",
    "deadline_in": "timing",
    "time_left": "timing",
}


def __getattr__(name: str) -> Any:
    room = _ROOMS.get(name)
    if room is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    found = globals()[name] = getattr(import_module(f".{room}", __name__), name)
    return found
