"""headgate: flow control for Python services."""

from __future__ import annotations

from ._form import compiled
from .clock import Clock, ManualClock, SystemClock
from .decision import Ask, Decision
from .errors import (
    EvictionWarning,
    HeadgateError,
    LimitExceeded,
    LimitSyntaxError,
    NeverFits,
    SeveralWorkersWarning,
    StoreError,
    StoreUnavailable,
)
from .limit import Limit
from .limiter import AsyncLimiter, Limiter
from .stores import MemoryStore

__version__ = "0.1.0"

__all__ = [
    "Ask",
    "AsyncLimiter",
    "Clock",
    "Decision",
    "EvictionWarning",
    "HeadgateError",
    "Limit",
    "LimitExceeded",
    "LimitSyntaxError",
    "Limiter",
    "ManualClock",
    "MemoryStore",
    "NeverFits",
    "SeveralWorkersWarning",
    "StoreError",
    "StoreUnavailable",
    "SystemClock",
    "__version__",
    "compiled",
]
