"""What may be exempt, and what headers are called."""

from __future__ import annotations

import enum

from ..shared import HEADERS

__all__ = ["ALL", "ExemptionScope", "HeaderNames"]


class HeaderNames(enum.Enum):
    """The headers that can be given another name."""

    LIMIT = HEADERS["limit"]
    REMAINING = HEADERS["remaining"]
    RESET = HEADERS["reset"]
    RETRY_AFTER = HEADERS["retry_after"]


class ExemptionScope(enum.Flag):
    """What a view or a blueprint is exempt from."""

    NONE = 0
    APPLICATION = enum.auto()
    META = enum.auto()
    DEFAULT = enum.auto()
    DESCENDENTS = enum.auto()
    ANCESTORS = enum.auto()


ALL = ExemptionScope.APPLICATION | ExemptionScope.DEFAULT | ExemptionScope.META
