"""Errors of a set-up that cannot be."""

from __future__ import annotations

from ...errors import HeadgateError

__all__ = ["ConfigurationError"]


class ConfigurationError(HeadgateError, ValueError):
    """A storage or a strategy that there is not."""
