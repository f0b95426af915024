"""Dialing: connections made in the background, so that a request never waits for DNS or a
handshake longer than it can wait for an answer.

A caller without a connection asks for one. If the server is thought to be up, the caller waits
for it, within its own deadline; after a failure nobody waits: calls raise at once until a
background thread has reached the server again. Threads are started on demand and end when
nothing is wanted.
"""

from __future__ import annotations

import contextlib
import random
import threading
from collections import deque
from collections.abc import Callable, Iterator
from time import monotonic

from ....errors import StoreError, StoreUnavailable
from .routes import Node, Routes
from .target import Target
from .wire import Wire

__all__ = ["INTEREST", "Dialer", "Seats", "backoff", "connected"]

FIRST, LAST = 0.02, 1.0
APART = 0.02
LATE = 3
"""Answers that must be late within LAST seconds before a server counts as down."""
WORKERS = 8
"""Connections that are made at the same time: many threads may start at once."""
KEPT = 16
"""Idle connections kept for each node."""
INTEREST = 30.0
"""Seconds after the last call until nobody cares that a server is still down."""
_chance = random.SystemRandom()  # a thread of ours leaves the program's own sequence alone


def backoff(failures: int) -> float:
    """Seconds until the next try: doubled each time, and never the same for two processes."""
    return min(LAST, FIRST * 2.0 ** min(failures - 1, 10)) * _chance.uniform(0.5, 1.0)


class _Home:
    """What is known of one node."""

    def __init__(self) -> None:
        self.idle: deque[Wire] = deque()
        self.bells: deque[threading.Lock] = deque()
        self.workers: list[threading.Thread] = []
        self.failures = 0
        self.down: StoreError | None = None
        self.asked = 0.0
        self.late: deque[float] = deque(maxlen=LATE)


