"""Adaptive concurrency: how many calls at once are right, found out while they run."""

from __future__ import annotations

from .aimd import AIMD
from .deadline import Forecast
from .estimator import Estimator, Fixed
from .gradient2 import Gradient2
from .limiter import AdaptiveLimiter
from .partitions import Partitions
from .vegas import Vegas

__all__ = [
    "AIMD",
    "AdaptiveLimiter",
    "Estimator",
    "Fixed",
    "Forecast",
    "Gradient2",
    "Partitions",
    "Vegas",
]
