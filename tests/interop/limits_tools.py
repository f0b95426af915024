"""What the tests of the names of limits share: a storage of either library."""

from __future__ import annotations

from typing import Any

import limits
import limits.aio
import pytest
from compat_tools import stop_time

import headgate.compat.limits as ours
from headgate import ManualClock
from headgate.compat.limits.storage import storage_from_string


def both_storages(clock: ManualClock, patch: pytest.MonkeyPatch) -> list[tuple[Any, Any]]:
    """The original with its time stopped, and ours."""
    stop_time(patch, clock, "limits.storage.memory", "limits.strategies")
    stop_time(patch, clock, "limits.aio.storage.memory", "limits.aio.strategies")
    mine = storage_from_string("memory://", clock=clock)
    return [(limits, limits.storage.storage_from_string("memory://")), (ours, mine)]
