"""Screened: several calls asked together, as far as policies let them in; none of them waits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..flows import run
from ..verdict import Verdict
from .guarded import let_in, lived
from .many import Each
from .passage import Passage

if TYPE_CHECKING:
    from ..facts import Facts
    from ..rules.match import Matched
    from .base import GateBase

__all__ = ["Screened"]


class Screened:
    """What policies say of several calls; whoever leaves by an error gives all of it back."""

    def __init__(self, gate: GateBase, calls: Sequence[Facts | Each], kind: type[Verdict]) -> None:
        self._coloured = kind is not Verdict
        self._found: list[Any] = []
        """The verdicts of policies; None where the limits are to be asked."""
        self._passages: list[tuple[Passage, Matched] | None] = []
        """For each call that limits are asked about."""
        self.calls: list[Each] = []
        """Those calls."""
        try:
            for call in calls:
                self._screen(gate, call if isinstance(call, Each) else Each(call), kind)
        except BaseException:
            self._undo()
            raise

    def _screen(self, gate: GateBase, call: Each, kind: type[Verdict]) -> None:
        book, facts = gate._book, call.facts
        matched = book.match(facts) if call.matched is None else call.matched
        passage, refused = Passage(), None
        asked = book.guards is not None and call.op == "take"
        if asked and matched.exempt is None and matched.denied is None:
            self._passages.append((passage, matched))
            steps = let_in(gate, book, passage, facts, matched, kind, patient=False)
            refused = run(steps, gate.store)
            if refused is not None:
                self._passages.pop()
                gate._told(facts, refused)
            elif passage.shadowed:
                matched = matched._replace(shadowed=(*matched.shadowed, *passage.shadowed))
        else:
            self._passages.append(None)
        self._found.append(refused)
        if refused is None:
            self.calls.append(call._replace(matched=matched))

    def joined(self, verdicts: Sequence[Any]) -> list[Any]:
        """All verdicts, in the order of the calls."""
        for verdict, held in zip(verdicts, self._passages, strict=True):
            if held is not None:
                lived(verdict, *held, self._coloured)
        rest = iter(verdicts)
        return [next(rest) if each is None else each for each in self._found]

    def __enter__(self) -> Screened:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None:
            self._undo()

    def _undo(self) -> None:
        for held in self._passages:
            if held is not None:
                held[0].end("ignored")
