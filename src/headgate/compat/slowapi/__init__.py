"""The names of `slowapi`: limits on the routes of Starlette and FastAPI."""

from __future__ import annotations

from .extension import Limiter, _rate_limit_exceeded_handler

__all__ = ["Limiter", "_rate_limit_exceeded_handler"]
