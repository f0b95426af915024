"""Guarded: a check with policies before the limits, as a flow for threads and tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..verdict import SHED, Shed, Verdict
from .passage import Passage
from .permit import ASYNC_NOTHING, NOTHING, AsyncPermit, Permit
from .watched import watched

if TYPE_CHECKING:
    from ..facts import Facts
    from ..flows import Flow
    from ..rules.match import Matched
    from .base import GateBase
    from .book import Book

__all__ = ["guarded", "let_in", "lived"]


def guarded(
    gate: GateBase, book: Book, facts: Facts, kind: type[Verdict], loop: Any, coloured: bool
) -> Flow[Any]:
    """The verdict on a call, of the policies first and then of the limits."""
    matched = book.match(facts)
    if matched.exempt is not None or matched.denied is not None:
        return gate._unasked(facts, matched, kind)
    passage = Passage()
    try:
        refused = yield from let_in(gate, book, passage, facts, matched, kind, patient=True)
        if refused is not None:
            return gate._told(facts, refused)
        if passage.shadowed:
            matched = matched._replace(shadowed=(*matched.shadowed, *passage.shadowed))
        verdict = yield from _limited(gate, book, facts, matched, kind, loop, coloured)
        lived(verdict, passage, matched, coloured)
    except BaseException:
        passage.end("ignored")
        raise
    return verdict


def let_in(
    gate: GateBase,
    book: Book,
    passage: Passage,
    facts: Facts,
    matched: Matched,
    kind: type[Verdict],
    patient: bool,
) -> Flow[Any]:
    """Ask the policies; the verdict if one of them refuses, and then nothing is held."""
    assert book.guards is not None  # or nobody would come here
    found = yield from book.guards.enter(passage, facts, matched, patient)
    if found is None:
        return None
    passage.end("ignored")
    rule, key, shed = found
    verdict = kind()
    verdict.allowed = False
    verdict.permit = NOTHING if kind is Verdict else ASYNC_NOTHING  # type: ignore[assignment] # by kind
    verdict._bounds = verdict._answers = ()
    verdict._format = book.format
    verdict._rule, verdict._key, verdict._place = rule, key, SHED
    verdict._shed = Shed(*shed)
    shadowed = (*matched.shadowed, *passage.shadowed)
    verdict._shadowed = tuple(each.name for each in shadowed)
    return verdict


def _limited(
    gate: GateBase,
    book: Book,
    facts: Facts,
    matched: Matched,
    kind: type[Verdict],
    loop: Any,
    coloured: bool,
) -> Flow[Any]:
    """The verdict of the limits."""
    bounds, ways = matched.bounds, gate._prepared
    if not bounds:
        return gate._unasked(facts, matched, kind)
    if len(bounds) == 1 and ways is book.ways and not gate.store.blocking:
        bound = bounds[0]
        way = ways.get(id(bound.limits))
        if way is not None:
            return gate._short(facts, matched, way(bound.key, bound.cost), kind)
    steps: Any = gate.asks(facts, matched, kind, book).steps(loop, coloured)
    if gate._desk.watch is not None:
        steps = watched(steps, gate._desk.watch)
    verdict = yield from steps
    return gate._told(facts, verdict)


def lived(verdict: Any, passage: Passage, matched: Matched, coloured: bool) -> None:
    """Have the end of a call told to the policies; at once, if a limit has refused it."""
    if not verdict.allowed:
        passage.end("ignored")
        return
    if passage.waited or any(bound.rule.rule.wait for bound in matched.bounds):
        passage.begin()
    if verdict.permit in (NOTHING, ASYNC_NOTHING):
        verdict.permit = (AsyncPermit if coloured else Permit)(None)
    verdict.permit.passage = passage
