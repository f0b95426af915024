"""Forking: a child process begins with locks of its own and without its parent's calls."""

from __future__ import annotations

import os
import weakref
from typing import Protocol

__all__ = ["Forked", "begin_anew"]


class Forked(Protocol):
    """Something that has to begin anew in a child."""

    def after_fork(self) -> None: ...


_known: weakref.WeakSet[Forked] = weakref.WeakSet()


def begin_anew(thing: Forked) -> None:
    """Have `after_fork` called in each child, as long as the thing lives."""
    _known.add(thing)


def _in_child() -> None:
    for thing in list(_known):
        thing.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
