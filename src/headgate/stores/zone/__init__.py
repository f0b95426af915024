"""The shared zone: state in one file that all processes of a machine map."""

from __future__ import annotations

from .store import ZoneStore

__all__ = ["ZoneStore"]
