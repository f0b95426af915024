"""Greeting: the first words to a server, and what is said about a server that may forget."""

from __future__ import annotations

import contextlib
import warnings
from typing import Any

from ....errors import EvictionWarning
from .calls import Command, packed
from .replies import ReplyError, error_of

__all__ = ["HELLO", "REPLIES", "greeted"]

HELLO = packed(Command((b"PING",))) + packed(Command((b"INFO", b"memory")))
REPLIES = 2
_told: set[str] = set()


def greeted(replies: list[Any], shown: str) -> None:
    """An error unless the server is ready; a warning, once, if it may throw counters away."""
    ready, info = replies
    if isinstance(ready, ReplyError) and ready.code != "NOPERM":  # that is an answer too
        raise error_of(ready, shown)
    if not isinstance(info, bytes) or shown in _told:  # INFO is not among the rights we need
        return
    facts = dict(line.split(":", 1) for line in info.decode().splitlines() if ":" in line)
    policy, limit = facts.get("maxmemory_policy", "noeviction"), facts.get("maxmemory", "0")
    if policy != "noeviction" and limit != "0":
        _told.add(shown)
        text = (
            f"{shown} evicts keys when its memory is full (maxmemory-policy {policy}): a counter "
            "that is thrown away starts again at nothing; set maxmemory-policy noeviction, or give "
            "headgate a server of its own"
        )
        with contextlib.suppress(EvictionWarning):  # where warnings are errors: still no refusal
            warnings.warn(text, EvictionWarning, stacklevel=2)