class Dialer:
    """The connections of one link that no thread is using, and the threads that make more."""

    def __init__(self, dial: Callable[[Node], Wire], routes: Routes) -> None:
        self._dial = dial
        self._routes = routes
        # Callers take the bare lock: `with` enters it in one step, where a signal's handler that
        # raises cannot come between. A condition's would; only threads of ours wait on it.
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._homes: dict[Node, _Home] = {}
        self._wires: set[Wire] = set()
        self._inside: set[int] = set()
        self.closed = False

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """The lock, and whose threads have it."""
        me = threading.get_ident()
        first = me not in self._inside
        self._inside.add(me)
        try:
            with self._lock:
                yield
        finally:
            if first:
                self._inside.discard(me)

    def home(self, node: Node) -> _Home:
        """What is known of a node."""
        found = self._homes.get(node)
        return found if found is not None else self._homes.setdefault(node, _Home())

    def take(self, node: Node, deadline: float) -> Wire:
        """A connection that nobody else uses, or StoreUnavailable by the deadline."""
        home = self.home(node)
        while True:
            with contextlib.suppress(IndexError):
                while True:  # idle ones first, the dead among them dropped
                    wire = home.idle.pop()
                    if wire.fresh():
                        return wire
                    self.drop(wire)
            bell = threading.Lock()
            bell.acquire()
            if threading.get_ident() in self._inside:
                # A signal's handler asks while its own thread holds the lock: the thread that
                # connects could not get it, so there is nothing to wait for.
                raise StoreUnavailable("asked in the middle of connecting", sent=False)
            with self._locked():
                if self.closed:
                    raise StoreError("the store was closed")
                home.asked = now = monotonic()
                if home.idle:
                    continue
                if home.down is not None:
                    self._start(node, home, 1)
                    raise StoreUnavailable(str(home.down), sent=False)
                if now >= deadline:
                    raise StoreUnavailable(
                        f"no connection to {self._routes.shown(node)} in time", sent=False
                    )
                home.bells.append(bell)
                self._start(node, home, min(len(home.bells), WORKERS))
            self._listen(home, bell, deadline - now)

    def _listen(self, home: _Home, bell: threading.Lock, seconds: float) -> None:
        """Wait for a bell; one that rang too late is handed on."""
        rang = False
        try:
            rang = bell.acquire(timeout=seconds)
        finally:
            if not rang:
                try:
                    home.bells.remove(bell)
                except ValueError:
                    self._ring(home)

    def _ring(self, home: _Home) -> None:
        with contextlib.suppress(IndexError):
            home.bells.popleft().release()

    def calm(self) -> bool:
        """Whether nothing has gone wrong yet."""
        return not any(home.late or home.failures or home.down for home in self._homes.values())

    def give(self, wire: Wire) -> None:
        """A connection that its thread needs no more; never blocks, so a finalizer may do it."""
        home = self.home(wire.node)
        if self.closed or len(home.idle) >= KEPT:
            self.drop(wire)
        else:
            home.idle.append(wire)
            self._ring(home)

    def drop(self, wire: Wire) -> None:
        """Close a connection."""
        self._wires.discard(wire)
        wire.close()

    def failed(self, wire: Wire, error: StoreError, *, late: bool) -> None:
        """A connection failed while it was in use: nobody waits until the server is back.

        One late answer says little, on a machine with much to do; several at once say enough.
        """
        self.drop(wire)
        home = self.home(wire.node)
        with self._locked():
            home.asked = now = monotonic()
            if late:
                if not home.late or now - home.late[-1] > APART:
                    home.late.append(now)  # else the same moment, seen by several threads
                if len(home.late) < LATE or now - home.late[0] > LAST:
                    return
            home.down = error
            while home.idle:  # they lead to the same server
                self.drop(home.idle.pop())
            self._start(wire.node, home, 1)

    def renew(self, node: Node) -> None:
        """Idle connections lead to a server that is no longer the right one."""
        home = self.home(node)
        with contextlib.suppress(IndexError):
            while True:
                self.drop(home.idle.pop())

    def close(self) -> None:
        """Close every connection, those in use too."""
        with self._lock:
            self.closed = True
            self._changed.notify_all()
            for home in self._homes.values():
                while home.bells:
                    self._ring(home)
        for wire in list(self._wires):
            self.drop(wire)

    def abandon(self) -> list[Wire]:
        """All connections, for a child process that must not use its parent's."""
        return list(self._wires)

    def _start(self, node: Node, home: _Home, workers: int) -> None:
        """Have so many threads dial; under the lock."""
        # Threads are looked at, not counted: an exception in the middle of a start (a signal's
        # handler may raise) would leave a count wrong for ever. Nor are those dropped that have
        # no ident yet: a handler may get here while another call is about to start one.
        home.workers = [one for one in home.workers if one.ident is None or one.is_alive()]
        while len(home.workers) < workers:
            name = "headgate-dial"
            made = threading.Thread(target=self._work, args=(node, home), name=name, daemon=True)
            home.workers.append(made)
            try:
                made.start()
            except BaseException:
                if made.ident is None:
                    home.workers.remove(made)
                raise

    def _work(self, node: Node, home: _Home) -> None:
        """Connect until nothing is wanted."""
        while True:
            wire: Wire | None = None
            error: StoreError | None = None
            try:
                wire = self._dial(node)
            except StoreError as problem:
                error = problem
            except Exception as problem:  # a thread that dies silently would never be replaced
                error = StoreUnavailable(f"cannot connect: {problem!r}", sent=False)
            with self._changed:
                if wire is not None:
                    home.failures, home.down = 0, None
                    self._wires.add(wire)
                    home.idle.append(wire)
                    self._ring(home)
                else:
                    home.failures += 1
                    home.down = error
                    while home.bells:
                        self._ring(home)
                self._changed.notify_all()
                if not self._goes_on(node, home):
                    with contextlib.suppress(ValueError):
                        home.workers.remove(threading.current_thread())
                    if self.closed and wire is not None:
                        self.drop(wire)
                    return

    def _is_node(self, node: Node) -> bool:
        return node is None or node in self._routes.masters()

    def _goes_on(self, node: Node, home: _Home) -> bool:
        """Whether a thread has more to do, after a pause if the server is down; under the lock."""
        if self.closed:
            return False
        if home.down is None:
            return len(home.bells) >= len(home.workers)
        if len(home.workers) > 1:  # one is enough to knock
            return False
        self._changed.wait_for(lambda: self.closed or not home.down, backoff(home.failures))
        if self.closed or not home.down:
            return False
        if monotonic() - home.asked > INTEREST or not self._is_node(node):
            home.down = None  # unknown again: the next call finds out
            home.failures = 0
            return False
        return True


class Seats(dict[Node, list[Wire]]):
    """A thread's connections by node, given back when the thread ends."""

    def __init__(self, dialer: Dialer) -> None:
        super().__init__()
        self._dialer = dialer

    def __missing__(self, node: Node) -> list[Wire]:
        return self.setdefault(node, [])

    def __del__(self) -> None:
        for seat in self.values():
            while seat:
                self._dialer.give(seat.pop())


def connected(target: Target, routes: Routes, node: Node, timeout: float, budget: float) -> Wire:
    """A new connection to a server that answers; may block, so it runs in the background."""
    shown = routes.shown(node)
    connection = None
    try:
        if not routes.known(node):
            routes.refresh()
        connection = target.connection(routes.place(node), timeout)
        connection.connect()
        wire = Wire(connection, node, shown)
        wire.greet(timeout)
        wire.sock.settimeout(budget)
        wire.limit = budget
        return wire
    except Exception as error:
        if connection is not None:
            with contextlib.suppress(Exception):
                connection.disconnect()
        routes.renewed()  # it may be somewhere else by now
        if isinstance(error, StoreError):
            raise
        raise StoreUnavailable(f"cannot connect to {shown}: {error}", sent=False) from None
