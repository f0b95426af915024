"""The link: what threads ask, carried to the service by a few kept connections.

Connections are made in the background, as those to a Redis are, and by the same means. As many
threads as there are places speak at once, each through a connection of its own; what others ask
in the meantime travels together.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPException
from time import monotonic
from typing import Any

from ...errors import StoreError, StoreUnavailable
from ..redis.link.combine import Turn
from ..redis.link.dialing import Dialer
from ..redis.link.wire import broken, late
from .address import Options, Place
from .codec import encode_asks
from .http import Answer, Line, dialed, secure, unavailable
from .plan import Call, answers, body_of, pieces

__all__ = ["DECIDE", "Link"]

DECIDE = "/v1/decide"
TOGETHER = 8
"""Threads that speak to a service at once."""
FLYING = 8
"""Threads that carry what tasks ask."""
NOTHING = encode_asks([])


class Link:
    """Carries calls to one service.

    The first connection may take `connect_timeout` seconds. From then on every call returns or
    raises within its budget.
    """

    def __init__(
        self, place: Place, options: Options, *, greet: bool = True, flying: int = FLYING
    ) -> None:
        self.place = place
        self._flying = flying
        self.options = options
        self._greet = greet
        self._context = secure(options) if place.tls else None
        self.closed = False
        self._reset()
        _links.add(self)

    def _reset(self) -> None:
        dialer: Any = Dialer(self._dial, self)  # type: ignore[arg-type] # of lines, not wires
        self._dialer = dialer
        carry: Any = self.carry
        self._turn = Turn(str(self.place), carry, None, TOGETHER)
        self._pool: ThreadPoolExecutor | None = None
        self._making = threading.Lock()
        self.met = False
        """Whether the service has answered before: from then on nobody waits for connections."""

    # -- what those who dial want to know

    def shown(self, node: None) -> str:
        """Where the service is, for messages."""
        return str(self.place)

    def masters(self) -> list[None]:
        """There is one place."""
        return [None]

    # -- asking

    def ask(self, calls: Sequence[Call]) -> list[Any]:
        """For each call its decisions, or the error that stands for them."""
        if not self.met:
            try:
                self._meet()
            except StoreUnavailable as error:
                return [error] * len(calls)
        deadline = monotonic() + self.options.budget
        if not self.options.coalesce:
            return self.carry(calls, deadline)
        turn: Any = self._turn  # of calls to a Redis, it believes
        found: list[Any] = turn.ask(calls, deadline)
        return found

    def carry(self, calls: Sequence[Call], deadline: float) -> list[Any]:
        """The same, asked by this thread, and in one request if they fit into one."""
        parts = pieces(calls)
        if len(parts) == 1:
            return self._carry(calls, deadline)
        return [reply for part in parts for reply in self._carry(part, deadline)]

    def _carry(self, calls: Sequence[Call], deadline: float) -> list[Any]:
        """One request; smaller ones if it is not understood."""
        try:
            answer = self.exchange("POST", DECIDE, body_of(calls), deadline)
        except StoreUnavailable as error:
            return [error] * len(calls)
        found = answers(self.place, calls, answer)
        if found is None:
            half = len(calls) // 2
            found = self._carry(calls[:half], deadline) + self._carry(calls[half:], deadline)
        return found

    def exchange(
        self, method: str, path: str, body: bytes | None, deadline: float | None = None, **head: str
    ) -> Answer:
        """The answer to one request; StoreUnavailable by the deadline if there is none."""
        if not self.met:
            self._meet()
            deadline = max(deadline or 0.0, monotonic() + self.options.budget)
        elif deadline is None:
            deadline = monotonic() + self.options.budget
        elif monotonic() >= deadline:
            raise late(str(self.place), sent=False)
        line: Line = self._dialer.take(None, deadline)
        try:
            answer = line.exchange(method, path, body, deadline, **head)
        except (OSError, HTTPException) as error:
            if self._dialer.closed:
                raise StoreUnavailable("the store was closed", sent=line.sent) from None
            problem = broken(str(self.place), error, sent=line.sent)
            self._dialer.failed(line, problem, late=isinstance(error, TimeoutError))
            raise problem from None
        except BaseException:  # an interrupt: the line still owes an answer
            self._dialer.drop(line)
            raise
        if line.open:
            self._dialer.give(line)
        else:
            self._dialer.drop(line)
        return answer

    def pool(self) -> ThreadPoolExecutor:
        """The threads that carry what tasks ask."""
        with self._making:
            if self.closed:
                raise StoreError("the store was closed")
            if self._pool is None:
                self._pool = ThreadPoolExecutor(self._flying, thread_name_prefix="headgate-client")
            return self._pool

    def close(self) -> None:
        """Close every connection; calls then raise StoreError."""
        with self._making:
            self.closed = True
            pool, self._pool = self._pool, None
        self._dialer.close()
        if pool is not None:
            pool.shutdown(wait=False)

    # -- connecting

    def _meet(self) -> None:
        """The first connection, in the caller's time."""
        line = self._dialer.take(None, monotonic() + self.options.connect_timeout)
        self.met = True
        self._dialer.give(line)

    def _dial(self, node: None) -> Line:
        """A new connection to a service that answers; runs in the background."""
        line: Line | None = None
        try:
            line = dialed(self.place, self.options, self._context)
            if self._greet:
                deadline = monotonic() + self.options.connect_timeout
                answer = line.exchange("POST", DECIDE, NOTHING, deadline)
                if answer.status != 200 or not line.open:
                    raise unavailable(self.place, answer)
            return line
        except BaseException as error:
            if line is not None:
                line.close()
            if isinstance(error, OSError | HTTPException):
                problem = f"cannot connect to {self.place}: {error}"
                raise StoreUnavailable(problem, sent=False) from None
            raise

    def after_fork(self) -> None:
        """In a child: forget the parent's connections, threads and locks."""
        lines = self._dialer.abandon()
        closed = self._dialer.closed
        self._reset()
        self._dialer.closed = closed
        for line in lines:
            line.abandon()


_links: weakref.WeakSet[Link] = weakref.WeakSet()


def _after_fork() -> None:
    for link in list(_links):
        link.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
