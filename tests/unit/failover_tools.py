"""What the tests of failover share: something to ask for."""

from __future__ import annotations

from typing import Any

from headgate import Limit
from headgate.decision import Ask

HOUR = Limit.parse("10/hour fixed-window")


def take(limit: Limit = HOUR, **more: Any) -> Ask:
    """An ask for one, under the key "k" unless another is said."""
    return Ask("take", limit, more.pop("key", "k"), **more)
