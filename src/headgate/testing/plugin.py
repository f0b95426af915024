"""The pytest plugin: a clock for tests that must not sleep."""

from __future__ import annotations

import pytest

from ..clock import ManualClock

__all__ = ["manual_clock"]


@pytest.fixture
def manual_clock() -> ManualClock:
    """A clock that stands at 1,000,000 s after the epoch until it is moved."""
    return ManualClock(1_000_000.0)
