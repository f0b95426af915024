"""The same, awaited."""

from __future__ import annotations

from . import storage, strategies

__all__ = ["storage", "strategies"]
