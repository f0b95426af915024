"""Notices: what happens inside, told to whoever listens; nothing is made if nobody does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

__all__ = ["Listener", "Notice", "tell"]


class Notice(NamedTuple):
    """Something that happened: its kind, who it happened to, when, and what there is to know."""

    kind: str
    name: str
    at: float
    """Seconds since the epoch."""
    values: Mapping[str, Any]


Listener = Callable[[Notice], object]


def tell(listeners: list[Listener], kind: str, name: str, now: int, **values: Any) -> None:
    """Tell all listeners; never while a lock is held."""
    if not listeners:
        return
    notice = Notice(kind, name, now / 1_000_000, values)
    for listener in list(listeners):
        try:
            listener(notice)
        except Exception:  # who watches must not break what is watched
            continue
