"""Gateway: a small reverse proxy that limits, for those who have none."""

from __future__ import annotations

from .app import Gateway
from .breaker import BreakerGuard
from .guard import Guard, Held
from .plan import Plan

__all__ = ["BreakerGuard", "Gateway", "Guard", "Held", "Plan"]
