"""The error of a call over its limit."""

from __future__ import annotations

from django.core.exceptions import PermissionDenied

__all__ = ["Ratelimited"]


class Ratelimited(PermissionDenied):  # type: ignore[misc] # Django has no types
    """A call was refused; Django answers it with 403 unless a handler knows better."""
