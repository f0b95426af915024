"""headgate: flow control for Python services."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._form import compiled
from .clock import Clock, ManualClock, SystemClock
from .decision import Ask, Decision
from .errors import (
    EvictionWarning,
    HeadgateError,
    LimitExceeded,
    LimitSyntaxError,
    NeverFits,
    RulesError,
    SeveralWorkersWarning,
    StoreError,
    StoreUnavailable,
)
from .limit import Limit
from .limiter import AsyncLimiter, Limiter
from .stores import MemoryStore

if TYPE_CHECKING:
    from .facts import Facts
    from .gate import AsyncGate, Gate
    from .resilience import (
        AdaptiveLimiter,
        Breaker,
        BreakerOpen,
        Bulkhead,
        BulkheadFull,
        Policy,
        SystemGuard,
    )
    from .verdict import Refused, Verdict

__version__ = "0.1.0"

__all__ = [
    "AdaptiveLimiter",
    "Ask",
    "AsyncGate",
    "AsyncLimiter",
    "Breaker",
    "BreakerOpen",
    "Bulkhead",
    "BulkheadFull",
    "Clock",
    "Decision",
    "EvictionWarning",
    "Facts",
    "Gate",
    "HeadgateError",
    "Limit",
    "LimitExceeded",
    "LimitSyntaxError",
    "Limiter",
    "ManualClock",
    "MemoryStore",
    "NeverFits",
    "Policy",
    "Refused",
    "RulesError",
    "SeveralWorkersWarning",
    "StoreError",
    "StoreUnavailable",
    "SystemClock",
    "SystemGuard",
    "Verdict",
    "__version__",
    "compiled",
]

_ROOMS = {
    "AsyncGate": "gate", "Facts": "facts", "Gate": "gate", "Refused": "verdict",
    "Verdict": "verdict",
    **dict.fromkeys(
        ("AdaptiveLimiter", "Breaker", "BreakerOpen", "Bulkhead", "BulkheadFull", "Policy",
         "SystemGuard"),
        "resilience",
    ),
}  # fmt: skip


def __getattr__(name: str) -> Any:
    # Whoever only limits does not pay for the rest.
    room = _ROOMS.get(name)
    if room is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    found = globals()[name] = getattr(import_module(f".{room}", __name__), name)
    return found
