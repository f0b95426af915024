"""Record: what a decision keeps, apart so that the compiled form can lay it out by itself."""

from __future__ import annotations

__all__ = ["Record"]


class Record:
    """A row of slots, filled by whoever decides."""

    __slots__ = ("_cost", "_now", "_outcome", "_seen", "_source")
