"""Call: one check under way, as a flow that asks the store once unless it has to wait.

A rule with `busy` depends on another resource. Whether it applies is asked in the same call as
its limits, which count in any case. If the resource was busy when last heard of, the rule is
asked as any other; if not, as one that never vetoes. The answer tells whether that was right.
Only when it was not, and the rule refuses, is there a second call: one that gives back, or one
that asks anew. So the verdict always fits what the store said at one instant.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..answers import by_token
from ..decision import Ask, Decision, joined
from ..errors import LimitExceeded
from ..flows import Flow
from .book import Book, Plan
from .desk import Back, Desk, Patience, Together, Wait, undone
from .permit import ASYNC_NOTHING, NOTHING, AsyncPermit, Permit

if TYPE_CHECKING:
    from ..facts import Facts
    from ..rules.match import Matched
    from ..verdict import Verdict

__all__ = ["Call"]

Answers = Sequence[Decision]


class Call:
    """What one call asks for, and what comes of it."""

    __slots__ = (
        "_book", "_coloured", "_desk", "_facts", "_granted", "_kind", "_loop", "_noticed",
        "_undo", "_wait", "asks", "bounds", "ends", "patient", "plans", "signs",
    )  # fmt: skip

    def __init__(
        self, desk: Desk, book: Book, facts: Facts, matched: Matched, kind: type[Verdict]
    ) -> None:
        self.patient = True
        """Whether to wait where the rules say so."""
        self._desk = desk
        self._book = book
        self._facts = facts
        self._kind = kind
        self._coloured = False
        self._granted: tuple[Sequence[Ask], Answers] | None = None
        self._wait: Wait | None = None
        self._undo = False
        """Whether a task that is cancelled must give back what it was granted."""
        self._noticed = tuple(rule.name for rule in matched.shadowed)
        self.bounds = matched.bounds
        self.plans: list[Plan] = [book.plan(bound) for bound in self.bounds]
        self.asks: list[Ask] = []
        self.ends: list[tuple[int, int]] = []
        """For each bound: where its asks begin and end."""
        self.signs: dict[int, int] = {}
        """For a bound that depends on another resource: where that is asked about."""
        self._fill()

    def _fill(self) -> None:
        desk, asks, token = self._desk, self.asks, 0
        store, room = desk.store, desk.room()
        for bound, plan in zip(self.bounds, self.plans, strict=True):
            first, op = len(asks), "shadow" if plan.shadow else "take"
            if plan.busy is not None and not self._book.busy.get(plan.name):
                op = "shadow"
            for limit in bound.limits:
                mine = ttl = 0
                if limit.algorithm == "concurrency":
                    mine = token = token or store.token()
                    ttl = desk.lease
                asks.append(
                    Ask(op, limit, bound.key, bound.cost, desk.name, 0, -1, mine, ttl, 0, room,
                        plan.on_error)
                )  # fmt: skip
            self.ends.append((first, len(asks)))
            self._undo = self._undo or plan.failures
        self._fill_signs(room)
        self._undo = self._undo or token > 0

    def _fill_signs(self, room: int) -> None:
        for place, plan in enumerate(self.plans):
            if plan.busy is not None:
                self.signs[place] = len(self.asks)
                self.asks.append(
                    Ask("check", plan.busy.limit, plan.busy.key, 1, self._desk.name, room=room,
                        on_error=plan.on_error)
                )  # fmt: skip

    # -- the flow

    def steps(self, loop: Any, coloured: bool) -> Flow[Verdict]:
        """Ask, wait if the rules say so, and judge; `loop` is the one that renews leases."""
        self._loop, self._coloured = loop, coloured
        try:
            return (yield from self._steps())
        except BaseException as error:
            self._let_go(error)
            raise

    def _steps(self) -> Flow[Verdict]:
        if not self.asks:
            return self._judged((), [])
        straight = self._straight() if self.patient else 0.0
        if straight:
            return (yield from self._waiting(straight, None))
        queueing = False
        if self.patient and any(plan.wait for plan in self.plans) and self._takes(()):
            queueing = self._desk.queueing(self._line(()), self._order())
        if queueing:  # whoever may wait does not overtake those who do
            looks = [ask._replace(op="check") for ask in self.asks]
            answers = yield Together(looks)
            refusing = self._refusing(answers)
        else:
            answers, refusing = yield from self._asked()
            if not refusing:
                return self._judged(answers, refusing)
        waits = [self.plans[place].wait for place in refusing]
        if not refusing:
            waits = [plan.wait for plan in self.plans if plan.wait and not plan.shadow]
        timeout = min(waits)
        if timeout <= 0 or not self.patient:
            return self._judged(answers, refusing)
        return (yield from self._waiting(timeout, answers))

    def _asked(self) -> Flow[tuple[Answers, list[int]]]:
        """Ask for everything at once, and see to it that what was taken fits the verdict."""
        answers: Answers = yield Together(self.asks, self._desk if self._undo else None)
        if not self.signs:
            self._granted = self.asks, answers
            return answers, self._refusing(answers)
        back = undone(self.asks, answers)
        self._granted = self.asks, answers
        refusing = self._refusing(answers)
        vetoed = [
            place
            for place in self.signs
            if self.asks[self.ends[place][0]].op == "take" and self._refuses(place, answers)
        ]
        if back and refusing:  # busy after all: what was taken goes back
            self._granted = None
            yield Back(self._desk, back)
        elif not refusing and vetoed:  # no longer busy: as if it had not been asked
            for place in vetoed:
                first, end = self.ends[place]
                self.asks[first:end] = [x._replace(op="shadow") for x in self.asks[first:end]]
            return (yield from self._asked())
        return answers, refusing

    def _waiting(self, timeout: float, answers: Answers | None) -> Flow[Verdict]:
        """Wait in line for what vetoes, and then ask for the rest."""
        refusing = [] if answers is None else self._refusing(answers)
        takes = self._takes(refusing)
        self._granted = None
        self._wait = self._line(refusing)
        try:
            decision = yield Patience(self._wait, timeout, self._order())
        except LimitExceeded as refusal:
            parts = dict(zip(takes, refusal.decision.parts, strict=True))
            self._wait = None
            if answers is None:
                answers = [parts[place] for place in range(len(self.asks))]
            else:
                answers = [parts.get(place, old) for place, old in enumerate(answers)]
            return self._judged(answers, self._refusing(answers) or refusing)
        self._granted = self._wait.asked, decision.parts
        rest = [place for place in range(len(self.asks)) if place not in takes]
        found = dict(zip(takes, decision.parts, strict=True))
        if rest:
            others = [self.asks[place] for place in rest]
            more = yield Together(others, self._desk if self._undo else None)
            found.update(zip(rest, more, strict=True))
        answers = [found[place] for place in range(len(self.asks))]
        for place in takes:
            self.asks[place] = self.asks[place]._replace(op="take")
        self._granted = self.asks, answers
        return self._judged(answers, [])

    # -- what the answers mean

    def _refuses(self, place: int, answers: Answers) -> bool:
        first, end = self.ends[place]
        return any(not answers[each].allowed for each in range(first, end))

    def _applies(self, place: int, answers: Answers) -> bool:
        sign = self.signs.get(place)
        return sign is None or not answers[sign].allowed

    def _refusing(self, answers: Answers) -> list[int]:
        """The bounds that refuse the call."""
        for place, sign in self.signs.items():
            self._book.busy[self.plans[place].name] = not answers[sign].allowed
        return [
            place
            for place, plan in enumerate(self.plans)
            if not plan.shadow and self._refuses(place, answers) and self._applies(place, answers)
        ]

    def _judged(self, answers: Answers, refusing: Sequence[int]) -> Verdict:
        kept = [
            place
            for place, (first, end) in enumerate(self.ends)
            if end > first and not self.plans[place].feeds and self._applies(place, answers)
        ]
        parts = {place: joined(tuple(answers[slice(*self.ends[place])])) for place in kept}
        verdict = self._kind()
        verdict.allowed = not refusing
        verdict._bounds = tuple(self.bounds[place] for place in kept)
        verdict._answers = tuple(parts.values())
        verdict._format = self._book.format
        verdict._rule, verdict._key, verdict._place = None, "", -1
        if refusing:
            worst = max(refusing, key=lambda place: parts[place].retry_after)
            verdict._rule = self.plans[worst].rule
            verdict._key = self.bounds[worst].key
            verdict._place = kept.index(worst)
        verdict._shadowed = self._noticed + tuple(
            self.plans[place].name
            for place in kept
            if self.plans[place].shadow and not parts[place].allowed
        )
        verdict.permit = self._held(answers) if not refusing else self._nothing()
        return verdict

    def _nothing(self) -> Any:
        return ASYNC_NOTHING if self._coloured else NOTHING

    def _held(self, answers: Answers) -> Any:
        """What the call holds from now on."""
        permits = [
            ask
            for ask, answer in zip(self.asks, answers, strict=True)
            if ask.token and answer.allowed and ask.op != "check"
        ]
        counted = [
            (self.asks[each], answers[each])
            for plan, (first, end) in zip(self.plans, self.ends, strict=True)
            if plan.failures
            for each in range(first, end)
            if answers[each].allowed and not self.asks[each].token
        ]
        if not permits and not counted:
            return self._nothing()
        held = (AsyncPermit if self._coloured else Permit)(self._desk, permits, counted)
        held.keep(self._loop)
        return held

    # -- waiting

    def _straight(self) -> float:
        """How long to wait, if it is plain before anything is asked; else 0."""
        waits = {plan.wait for plan in self.plans if plan.limits}
        if len(waits) != 1 or self.signs or len(self.asks) != len(self._takes(())):
            return 0.0
        return waits.pop()

    def _takes(self, refusing: Sequence[int]) -> list[int]:
        """Which asks are waited for: those that can veto."""
        return [
            each
            for place, (plan, (first, end)) in enumerate(zip(self.plans, self.ends, strict=True))
            if not plan.shadow and (plan.busy is None or place in refusing)
            for each in range(first, end)
            if self.asks[each].cost
        ]

    def _line(self, refusing: Sequence[int]) -> Wait:
        takes = [self.asks[each]._replace(op="take") for each in self._takes(refusing)]
        return Wait(self._desk, takes)

    def _order(self) -> int:
        """The call's own priority, or else the highest that a rule gives it."""
        own = self._facts.priority
        given = [plan.priority for plan in self.plans if plan.priority]
        return own or (max(given) if given else 0)

    # -- when something goes wrong

    def _let_go(self, error: BaseException) -> None:
        """Nothing stays taken for a call that ends by an error."""
        blocks, desk = self._desk.store.blocking, self._desk
        if self._granted is not None:
            back = undone(*self._granted)
        elif blocks and (self._coloured or isinstance(error, Exception)):
            # A task's caller has seen to it already, and a store that cannot answer is not asked
            # again: what it leased comes back by itself.
            back = []
        else:  # an interrupt may come after the store has given a permit: its token takes it back
            back = [ask for ask in by_token(self.asks) if ask.op == "release"]
        if back and self._coloured:
            desk.send_back(back)
        elif back:
            desk.give(back, "")
        if self._wait is not None:
            self._wait.left()
