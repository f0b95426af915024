"""Entries: a call through the gate as a `with` block, and the chain of those around it."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from types import TracebackType
from typing import TYPE_CHECKING, Any

from ..facts import Facts
from ..resilience.errors import TimeLimitExceeded
from ..resilience.notices import Notice
from ..verdict import Refused
from .chain import Around, around

if TYPE_CHECKING:
    from ..resilience.timing import TimeLimit
    from ..verdict import AsyncVerdict, Verdict
    from .base import GateBase

__all__ = ["AsyncEntry", "Entry", "arguments"]


def arguments(args: Any) -> Mapping[str, Any]:
    """A call's arguments by name; a sequence of them by place."""
    if isinstance(args, Mapping):
        return args
    if isinstance(args, str | bytes):
        raise TypeError("args are a mapping by name or a sequence by place, not a text")
    return {str(place): value for place, value in enumerate(args)}


class _Entering:
    """What both colours share."""

    _lease: Any = None
    """What the time limit of a policy gave."""

    def __init__(self, gate: GateBase, resource: str | Facts, known: dict[str, Any]) -> None:
        if isinstance(resource, Facts) and known:
            raise TypeError("facts that are given whole take no others beside them")
        if "args" in known:
            known["args"] = arguments(known["args"])
        if not isinstance(resource, Facts):
            known["resource"] = resource
            Facts(**known)  # a name that is wrong is told where it was written
        self._gate = gate
        self._given = resource
        self._known = known
        self._before: Around | None = None
        self._outcome = ""

    def fail(self) -> None:
        """Count the call as a failure, even if no exception says so."""
        self._outcome = "failure"

    def ignore(self) -> None:
        """Count the call neither as a success nor as a failure."""
        self._outcome = "ignored"

    def _facts(self) -> Facts:
        if self._before is not None:
            raise RuntimeError("this entry is under way; make another one")
        outside = around.get()
        if isinstance(self._given, Facts):
            facts = self._given
            if (facts.chain or not outside.chain) and (facts.origin or not outside.origin):
                return facts
            facts = copy(facts)  # whoever gave it may enter with it elsewhere
            facts.chain = facts.chain or outside.chain
        else:
            facts = Facts(**{"chain": outside.chain, **self._known})
        facts.origin = facts.origin or outside.origin  # it holds for what is entered inside
        return facts

    def _inside(self, facts: Facts, verdict: Verdict) -> None:
        if not verdict.allowed:
            raise Refused(verdict)
        self._before = around.get()
        self._outcome = ""
        name = facts.resource or facts.route or facts.path
        around.set(Around((*facts.chain, name), facts.origin))

    def _outside(self, kind: type[BaseException] | None) -> str:
        """How the call went."""
        before, self._before = self._before, None
        if before is not None:
            around.set(before)  # not reset(): a generator may be left in another context
        if self._outcome:
            return self._outcome
        if kind is None:
            return "success"
        # An interrupt or a cancellation says nothing of the call.
        return "failure" if issubclass(kind, Exception) else "ignored"

    def _limit(self, verdict: Verdict) -> TimeLimit | None:
        """How long the call may take, if a policy says so."""
        passage = verdict.permit.passage
        return None if passage is None else passage.limit

    def _in_time(self, verdict: Verdict, error: BaseException | None) -> BaseException | None:
        """What the call has raised, once its time limit has heard of it."""
        passage, lease = verdict.permit.passage, self._lease
        if passage is None:
            return error
        if lease is not None:
            self._lease, limit = None, passage.limit
            assert limit is not None  # it gave the lease
            try:
                limit._leave(lease, error)
            except TimeLimitExceeded as late:
                error = late
                now = self._gate.store.clock.now()
                self._gate._notice(Notice("time_limit.exceeded", limit.name, now, {"error": late}))
            except ValueError:  # left in another context, whose deadline ends with it
                if isinstance(lease, tuple):
                    lease[0].running.pop(lease[1], None)
        passage.error = error
        return error


class Entry(_Entering):
    """`with gate.enter("resource")`."""

    verdict: Verdict

    def __enter__(self) -> Entry:
        facts = self._facts()
        self.verdict = verdict = self._gate.check_now(facts)
        if verdict.permit.passage is not None:
            limit = self._limit(verdict)
            try:
                self._lease = None if limit is None else limit.enter()
            except BaseException:
                verdict.permit.release("ignored")
                raise
        self._inside(facts, verdict)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        permit = self.verdict.permit
        if permit.passage is not None:
            self._in_time(self.verdict, error)
        permit.release(self._outside(kind))


class AsyncEntry(_Entering):
    """`async with gate.enter("resource")`."""

    verdict: AsyncVerdict

    async def __aenter__(self) -> AsyncEntry:
        facts = self._facts()
        self.verdict = verdict = await self._gate.check_soon(facts)
        if verdict.permit.passage is not None:
            limit = self._limit(verdict)
            try:
                self._lease = None if limit is None else limit.begin()
            except BaseException:
                await verdict.permit.release("ignored")
                raise
        self._inside(facts, verdict)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        permit = self.verdict.permit
        if permit.passage is None:
            await permit.release(self._outside(kind))
            return
        raised = self._in_time(self.verdict, error)
        await permit.release(self._outside(None if raised is None else type(raised)))
        if raised is not None and raised is not error:
            raise raised
