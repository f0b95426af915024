"""Counted: a call that is looked at, or counted whatever the rules say; it holds nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..decision import Ask
from .call import Call
from .desk import Together

if TYPE_CHECKING:
    from ..flows import Flow
    from ..verdict import Verdict

__all__ = ["Counted"]


class Counted(Call):
    """A call that takes nothing by itself.

    `mode` is check; charge, which counts even what is refused; or refund, which gives back.
    """

    __slots__ = ("_counts", "_mode")

    def __init__(self, mode: str, *call: Any) -> None:
        self._mode = mode
        self._counts: dict[int, int] = {}
        """For what is looked at: where the same is counted."""
        super().__init__(*call)

    def _fill(self) -> None:
        asks, desk, mode = self.asks, self._desk, self._mode
        room = desk.room()
        for bound, plan in zip(self.bounds, self.plans, strict=True):
            first, cost = len(asks), 0 if mode == "refund" else bound.cost
            asks += [
                Ask("check", limit, bound.key, cost, desk.name, room=room, on_error=plan.on_error)
                for limit in bound.limits
            ]
            self.ends.append((first, len(asks)))
        if mode != "check":
            self._fill_counts()
        self._fill_signs(room)

    def _fill_counts(self) -> None:
        at = round(self._desk.store.clock.now() * 1_000_000) if self._mode == "refund" else 0
        for bound, (first, end) in zip(self.bounds, self.ends, strict=True):
            for place in range(first, end):
                ask = self.asks[place]
                if ask.limit.algorithm != "concurrency":  # those are held, or not at all
                    self._counts[place] = len(self.asks)
                    self.asks.append(ask._replace(op=self._mode, cost=bound.cost, at=at))

    def _steps(self) -> Flow[Verdict]:
        answers: list[Any] = yield Together(self.asks)
        for place, count in self._counts.items():
            if answers[place].allowed:  # what is left is told as it is afterwards
                answers[place] = answers[count]
        return self._judged(answers, self._refusing(answers))

    def _held(self, answers: Any) -> Any:
        return self._nothing()
