"""Hook: what happens for every call that a watched gate decides; as little as possible.

A call that passes costs an increment for all calls and one for each of its rules. The keys of
many calls are entered into a sketch together.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ..verdict import SHED
from .counts import (
    ALLOWED,
    DEGRADED,
    DENIED,
    EXEMPT,
    GIVEN,
    PERMITS,
    REFUSED,
    SEEN,
    SHADOWED,
    UNMATCHED,
    Counts,
    Shard,
)
from .events import Recent, noted

if TYPE_CHECKING:
    from ..decision import Ask
    from ..facts import Facts
    from ..verdict import Verdict
    from .policies import PolicyCounts

__all__ = ["Hook"]


class Hook:
    """Counts in the shard of its thread."""

    _counts: Counts
    _local: threading.local
    _recent: Recent
    _policies: PolicyCounts

    def __init__(self, clock: Callable[[], float], times: bool) -> None:
        self.clock = clock
        self.times = times
        """Whether every answer of the store is timed: see gating.watched."""
        self.on_asked: list[Callable[[float], object]] = []
        """Called with the seconds of every answer of the store."""
        self.on_waited: list[Callable[[str, float], object]] = []
        """Called with rule and seconds of every call that stood in line."""

    def hook(self, far: bool) -> Callable[[Facts, Verdict], None]:
        """What is called after every check; `far` says that a store may be stood in for."""

        def told(facts: Facts, verdict: Verdict) -> None:
            try:
                shard: Shard = self._local.shard
            except AttributeError:
                shard = self._counts.shard()
            if verdict.allowed and not verdict._shadowed:
                bounds = verdict._bounds
                if bounds:
                    shard[""].cells[ALLOWED] += 1
                    for bound in bounds:
                        shard[bound[0].name].cells[ALLOWED] += 1
                    shard.seen.append(bounds)
                    if len(shard.seen) >= SEEN:
                        shard.sort_out()
                else:
                    self._unasked(shard, verdict)
            else:
                self._unusual(shard, facts, verdict)
            if far:
                for bound, answer in zip(verdict._bounds, verdict._answers, strict=True):
                    if answer.degraded:
                        shard[bound.rule.name].cells[DEGRADED] += 1
                        shard[""].cells[DEGRADED] += 1

        return told

    def _unasked(self, shard: Shard, verdict: Verdict) -> None:
        """A call passed that no limit was asked about."""
        if verdict._rule is not None:
            shard[""].cells[EXEMPT] += 1
            shard[verdict._rule.name].cells[EXEMPT] += 1
        else:
            shard[""].cells[UNMATCHED] += 1

    def _unusual(self, shard: Shard, facts: Facts, verdict: Verdict) -> None:
        """A call was refused, or would have been by a rule in shadow."""
        allowed, shadowed, calls = verdict.allowed, verdict._shadowed, shard[""].cells
        now = self.clock()
        if not allowed and verdict._place == SHED:
            self._shed(shard, facts, verdict, now)
        elif not allowed and verdict._place < 0:
            name = verdict._rule.name
            calls[DENIED] += 1
            shard[name].cells[DENIED] += 1
            self._recent.add(noted(now, name, "denied", "", None, facts))
        elif not allowed:
            calls[REFUSED] += 1
        elif verdict._bounds:
            calls[ALLOWED] += 1
        else:
            self._unasked(shard, verdict)
        waiting = set(shadowed)
        for bound, answer in zip(verdict._bounds, verdict._answers, strict=True):
            name, key = bound.rule.name, bound.key
            tally = shard[name]
            if name in waiting:
                result, place = "shadowed", SHADOWED
                waiting.discard(name)
            elif allowed:
                tally.cells[ALLOWED] += 1
                if key:
                    tally.keys[key] += 1
                continue
            elif answer.allowed or bound.rule.rule.shadow:
                continue  # it had nothing against the call, but nothing was taken for it
            else:
                result, place = "refused", REFUSED
            tally.cells[place] += 1
            if key:
                tally.keys[key] += 1
                tally.refused[key] += 1
            self._recent.add(noted(now, name, result, key, answer, facts))
        for name in waiting:  # by a deny list in shadow
            shard[name].cells[SHADOWED] += 1
            self._recent.add(noted(now, name, "shadowed", "", None, facts))
        calls[SHADOWED] += bool(shadowed)

    def _shed(self, shard: Shard, facts: Facts, verdict: Verdict, now: float) -> None:
        """A policy refused a call."""
        name, key, shed = verdict._rule.name, verdict._key, verdict._shed
        shard[""].cells[REFUSED] += 1
        tally = shard[name]
        tally.cells[REFUSED] += 1
        if key:
            tally.keys[key] += 1
            tally.refused[key] += 1
        self._policies.refused(name, shed.part)
        self._recent.add(noted(now, name, "refused", key, shed, facts))

    def noticed(self, notice: Any) -> None:
        """Something happened in a policy: see Gate.on_notice."""
        self._policies.noticed(notice, self.clock())

    # -- what a gate tells beside its verdicts: see gating.watched

    def asked(self, nanos: int) -> None:
        """The store took so long for an answer."""
        try:
            shard: Shard = self._local.shard
        except AttributeError:
            shard = self._counts.shard()
        shard.took(nanos)
        for hook in self.on_asked:
            hook(nanos / 1e9)

    def waited(self, asks: Sequence[Ask], nanos: int) -> None:
        """A call stood in line for so long, for all of these."""
        shard = self._mine()
        for rule in _rules_of(asks):
            shard[rule].waited(nanos)
            for hook in self.on_waited:
                hook(rule, nanos / 1e9)

    def held(self, asks: Sequence[Ask], change: int) -> None:
        """Permits were given out (1) or have come back (-1)."""
        shard = self._mine()
        for rule, cost in _rules_of(asks).items():
            cells = shard[rule].cells
            cells[PERMITS] += change * cost
            if change > 0:
                cells[GIVEN] += cost

    def _mine(self) -> Shard:
        found: Shard | None = getattr(self._local, "shard", None)
        return self._counts.shard() if found is None else found


def _rules_of(asks: Sequence[Ask]) -> dict[str, int]:
    """The rules that asks belong to, and what they cost there."""
    return {ask.limit.id.rpartition("#")[0]: ask.cost for ask in asks}
