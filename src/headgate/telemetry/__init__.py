"""Telemetry: what gates decided, counted and shown. Nothing of it runs unless asked for."""

from __future__ import annotations

from .events import Event
from .watching import Telemetry

__all__ = ["Event", "Telemetry"]
