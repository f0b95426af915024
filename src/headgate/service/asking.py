"""Asking: calls checked on behalf of others, who are told what they hold by a token.

Whoever asks over HTTP may end, or come back through another worker. So what is held is leased:
it comes back by itself unless it is renewed, and nothing of it is kept in this process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..clock import ttl_of
from ..decision import Ask, Decision
from ..flows import run, run_async
from ..gate import Each
from ..gating.call import Call
from ..gating.watched import watched
from ..rules.compiled import Bound, Compiled, Matched
from ..verdict import AsyncVerdict
from .faults import Fault
from .tokens import Held, limit_of, unknown

if TYPE_CHECKING:
    from ..facts import Facts
    from ..gate import AsyncGate
    from ..keys import Key

__all__ = ["LONGEST", "Asking"]

GRACE = 60_000_000
"""For so many microseconds after its lease a token is still understood."""
OUTCOME_TTL = 600.0
"""So many seconds a caller has to tell how a call ended."""
LONGEST = 3600.0
"""Seconds that a lease may have."""
ONCE = "1/2h fixed-window first-hit"
"""Longer than any token is understood, so that nothing is ended twice."""


class Leased(Call):
    """A call whose permits live for a while, whoever holds them."""

    __slots__ = ("_reserve", "_ttl", "held")

    def __init__(self, *args: Any, ttl: int, reserve: bool, patient: bool) -> None:
        self._ttl = ttl
        self._reserve = reserve
        self.held: Held | None = None
        super().__init__(*args)
        self.patient = patient

    def _fill(self) -> None:
        super()._fill()
        asks = self.asks
        for place, ask in enumerate(asks):
            if ask.token:
                asks[place] = ask._replace(ttl=self._ttl)
            elif self._reserve and ask.op in ("take", "shadow") and ask.cost:
                asks[place] = ask._replace(token=self._desk.store.token(), ttl=self._ttl)
                self._undo = True

    def _held(self, answers: Sequence[Decision]) -> Any:
        kept = [
            ask
            for ask, answer in zip(self.asks, answers, strict=True)
            if ask.token and answer.allowed and ask.op != "check"
        ]
        counted = [
            self.asks[each]._replace(
                op="refund",
                cost=answers[each].granted,
                at=answers[each].at + round(answers[each].delay * 1_000_000),
            )
            for plan, (first, end) in zip(self.plans, self.ends, strict=True)
            if plan.failures and not self._reserve
            for each in range(first, end)
            if answers[each].allowed and not self.asks[each].token
        ]
        if kept or counted:
            store = self._desk.store
            life = self._ttl if kept else ttl_of(OUTCOME_TTL)
            until = answers[0].at + life + GRACE
            kind = "reservation" if self._reserve else "permit"
            self.held = Held(store.token(), kind, until, self._desk.name, kept, counted)
        return self._nothing()


class Asking:
    """A gate as others ask it."""

    def __init__(self, gate: AsyncGate, lease: float) -> None:
        self.gate = gate
        self.store: Any = gate.store
        self._lease = lease
        self._named: dict[str, Compiled] = {}
        self._snapshot: Any = None
        self._known: dict[int, tuple[asyncio.TimerHandle, list[Ask]]] = {}
        """Permits given out here, for those who count: until they are given back here, or their
        leases have run out."""

    # -- which rules

    def matched(self, facts: Facts, cost: int = -1) -> Matched:
        """What the rules say of a call."""
        matched = self.gate._book.match(facts)
        if cost >= 0 and matched.bounds:
            bounds = tuple(bound._replace(cost=cost) for bound in matched.bounds)
            matched = matched._replace(bounds=bounds)
        return matched

    def by_rule(self, name: str, key: Key, cost: int, facts: Facts) -> Matched:
        """One rule, asked for by its name, about a key that the caller knows."""
        rule = self.rule(name)
        limits = rule._chosen(facts, key) if rule._varies else rule.limits
        if cost < 0:
            own = rule._cost
            cost = own if isinstance(own, int) else own(facts)
        if not limits:
            exempt = rule.rule if rule.rule.exempt else None
            return Matched((), exempt=exempt)
        return Matched((Bound(rule, key, limits, cost),))

    def rule(self, name: str) -> Compiled:
        """A rule in force; a Fault if there is none of that name."""
        snapshot = self.gate.snapshot
        if snapshot is not self._snapshot:
            rules = [getattr(rule, "compiled", rule) for rule in snapshot.rules]
            self._named = {rule.name: rule for rule in rules if not rule.feeds}
            self._snapshot = snapshot
        rule = self._named.get(name)
        if rule is None:
            raise Fault(422, f"there is no rule {name!r}"[:200], field="rule")
        return rule

    # -- verdicts

    async def check(self, facts: Facts, matched: Matched) -> tuple[AsyncVerdict, Held | None]:
        """Take what a call costs, or say no; and what it holds from now on."""
        gate = self.gate
        bounds, ways = matched.bounds, gate._prepared
        if len(bounds) == 1 and ways is not None:  # by far the most frequent
            bound = bounds[0]
            way = ways.get(id(bound.limits))
            if way is not None:
                answer = way(bound.key, bound.cost)
                if gate._far:
                    answer = await answer
                return gate._short(facts, matched, answer, AsyncVerdict), None
        if not bounds:
            return gate._unasked(facts, matched, AsyncVerdict), None
        return await self.at_length(facts, matched)

    async def at_length(
        self,
        facts: Facts,
        matched: Matched,
        *,
        ttl: float | None = None,
        reserve: bool = False,
        patient: bool = True,
    ) -> tuple[AsyncVerdict, Held | None]:
        """The same for a call that may hold something, or has to wait."""
        gate = self.gate
        if not matched.bounds:
            return gate._unasked(facts, matched, AsyncVerdict), None
        desk = gate._desk
        desk.catch_up()
        lease = ttl_of(self._lease if ttl is None else ttl)
        call = Leased(
            desk, gate._book, facts, matched, AsyncVerdict,
            ttl=lease, reserve=reserve, patient=patient,
        )  # fmt: skip
        loop = asyncio.get_running_loop() if self.store.blocking else None
        steps: Any = call.steps(loop, coloured=True)
        if desk.watch is not None:
            steps = watched(steps, desk.watch)
        verdict: AsyncVerdict = await run_async(steps, self.store)
        gate._told(facts, verdict)
        if call.held is not None:
            self._note(call.held, lease / 1_000_000)
        return verdict, call.held

    def waits(self, matched: Matched) -> bool:
        """Whether a call may have to wait for its turn."""
        return any(bound.rule.rule.wait for bound in matched.bounds)

    async def peek(self, facts: Facts, matched: Matched) -> AsyncVerdict:
        """Would it pass? Takes nothing, and counts as no call."""
        return (await self.gate.check_many([Each(facts, matched, op="check")]))[0]

    async def batch(
        self, calls: Sequence[tuple[Facts, Matched]]
    ) -> list[tuple[AsyncVerdict, Held | None]]:
        """Independent verdicts, in order; all that hold nothing in one call to the store."""
        found: list[Any] = [None] * len(calls)
        plain = []
        for place, (_, matched) in enumerate(calls):
            plans = [self.gate._book.plan(bound) for bound in matched.bounds]
            if all(not (plan.failures or plan.permits) for plan in plans):
                plain.append(place)
        together = [Each(*calls[place]) for place in plain]
        for place, verdict in zip(plain, await self.gate.check_many(together), strict=True):
            found[place] = verdict, None
        for place, (facts, matched) in enumerate(calls):
            if found[place] is None:
                found[place] = await self.at_length(facts, matched, patient=False)
        return found

    # -- what is held

    async def renew(self, held: Held, ttl: float | None) -> tuple[Held, float]:
        """Let what is held live for so many seconds from now; under a token that says so."""
        seconds = self._lease if ttl is None else ttl
        if not held.asks:
            raise unknown()
        lease = ttl_of(seconds)
        answers = await self.decide([ask._replace(op="renew", ttl=lease) for ask in held.asks])
        if not all(answer.allowed for answer in answers):
            raise unknown()
        if held.number in self._known:
            self._note(held, seconds)
        return held._replace(until=answers[0].at + lease + GRACE), seconds

    async def release(self, held: Held, outcome: str) -> None:
        """Give back what is held; a Fault if it was given back before."""
        if held.kind != "permit":
            raise unknown()
        back = list(held.asks)
        once = True
        if held.counted:
            once = await self._once(held)
            if once and outcome == "success":
                back += held.counted
        gone = await self._give(back)
        if not once or not (held.counted or any(gone)):
            raise unknown()
        self._ended(held.number)

    async def settle(self, held: Held, cost: int) -> None:
        """Replace what was reserved by what it has cost; a Fault if that was done before."""
        if held.kind != "reservation" or not await self._once(held):
            raise unknown()
        await self._give([
            ask._replace(op="release" if ask.limit.algorithm == "concurrency" else "settle",
                         cost=ask.cost if ask.limit.algorithm == "concurrency" else cost)
            for ask in held.asks
        ])  # fmt: skip

    async def _give(self, asks: Sequence[Ask]) -> list[bool]:
        """Give back, and tell those who wait for it."""
        if not asks:
            return []
        flow = self.gate._desk.giving(asks, "")
        if self.store.blocking:
            return await run_async(flow, self.store)
        return run(flow, self.store)

    async def _once(self, held: Held) -> bool:
        """Whether this is the first time that somebody ends what is held."""
        if held.until <= round(self.store.clock.now() * 1_000_000):
            return False
        mark = Ask("take", limit_of(ONCE, "once"), str(held.number), 1, "headgate:once")
        return (await self.decide([mark]))[0].allowed

    async def decide(self, asks: Sequence[Ask]) -> list[Decision]:
        """Ask the store itself."""
        return (await self.decide_many([asks]))[0]

    async def decide_many(self, groups: Sequence[Sequence[Ask]]) -> list[list[Decision]]:
        """Ask the store itself for groups that are independent."""
        store = self.store
        ask = store.decide_many_async if store.blocking else store.decide_many
        many = (await ask(groups)) if store.blocking else ask(groups)
        found: list[list[Decision]] = many
        return found

    # -- how many are in use

    def _note(self, held: Held, seconds: float) -> None:
        """Count permits as in use, for as long as they can be."""
        permits = [ask for ask in held.asks if ask.limit.algorithm == "concurrency"]
        watch = self.gate._desk.watch
        if watch is None or not permits:
            return
        known = self._known.pop(held.number, None)
        if known is None:
            watch.held(permits, 1)
        else:
            known[0].cancel()
        timer = asyncio.get_running_loop().call_later(seconds, self._ended, held.number)
        self._known[held.number] = timer, permits

    def _ended(self, number: int) -> None:
        known = self._known.pop(number, None)
        watch = self.gate._desk.watch
        if known is not None:
            known[0].cancel()
            if watch is not None:
                watch.held(known[1], -1)
