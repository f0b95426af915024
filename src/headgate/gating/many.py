"""Many: several calls checked together, each by itself, with one call to the store.

A call that is refused takes nothing, whatever becomes of the others. Calls that hold something
(permits, or what only a failure keeps) ask a store that blocks one by one, so that a task that
is cancelled gives back exactly what it was granted.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ..facts import Facts
from ..flows import Flow, run, run_async
from ..verdict import AsyncVerdict, Verdict
from .call import Call
from .counted import Counted
from .desk import Together
from .watched import watched

if TYPE_CHECKING:
    from ..decision import Ask, Decision
    from ..rules.match import Matched
    from .base import GateBase

__all__ = ["Each", "many_now", "many_soon"]

CALLS = ("take", "charge")
"""What counts as a call to whoever watches the gate."""


class Each(NamedTuple):
    """One of several calls, with what is known of it beside its facts."""

    facts: Facts
    matched: Matched | None = None
    """What the rules say of it, where the caller has found that out already."""
    cost: int = -1
    """In place of what the rules say."""
    op: str = "take"
    """take; check, which takes nothing; charge, which counts even what it refuses; or refund."""


def many_now(gate: GateBase, calls: Sequence[Facts | Each]) -> list[Any]:
    """Verdicts for threads."""
    if gate._book.guards is not None:
        from .screened import Screened

        with Screened(gate, calls, Verdict) as screened:
            return screened.joined(_now(gate, screened.calls))
    return _now(gate, calls)


async def many_soon(gate: GateBase, calls: Sequence[Facts | Each]) -> list[Any]:
    """Verdicts for tasks."""
    if gate._book.guards is not None:
        from .screened import Screened

        with Screened(gate, calls, AsyncVerdict) as screened:
            return screened.joined(await _soon(gate, screened.calls))
    return await _soon(gate, calls)


def _now(gate: GateBase, calls: Sequence[Facts | Each]) -> list[Any]:
    batch = Batch(gate, Verdict)
    batch.begin(calls)
    if batch.rest:
        run(batch.flow(None, coloured=False), gate.store)
    return batch.found


async def _soon(gate: GateBase, calls: Sequence[Facts | Each]) -> list[Any]:
    batch = Batch(gate, AsyncVerdict)
    batch.begin(calls)
    if not batch.rest:
        return batch.found
    loop = None
    if gate.store.blocking:
        if len(calls) == 1 and await batch.alone():
            return batch.found
        import asyncio

        loop = asyncio.get_running_loop()
    await run_async(batch.flow(loop, coloured=True), gate.store)
    return batch.found


class Batch:
    """Several calls under way."""

    __slots__ = ("_gate", "_kind", "found", "rest")

    def __init__(self, gate: GateBase, kind: type[Any]) -> None:
        self._gate = gate
        self._kind = kind
        self.found: list[Any] = []
        """The verdicts, in order; None as long as there is none."""
        self.rest: list[tuple[int, Facts, Matched, str]] = []

    def begin(self, calls: Sequence[Facts | Each]) -> None:
        """Decide what needs no asking, and what a store that does not block has prepared."""
        gate, kind, found = self._gate, self._kind, self.found
        book, ways = gate._book, gate._prepared
        if gate.store.blocking:
            ways = None
        for call in calls:
            facts, matched, cost, op = call if type(call) is Each else Each(call)  # type: ignore[arg-type] # no Each: Facts
            if matched is None:
                matched = book.match(facts)
            bounds = matched.bounds
            if not bounds:
                found.append(gate._unasked(facts, matched, kind, heard=op in CALLS))
                continue
            if cost >= 0 and (bounds[0].cost != cost or len(bounds) > 1):
                bounds = tuple(bound._replace(cost=cost) for bound in bounds)
                matched = matched._replace(bounds=bounds)
            # Once one has to be asked at length, those behind it are too, so as to keep the order.
            if ways is not None and op == "take" and len(bounds) == 1 and not self.rest:
                bound = bounds[0]
                way = ways.get(id(bound.limits))
                if way is not None:
                    answer = way(bound.key, bound.cost)
                    found.append(gate._short(facts, matched, answer, kind))
                    continue
            self.rest.append((len(found), facts, matched, op))
            found.append(None)

    async def alone(self) -> bool:
        """Ask for the only call by the prepared way of a store that blocks, if it has one."""
        place, facts, matched, op = self.rest[0]
        ways = self._gate._prepared
        if op != "take" or len(matched.bounds) != 1 or ways is None:
            return False
        bound = matched.bounds[0]
        way = ways.get(id(bound.limits))
        if way is None:
            return False
        answer = await way(bound.key, bound.cost)
        self.found[place] = self._gate._short(facts, matched, answer, self._kind)
        return True

    def flow(self, loop: Any, coloured: bool) -> Flow[None]:
        """Ask for all the others together."""
        watch = self._gate._desk.watch
        flow = self._flow(loop, coloured)
        return flow if watch is None else watched(flow, watch)

    def _flow(self, loop: Any, coloured: bool) -> Flow[None]:
        gate = self._gate
        gate._desk.catch_up()
        calls = [self._call(facts, matched, op) for _, facts, matched, op in self.rest]
        flows = [call.steps(loop, coloured) for call in calls]
        verdicts: dict[int, Any] = {}
        steps: dict[int, Any] = {}
        for place, flow in enumerate(flows):
            _go_on(flow, None, place, steps, verdicts)
        try:
            while steps:
                yield from _round(flows, steps, verdicts, gate.store.blocking)
        except BaseException as error:  # nothing stays taken for calls that end by an error
            for place in verdicts:
                with contextlib.suppress(Exception):
                    calls[place]._let_go(error)
            for place in steps:
                with contextlib.suppress(BaseException):
                    flows[place].throw(error)
            raise
        for place, (order, facts, _, op) in enumerate(self.rest):
            verdict = verdicts[place]  # whoever merely looks, or gives back, is no call
            self.found[order] = gate._told(facts, verdict) if op in CALLS else verdict

    def _call(self, facts: Facts, matched: Matched, op: str) -> Call:
        gate = self._gate
        known = gate._desk, gate._book, facts, matched, self._kind
        if op != "take":
            return Counted(op, *known)
        call = Call(*known)
        call.patient = False
        return call


def _round(
    flows: list[Any], steps: dict[int, Any], verdicts: dict[int, Any], blocking: bool
) -> Flow[None]:
    """Do what each of the calls wants next: what can be asked together is one step."""
    wanted = dict(steps)
    plain = [
        place
        for place, step in wanted.items()
        if isinstance(step, Together) and (step.undo is None or not blocking)
    ]
    if len(plain) > 1:
        answers = yield Groups([wanted[place].asks for place in plain])
        for place, answer in zip(plain, answers, strict=True):
            _go_on(flows[place], answer, place, steps, verdicts)
            del wanted[place]
    for place, step in wanted.items():
        answer = yield step
        _go_on(flows[place], answer, place, steps, verdicts)


def _go_on(
    flow: Any, answer: Any, place: int, steps: dict[int, Any], verdicts: dict[int, Any]
) -> None:
    try:
        steps[place] = flow.send(answer)
    except StopIteration as end:
        steps.pop(place, None)
        verdicts[place] = end.value


class Groups(NamedTuple):
    """The step that asks for groups which are independent of each other."""

    groups: Sequence[Sequence[Ask]]

    def ask(self, store: Any) -> list[list[Decision]]:
        answers: list[list[Decision]] = store.decide_many(self.groups)
        return answers

    async def ask_async(self, store: Any) -> list[list[Decision]]:
        if not store.blocking:
            return self.ask(store)
        answers: list[list[Decision]] = await store.decide_many_async(self.groups)
        return answers
