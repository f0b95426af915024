"""Gateway: a small reverse proxy that limits, for those who have none."""

from __future__ import annotations

from .app import Gateway
from .guard import Guard
from .plan import Plan

__all__ = ["Gateway", "Guard", "Plan"]
