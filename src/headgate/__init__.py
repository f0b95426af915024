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
    from .verdict import Refused, Verdict

__version__ = "0.1.0"

__all__ = [
    "Ask",
    "AsyncGate",
    "AsyncLimiter",
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
    "Refused",
    "RulesError",
    "SeveralWorkersWarning",
    "StoreError",
    "StoreUnavailable",
    "SystemClock",
    "Verdict",
    "__version__",
    "compiled",
]

_ROOMS = {
    "AsyncGate": "gate", "Facts": "facts", "Gate": "gate", "Refused": "verdict",
    "Verdict": "verdict",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    # Whoever only limits does not pay for rules.
    room = _ROOMS.get(name)
    if room is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    found = globals()[name] = getattr(import_module(f".{room}", __name__), name)
    return found
