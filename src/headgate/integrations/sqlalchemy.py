"""SQLAlchemy: a guard in front of a database, for the statements and connections of an engine.

A statement is asked about before it is sent, and ends when the database has answered; a
connection from when the pool hands it out until it is back there, which is as long as the
transactions on it. On an async engine the same events run below a greenlet, in which the gate
is awaited.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sqlalchemy import event
from sqlalchemy.engine import Engine
from sqlalchemy.exc import MissingGreenlet
from sqlalchemy.pool import Pool

from ..facts import NOTHING, Facts
from ..gate import AsyncGate, Gate, Refused
from ..rules.model import Match
from .common import Find, Finder, gate_of, known_of

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection, ExceptionContext
    from sqlalchemy.ext.asyncio import AsyncEngine

    from ..limit import Limit

__all__ = ["CONNECTION", "STATEMENT", "EngineGuard", "guard_engine", "kind_of"]

STATEMENT, CONNECTION = "statement", "connection"
"""The resources that rules know them by."""
WORDS = {"kind": "method", "database": "attribute:database"}
"""What a key is called here, and what rules call it."""


def guard_engine(
    engine: Engine | AsyncEngine | Pool,
    *limits: str | Limit,
    rules: Any = None,
    gate: Gate | AsyncGate | None = None,
    per: str | None = None,
    key: str | Sequence[str] = (),
    store: Any = None,
    name: str = "sqlalchemy",
    wait: float | None = None,
    user: Finder | None = None,
    origin: Finder | None = None,
    attributes: Finder | None = None,
    priority: Finder | None = None,
) -> EngineGuard:
    """Guard an engine or a pool; a call that is refused raises `Refused`, which names the rule.

    per        what limits as text count: every `statement`, or every `connection` that is out
               of the pool; of a pool only those are known
    key        what limits as text count by: `kind` (SELECT, INSERT, ...), `database`, `user`,
               ..., several of them, or () for all together
    store      where to count: a URL, such as zone://... or redis://..., for several processes
    name       the namespace of the limits: engines that say the same count together
    wait       seconds that limits as text let a call wait; 1 unless it is said
    user, ...  functions of the Connection; where a pool hands one out, of the pool's entry

    Rules are asked about both; they tell them apart by `resource`, and kinds by `method`.
    """
    target: Any = getattr(engine, "sync_engine", engine)
    known = (CONNECTION,) if isinstance(target, Pool) else (STATEMENT, CONNECTION)
    words: dict[str, Any] = {} if wait is None else {"wait": wait}
    if limits:
        per = per or known[0]
        words = {"wait": 1.0, "match": Match(resources=(per,)), **words}
    if per is not None and (per not in known or not limits):
        raise ValueError(f"per goes with limits as text, and is one of {known}; not {per!r}")
    parts = (key,) if isinstance(key, str) else key
    own = gate_of(
        AsyncGate if target is not engine else Gate,
        limits, rules=rules, gate=gate, key=[WORDS.get(part, part) for part in parts],
        store=store, words=words, **({} if gate is not None else {"name": name}),
    )  # fmt: skip
    find = Find(user=user, origin=origin, attributes=attributes, priority=priority)
    return EngineGuard(target, own, find, (per,) if per else known)


class EngineGuard:
    """A gate that listens to the events of an engine or a pool."""

    def __init__(self, target: Any, gate: Any, find: Find, resources: Sequence[str]) -> None:
        self.gate = gate
        self._target = target
        self._find = find
        url = getattr(target, "url", None)
        self._host = (url.host or "") if url is not None else ""
        self._attributes = {} if url is None else {"database": url.database or ""}
        self._running: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
        """The permits of statements; what is forgotten with its statement comes back."""
        self._events: list[tuple[str, Any]] = []
        if STATEMENT in resources:
            self._events += [
                ("before_cursor_execute", self._before),
                ("after_cursor_execute", self._after),
                ("handle_error", self._failed),
            ]
        if CONNECTION in resources:
            self._events += [("checkout", self._checkout), ("checkin", self._checkin)]
            self._events += [("detach", self._checkin), ("invalidate", self._invalidated)]
        for word, listener in self._events:
            event.listen(target, word, listener)

    def remove(self) -> None:
        """Guard no more; calls under way give back what they hold. The gate stays open."""
        for word, listener in self._events:
            if word in ("before_cursor_execute", "checkout"):
                event.remove(self._target, word, listener)

    # -- statements

    def _before(
        self, conn: Connection, cursor: Any, statement: str, parameters: Any, context: Any,
        executemany: bool,
    ) -> None:  # fmt: skip
        over = self._running.pop(context or conn, None)  # one of several parts
        proxy: Any = conn.connection
        if over is not None:
            self._give(proxy.dbapi_connection, over, "success")
        named = parameters if isinstance(parameters, Mapping) else NOTHING
        facts = self._facts(STATEMENT, conn, method=kind_of(statement, context), args=named)
        permit = self._take(proxy.dbapi_connection, facts)
        if permit:
            self._running[context or conn] = permit

    def _after(
        self, conn: Connection, cursor: Any, statement: str, parameters: Any, context: Any,
        executemany: bool,
    ) -> None:  # fmt: skip
        permit = self._running.pop(context or conn, None)
        if permit is not None:
            self._give(conn.connection.dbapi_connection, permit, "success")

    def _failed(self, error: ExceptionContext) -> None:
        permit = self._running.pop(error.execution_context or error.connection, None)
        if permit is not None:
            conn = error.connection
            gone = conn is None or conn.closed or conn.invalidated
            proxy: Any = None if gone or conn is None else conn.connection
            ordinary = isinstance(error.original_exception, Exception)
            self._give(
                proxy and proxy.dbapi_connection, permit, "failure" if ordinary else "ignored"
            )

    # -- connections

    def _checkout(self, dbapi_connection: Any, record: Any, proxy: Any) -> None:
        try:
            permit = self._take(dbapi_connection, self._facts(CONNECTION, record))
        except BaseException:
            proxy.close()  # or the pool would take the connection for broken
            raise
        if permit:
            record.record_info.setdefault(self, []).append(permit)

    def _checkin(self, dbapi_connection: Any, record: Any) -> None:
        # Several of a StaticPool, which hands out the same again and notes only one return.
        for permit in record.record_info.pop(self, ()):
            self._give(dbapi_connection, permit, "success")

    def _invalidated(self, dbapi_connection: Any, record: Any, error: Any) -> None:
        self._checkin(dbapi_connection, record)  # it is gone, whoever still has it

    # -- the gate

    def _facts(self, resource: str, source: Any, **more: Any) -> Facts:
        known = known_of(self._find, source)
        known["attributes"] = {**self._attributes, **known.get("attributes", {})}
        return Facts(resource=resource, host=self._host, **more, **known)

    def _take(self, dbapi_connection: Any, facts: Facts) -> Any:
        if isinstance(self.gate, AsyncGate):
            gate = self.gate
            verdict = dbapi_connection.run_async(lambda driver: gate.check(facts))
        else:
            verdict = self.gate.check(facts)
        if not verdict.allowed:
            raise Refused(verdict)
        return verdict.permit

    def _give(self, dbapi_connection: Any, permit: Any, outcome: str) -> None:
        if not permit:
            return
        if not isinstance(self.gate, AsyncGate):
            permit.release(outcome)
        elif dbapi_connection is not None:
            # Below no greenlet, as when garbage is collected, nothing can be awaited. The permit
            # is then forgotten, and comes back as those do.
            with contextlib.suppress(MissingGreenlet):
                dbapi_connection.run_async(lambda driver: permit.release(outcome))


def kind_of(statement: str, context: Any = None) -> str:
    """The first word of a statement, in capitals: SELECT, INSERT, CREATE, ...

    >>> kind_of("/* from the shop */ select 1")
    'SELECT'
    """
    for kind in ("insert", "update", "delete"):
        if getattr(context, f"is{kind}", False):  # whatever stands in front of it
            return kind.upper()
    start, length = 0, len(statement)
    while start < length:
        if statement[start].isspace() or statement[start] == "(":
            start += 1
            continue
        ends = {"--": "\n", "/*": "*/"}.get(statement[start : start + 2])
        if ends is None:
            break
        found = statement.find(ends, start + 2)
        start = length if found < 0 else found + len(ends)
    end = start
    while end < length and (statement[end].isalnum() or statement[end] == "_"):
        end += 1
    word = statement[start:end].upper()
    query = word == "WITH" and getattr(context, "compiled", None) is not None
    return "SELECT" if query else word
