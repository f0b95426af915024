"""System protection: turn calls away while the machine has more to do than it can."""

from __future__ import annotations

from .guard import SystemGuard
from .pulse import LoopPulse
from .signals import Machine, Reading, Source

__all__ = ["LoopPulse", "Machine", "Reading", "Source", "SystemGuard"]
