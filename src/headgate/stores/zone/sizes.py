"""Sizes: whether the state of a limit's keys can be kept in a zone, however much it grows."""

from __future__ import annotations

from ...algorithms import Concurrency, rule_of
from ...algorithms.packing import narrowest, span_width
from ...errors import StoreError
from ...limit import Limit
from .layout import LARGEST, SMALLEST, Shape, shape_of
from .places import NODE
from .table import chunks_of

__all__ = ["check_fits", "largest_state"]


def largest_state(limit: Limit) -> int:
    """How many bytes the state of a key takes when it is largest; 0 for three words."""
    rule = rule_of(limit, 1000 if limit.elastic else 0)
    if rule.words:
        return 0
    if isinstance(rule, Concurrency):
        return 20 + 32 * int(rule.quota)
    if limit.cells is not None:
        return 9 + limit.cells * narrowest(int(rule.quota))
    # As many events as the quota, at different instants, one of which cost more than 1.
    return 17 + int(rule.quota) * (span_width(rule.window) + 1)


def _holds(shape: Shape, state: int) -> bool:
    """Whether all words of such a state can be undone with half of the journal, and all of its
    chunks are no more than half of the zone's."""
    chunks = chunks_of(state)
    return chunks * NODE <= shape.entries // 2 and chunks <= shape.chunks // 2


def check_fits(limit: Limit, shape: Shape, path: str) -> None:
    """StoreError if a key of this limit could outgrow the zone."""
    state = largest_state(limit)
    if _holds(shape, state):
        return
    size = SMALLEST
    while size < LARGEST and not _holds(shape_of(size), state):
        size *= 2
    raise StoreError(
        f"one key of '{limit}' may take {state:,} bytes, more than a zone of {shape.size:,} bytes "
        f"can change at once ({path}); a zone of {size:,} bytes would do"
    )
