"""Circuit breakers: calls to what is sick are refused at once, until it is well again."""

from __future__ import annotations

from ..errors import BreakerOpen
from .breaker import Breaker
from .metrics import Metrics
from .outcomes import FAILURE, IGNORED, SUCCESS
from .settings import Settings
from .shared import AsyncFleet, Fleet, Quorum, Standing
from .states import (
    CLOSED,
    DISABLED,
    FORCED_OPEN,
    HALF_OPEN,
    METRICS_ONLY,
    OPEN,
    RECOVERING,
    STATES,
)

__all__ = [
    "CLOSED",
    "DISABLED",
    "FAILURE",
    "FORCED_OPEN",
    "HALF_OPEN",
    "IGNORED",
    "METRICS_ONLY",
    "OPEN",
    "RECOVERING",
    "STATES",
    "SUCCESS",
    "AsyncFleet",
    "Breaker",
    "BreakerOpen",
    "Fleet",
    "Metrics",
    "Quorum",
    "Settings",
    "Standing",
]
