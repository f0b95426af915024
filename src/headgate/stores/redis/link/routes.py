"""Routes: which node a call goes to, and where that node is.

What a request needs (`node`, `place`, `moved`) is memory. Only `refresh` asks servers, and it
runs in the background: in a thread of `renewed`, or in one that dials.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import Future
from time import monotonic
from typing import TypeAlias

from .target import Place, Target

__all__ = ["Node", "Routes", "routes_to"]

Node: TypeAlias = Place | None
"""A node of a cluster by its place; None for the one server that there is otherwise, or for any
node of a cluster."""

REMINDED = 60.0
"""Seconds after which a server may have lost what it was told."""


class Routes:
    """The way to one server, which is always at the same place."""

    slots: list[Node] | None = None
    """The master of each slot, in a cluster."""

    def __init__(self, target: Target, timeout: float) -> None:
        self.target = target
        self._timeout = timeout
        self.forgot: Callable[[], None] = lambda: None
        """Called when a server has lost its scripts, and now and then: see `remind`."""
        self.due = monotonic() + REMINDED
        self.reset()

    def reset(self) -> None:
        """Forget threads and locks, which a forked child does not have."""
        self._lock = threading.Lock()
        self._flight: Future[None] | None = None

    def remind(self, now: float) -> None:
        """Have servers told anew, once it is due, what they are told once: FLUSHALL is silent."""
        if now > self.due:
            self.due = now + REMINDED
            self.forgot()

    def slot(self, key: bytes) -> int:
        """The slot of a key; 0 where there are none."""
        return 0

    def node(self, key: bytes | None) -> Node:
        """The node that a call goes to."""
        return None

    def masters(self) -> list[Node]:
        """All nodes that may be asked."""
        return [None]

    def named(self, text: str, asked: Node) -> Node:
        """The node that a server's redirection names."""
        return None

    def moved(self, slot: int, node: Node) -> None:
        """A slot has another master."""

    def known(self, node: Node) -> bool:
        """Whether it is known where a node is."""
        return True

    def place(self, node: Node) -> Place | None:
        """Where to connect to; None if the target itself says so."""
        return self.target.places[0] if self.target.places else None

    def refresh(self) -> None:
        """Learn anew where the nodes are; blocks."""

    def renewed(self) -> Future[None]:
        """A refresh in the background, or the one that is under way; it never fails."""
        with self._lock:
            if self._flight is not None and not self._flight.done():
                return self._flight
            flight: Future[None] = Future()
            self._flight = flight

        def work() -> None:
            with contextlib.suppress(Exception):  # the next call tells what is wrong
                self.refresh()
            flight.set_result(None)

        threading.Thread(target=work, name="headgate-renew", daemon=True).start()
        return flight

    def shown(self, node: Node) -> str:
        """How messages name a node."""
        if node is not None:
            return f"{node[0]}:{node[1]}"
        return self.target.shown


def routes_to(target: Target, timeout: float) -> Routes:
    """The routes of a target's kind."""
    if target.kind == "sentinel":
        from .sentinel import SentinelRoutes

        return SentinelRoutes(target, timeout)
    if target.kind == "cluster":
        from .cluster import ClusterRoutes

        return ClusterRoutes(target, timeout)
    return Routes(target, timeout)
