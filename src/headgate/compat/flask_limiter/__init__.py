"""The names of `flask_limiter`: limits on the views of a Flask application."""

from __future__ import annotations

from .constants import ExemptionScope, HeaderNames
from .errors import RateLimitExceeded
from .extension import Limiter, RouteLimit
from .limits import ApplicationLimit, Limit, MetaLimit
from .requests import RequestLimit

__all__ = [
    "ApplicationLimit",
    "ExemptionScope",
    "HeaderNames",
    "Limit",
    "Limiter",
    "MetaLimit",
    "RateLimitExceeded",
    "RequestLimit",
    "RouteLimit",
]
