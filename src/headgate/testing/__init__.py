"""Helpers for tests: the contract that every store must keep, and a clock that stands still."""

from __future__ import annotations

from ..clock import ManualClock
from .contract import StoreContract

__all__ = ["ManualClock", "StoreContract"]
