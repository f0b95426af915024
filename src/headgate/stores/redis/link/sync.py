"""The sync link: each thread speaks through a connection of its own."""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from collections.abc import Sequence
from time import monotonic
from typing import Any, TypeVar

from ....errors import StoreError, StoreUnavailable
from .calls import AnyCall, Flow, Raw, slot_key_of
from .coalesce import Merge
from .combine import Turn, Turns
from .dialing import Dialer, Seats, connected
from .exchange import Answer, Renew, Steps, Trip, exchange
from .replies import PENDING, ReplyError
from .routes import Node, Routes, routes_to
from .target import Target
from .wire import IDLE, READ, Wire, broken

__all__ = ["SyncLink"]

T = TypeVar("T")
ARRIVING = 5.0
"""Seconds from the first connection on in which a new thread's first call may connect."""
LONG = 32768
"""Bytes from which on writing may have to wait for the server to read."""


class SyncLink:
    """Carries flows to the servers of a target.

    The first connection may take `connect_timeout` seconds. From then on every call returns or
    raises within `budget` seconds. A connection is taken off its seat while it is in use, so a
    signal's handler or a finalizer that asks in the middle of a call gets another one, and a call
    that ends in any exception leaves no connection behind that still owes a reply.
    """

    def __init__(
        self,
        target: Target,
        *,
        budget: float = 0.020,
        connect_timeout: float = 1.0,
        routes: Routes | None = None,
        together: int = 0,
        merge: Merge | None = None,
    ) -> None:
        self.target = target
        self.budget = budget
        self.connect_timeout = connect_timeout
        self.routes = routes or routes_to(target, connect_timeout)
        self.slot = self.routes.slot
        self.merge = merge
        self._together = together
        self._reset()
        _links.add(self)

    def _reset(self) -> None:
        self._local = threading.local()
        self._dialer = Dialer(self._dial, self.routes)
        self._turns = Turns(self._turn)
        self._met = False
        self._born = monotonic()

    # -- asking

    def one(self, data: bytes, key: bytes = b"") -> Any:
        """The reply to one packed call, whose key is needed in a cluster only."""
        start, routes = monotonic(), self.routes
        if start > routes.due:
            routes.remind(start)
        node = None if routes.slots is None else routes.node(key)
        if not self._together:
            return self._one(data, key, node, start)
        turn = self._turns[node]
        try:
            turn.places.pop()
        except IndexError:
            return self._alone(turn.wait([Raw(data, key)], start + self.budget))
        try:
            return self._one(data, key, node, start)
        finally:
            turn.leave()

    def _one(self, data: bytes, key: bytes, node: Node, start: float) -> Any:
        """One call by this thread's own connection."""
        try:
            seat = self._local.seats[node]
            wire = seat.pop()
        except (AttributeError, IndexError):
            return self._again(data, key, None, start)
        if (start - wire.used > IDLE or wire.limit != self.budget or len(data) > LONG) and (
            len(data) > LONG or not wire.fresh() or not wire.within(self.budget)
        ):
            seat.append(wire)
            return self._again(data, key, None, start)
        sent = False
        try:
            wire.send(data)
            sent = True
            got = wire.recv(READ)
            wire.feed(got)
            reply = wire.gets()
            if reply is PENDING:
                if not got:
                    raise ConnectionError("the server closed the connection")
                [reply] = wire.read(1, start + self.budget)
        except BaseException as error:
            raise self._failed(wire, error, sent=sent) from None
        wire.used = start
        seat.append(wire)
        if reply.__class__ is ReplyError:
            return self._again(data, key, reply, start)
        return reply

    def run(self, flow: Flow[T], budget: float | None = None) -> T:
        """Drive a flow to its result, all of its steps within one budget."""
        start = monotonic()
        self.routes.remind(start)
        deadline = start + (self.budget if budget is None else budget)
        try:
            calls = next(flow)
            while True:
                calls = flow.send(self._ask(calls, deadline) if calls else [])
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]

    def ask(self, calls: Sequence[AnyCall]) -> list[Any]:
        """Replies to calls, or an exception in place of each that failed."""
        return self._ask(calls, monotonic() + self.budget)

    def close(self) -> None:
        """Close all connections; calls then raise StoreError."""
        self._dialer.close()

    # -- carrying

    def _ask(self, calls: Sequence[AnyCall], deadline: float) -> list[Any]:
        """Replies to calls of one step, with those of other threads if that is wanted."""
        if not self._together:
            return self._drive(exchange(self.routes, calls), deadline)
        if self.routes.slots is None:
            return self._turns[None].ask(calls, deadline)
        nodes = {self.routes.node(slot_key_of(call)) for call in calls}
        if len(nodes) == 1:
            return self._turns[nodes.pop()].ask(calls, deadline)
        return self._exchange(calls, deadline)

    def _turn(self, node: Node) -> Turn:
        shown = self.routes.shown(node)
        return Turn(shown, self._exchange, self.merge, self._together)

    def _exchange(self, calls: Sequence[AnyCall], deadline: float) -> list[Any]:
        return self._drive(exchange(self.routes, calls), deadline)

    def _again(self, data: bytes, key: bytes, reply: ReplyError | None, start: float) -> Any:
        """One call the long way; with an error that it was replied already, if any."""
        steps = exchange(self.routes, [Raw(data, key)])
        deadline = start + self.budget
        if reply is None:
            return self._alone(self._drive(steps, deadline))
        next(steps)
        return self._alone(self._drive(steps, deadline, [[reply]]))

    def _alone(self, answers: list[Any]) -> Any:
        """The one reply, raised if it is an error."""
        [answer] = answers
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _drive(self, steps: Steps, deadline: float, first: Any = None) -> list[Any]:
        """Do what an exchange asks for, until it has its replies."""
        unmet: StoreUnavailable | None = None
        if not self._met or self._is_new():
            try:
                deadline = max(deadline, self._meet())
            except StoreUnavailable as error:
                unmet = error
        answers = first
        try:
            while True:
                step = steps.send(answers)
                if isinstance(step, Renew):
                    self._renew(step, deadline)
                    answers = None
                elif unmet is not None:
                    answers = [unmet] * len(step)
                else:
                    answers = self._carry(step, deadline)
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]

    def _carry(self, trips: list[Trip], deadline: float) -> list[Answer]:
        """Write to every node first and then read, so that they work at the same time."""
        seats = self._seats()
        answers: list[Any] = []
        wires: list[Wire | None] = []
        try:
            for trip in trips:
                wire: Wire | None = None
                answer: StoreUnavailable | None = None
                try:
                    wire = self._wire(seats[trip.node], trip.node, deadline)
                    wires.append(wire)
                    wire.write(trip.data, deadline)
                except (StoreUnavailable, OSError) as error:
                    # One command that was not written whole cannot have been carried out.
                    answer = self._failed(wire, error, sent=trip.replies > 1)
                    wires[len(answers) :] = [None]
                answers.append(answer)
            for index, trip in enumerate(trips):
                wire = wires[index]
                if wire is None:
                    continue
                try:
                    answers[index] = wire.read(trip.replies, deadline)
                except OSError as error:
                    wires[index] = None
                    answers[index] = self._failed(wire, error, sent=True)
                else:
                    wires[index] = None
                    wire.used = monotonic()
                    seats[trip.node].append(wire)
        finally:
            for wire in wires:  # an exception of another kind came in between
                if wire is not None:
                    self._dialer.drop(wire)
        return answers

    def _wire(self, seat: list[Wire], node: Node, deadline: float) -> Wire:
        while seat:
            wire = seat.pop()
            if wire.fresh():
                return wire
            self._dialer.drop(wire)
        return self._dialer.take(node, deadline)

    def _failed(self, wire: Wire | None, error: BaseException, *, sent: bool) -> Any:
        """Close what failed, and the error to raise for it."""
        if isinstance(error, StoreError) or wire is None:
            return error
        if not isinstance(error, OSError):  # KeyboardInterrupt and the like: not the server's
            self._dialer.drop(wire)
            return error
        if self._dialer.closed:
            return StoreUnavailable("the store was closed", sent=sent)
        problem = broken(self.routes.shown(wire.node), error, sent=sent)
        self._dialer.failed(wire, problem, late=isinstance(error, TimeoutError))
        return problem

    def _renew(self, step: Renew, deadline: float) -> None:
        """Learn where the servers are, in the background, and wait for it within the deadline."""
        if step.drop:
            for wire in self._seats().pop(step.node, []):
                self._dialer.drop(wire)
            self._dialer.renew(step.node)
        start = monotonic()
        with contextlib.suppress(TimeoutError):
            self.routes.renewed().result(max(0.0, deadline - start))
        if step.pause:
            # Part of the pause went by already; what is left must leave time for the answer.
            left = min(step.pause - (monotonic() - start), (deadline - monotonic()) / 2)
            if left > 0:
                threading.Event().wait(left)

    # -- connecting

    def _seats(self) -> Seats:
        try:
            return self._local.seats  # type: ignore[no-any-return]
        except AttributeError:
            self._local.seats = seats = Seats(self._dialer)
            return seats

    def _dial(self, node: Node) -> Wire:
        return connected(self.target, self.routes, node, self.connect_timeout, self.budget)

    def _is_new(self) -> bool:
        """Whether this thread comes for the first time while everybody is still arriving."""
        if hasattr(self._local, "seats"):
            return False
        return monotonic() - self._born < ARRIVING and self._dialer.calm()

    def _meet(self) -> float:
        """The first connection, in the caller's time; returns the deadline of the call."""
        seats = self._seats()
        end = monotonic() + self.connect_timeout
        for node in self.routes.masters()[:1]:
            seats[node].append(self._dialer.take(node, end))
        if not self._met:
            self._met, self._born = True, monotonic()
        return monotonic() + self.budget


_links: weakref.WeakSet[SyncLink] = weakref.WeakSet()


def _after_fork() -> None:
    """In a child: forget the parent's connections, and all locks that a thread may have held."""
    for link in list(_links):
        wires = link._dialer.abandon()
        local = link._local
        link._reset()
        link.routes.reset()
        for wire in wires:
            wire.close()  # redis-py sees the other process id and only closes
        del local


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
