"""The names of `django_ratelimit`: limits on the views of a Django project."""

from __future__ import annotations

__all__ = ["ALL", "UNSAFE"]

ALL = (None,)
"""All methods."""
UNSAFE = ["DELETE", "PATCH", "POST", "PUT"]
"""The methods that change something."""
