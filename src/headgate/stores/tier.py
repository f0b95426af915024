"""Tier: one set of limits in front of a far store, with what is leased of them.

A leased limit is taken from the store in chunks: each is counted there before any of it is used
here, so no more is ever admitted than was counted. A chunk lives for a tenth of the window and
at most a second, and no longer than the window it was taken in. What is left of it goes back.

Written back instead, up to a chunk is admitted here first and counted at the store afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..algorithms import rule_of
from ..clock import Clock
from ..decision import Ask, Decision, decided, joined
from ..keys import Canonical, Key
from ..limit import Limit
from .near import Entry, Leased
from .refusals import SECOND, Refusals
from .steps import Flow, Step

if TYPE_CHECKING:
    from .lease import LeaseStore

__all__ = ["SHARE", "Tier", "can_lease", "chunk_of", "life_of"]

SHARE = 16
"""A chunk is at most this part of a limit."""
WHOLE = ("fixed-window", "sliding-window", "sliding-log", "token-bucket", "gcra")


def can_lease(limit: Limit) -> bool:
    """Whether a limit is to be leased, and is of a kind of which a part can be taken ahead."""
    return limit.lease and _is_whole(limit)


def _is_whole(limit: Limit) -> bool:
    return limit.algorithm in WHOLE and not (limit.debt or limit.elastic)


def chunk_of(limit: Limit) -> int:
    """The largest chunk of a limit that one process holds."""
    if not _is_whole(limit):
        return 1
    return max(1, limit.raised(min(limit.amount, limit.capacity)) // SHARE)


def life_of(limit: Limit) -> int:
    """How long a chunk may be used, in nanoseconds."""
    return min(limit.window * 100, SECOND)


class Tier(Refusals):
    """The takes of one set of limits, of which some may be leased."""

    def __init__(
        self, clock: Clock, store: LeaseStore, space: str, limits: Sequence[Limit], on_error: str
    ) -> None:
        super().__init__(clock, store, space, limits, on_error)
        self.leases = any(map(can_lease, self.limits))
        self.held: dict[Canonical, Entry] = {}
        """The keys of which a lease is not used up."""

    def _leased(self, form: Canonical, key: Key, cost: int, partial: bool) -> Flow[Decision]:
        if not cost:
            near = self.look(form, cost) if self.single else None
            return near if near is not None else (yield from self._plain(form, key, cost))
        if self.single:
            return (yield from self._leasing(form, key, cost, partial))
        if partial:  # how much all of them have left, only the store can say
            return (yield from self._plain(form, key, cost, partial))
        return (yield from self._together(form, key, cost))

    # -- leases

    def _leasing(self, form: Canonical, key: Key, cost: int, partial: bool) -> Flow[Decision]:
        """A take from a new chunk; whoever comes while it is on its way asks for himself."""
        entry = self.entry(form, key)
        with self._lock:
            mine, entry.busy = not entry.busy, True
        if not mine:
            return (yield from self._plain(form, key, cost, partial))
        try:
            sent = self.nanos()
            expired = sent >= entry.until
            back = self._settling(form, entry, self.drain(entry), sent, expired=expired)
            chunk = entry.chunk = self._sized(entry, sent, expired)
            more = 0
            if self.store.write_back and not partial:
                chunk, more = cost, chunk
            if back is None and (partial or chunk <= cost):
                decision: Decision = yield from self._plain(form, key, cost, partial)
                if decision.allowed and not partial:
                    return self._begin(form, entry, decision, cost, sent, more)
                return decision
            take = self._ask(
                "take", self.limits[0], key, cost if partial else max(chunk, cost),
                least=1 if partial else cost,
            )  # fmt: skip
            groups = [[take]] if back is None else [[back], [take]]
            answers = yield Step(self.store.verb_decide_many, (groups,))
            decision = answers[-1][0]
            if not decision.allowed:
                self.note_refusal(form, key, decision, sent)
            elif not partial:
                return self._begin(form, entry, decision, cost, sent, more)
            return decision
        finally:
            entry.busy = False

    def _begin(
        self, form: Canonical, entry: Entry, decision: Decision, cost: int, sent: int, more: int
    ) -> Decision:
        """Begin a lease with what the store granted; the decision on the take that asked."""
        known, received = decision.remaining, self.nanos()
        more = min(more, known)
        left = decision.granted - cost + more
        at = decision.at
        reset = at + round(decision.reset_after * 1_000_000)
        ahead = at * 1000 - received
        source = Leased(decision.limit, decision.degraded)
        ends = self._window_ends(decision, sent)
        until = sent + life_of(decision.limit)
        until = min(until, ends or until)
        entry.at, entry.began, entry.granted, entry.ends = at, sent, left, ends
        entry.debited = not decision.degraded
        entry.source = source
        if not left:
            entry.until = until  # used up by then, if somebody comes before
            return decision
        if self.entries.get(form) is entry:
            self.held[form] = entry
            self.lease(entry, source, left, known - more, reset, ahead, until)
            self.store.plan_sweep(until)
        elif entry.debited and not more:  # forgotten meanwhile
            self.store.later(self._ask("refund", self.limits[0], entry.key, left, at=at))
        outcome = (0, left, known - more, reset)
        return decided(source, outcome, (received + ahead) // 1000, cost)

    def _window_ends(self, decision: Decision, sent: int) -> int:
        """By when, here, the window of a decision is over; 0 if there are no windows."""
        limit, rule = decision.limit, rule_of(decision.limit)
        if limit.algorithm == "fixed-window":
            left = round(decision.reset_after * rule.per_second)
        elif limit.algorithm == "sliding-window" and limit.cells is None:
            left = rule.window - decision.at // rule.tick % rule.window
        else:
            return 0
        # The store's time is known to a tick only.
        return int(sent + (left * rule.tick - (rule.tick - 1)) * 1000)

    def _sized(self, entry: Entry, now: int, expired: bool) -> int:
        """How large the next chunk is: larger, the sooner the last one was used up."""
        if not entry.chunk or entry.source is None:
            return 1
        limit: Limit = entry.source.limit  # the key's own, if it has one
        life, age = life_of(limit), now - entry.began
        if age > 10 * life:
            return 1  # rare
        more = 1 if expired or age * 2 > life else 2 if age * 8 > life else 4
        return min(entry.chunk * more, chunk_of(limit))

    def _settling(
        self, form: Canonical, entry: Entry, left: int, now: int, *, expired: bool = True
    ) -> Ask | None:
        """The ask that ends a lease at the store: what is left goes back, or is counted now."""
        self.held.pop(form, None)
        granted, entry.granted = entry.granted, 0
        limit, used = self.limits[0], granted - left
        if expired and left > used:
            entry.chunk = max(1, min(entry.chunk // 2, 2 * used))
        if not entry.debited:
            return None  # the store knows nothing of it
        if limit.algorithm == "fixed-window" and entry.ends and now >= entry.ends:
            return None  # its window is over, and with it what was counted there
        if self.store.write_back:
            return self._ask("charge", limit, entry.key, used) if used > 0 else None
        return self._ask("refund", limit, entry.key, left, at=entry.at) if left else None

    def idle(self, now: int | None = None) -> list[Ask]:
        """End the leases that nobody can use any more (or all); the asks that settle them."""
        asks = []
        for form, entry in list(self.held.items()):
            with self._lock:
                if entry.busy or (now is not None and now < entry.until):
                    continue
                ask = self._settling(form, entry, self.drain(entry), self.nanos())
            if ask is not None:
                asks.append(ask)
        return asks

    def _end(self, form: Canonical, entry: Entry) -> None:
        """Settle what a key that goes has leased; later, as its caller should not wait for it."""
        with self._lock:
            ask = self._settling(form, entry, self.drain(entry), self.nanos())
        if ask is not None:
            self.store.later(ask)

    def look(self, form: Canonical, cost: int) -> Decision | None:
        """Whether a take would pass by what is leased, if it would."""
        entry, now = self.entries.get(form), self.nanos()
        if entry is None or not cost <= entry.left or now >= entry.until:
            return None
        outcome = (0, entry.left, entry.known, entry.reset)
        return decided(entry.source, outcome, (now + entry.ahead) // 1000, cost).glance()

    def give_back(self, form: Canonical, cost: int) -> bool:
        """Give back to the lease that it came from; False if that has ended."""
        entry = self.entries.get(form)
        return entry is not None and self.give(entry, cost)

    # -- several limits, of which some are leased

    def _together(self, form: Canonical, key: Key, cost: int) -> Flow[Decision]:
        """What is leased is taken here, the rest from the store: all of it or nothing."""
        sent = self.nanos()
        found: list[Decision | None] = [None] * len(self.limits)
        taken: list[tuple[int, Tier]] = []
        passed = True
        try:
            for number, limit in enumerate(self.limits):
                if passed and can_lease(limit):
                    tier = self.store.tier(self.space, (limit,), self.on_error)
                    decision = tier.near(key, cost, partial=False)
                    if decision is None:
                        decision = yield from tier.taking(key, cost, partial=False)
                    found[number] = decision
                    passed = decision.allowed
                    if passed:
                        taken.append((number, tier))
            rest = [number for number, decision in enumerate(found) if decision is None]
            if rest:
                op = "take" if passed else "check"
                asks = [self._ask(op, self.limits[number], key, cost) for number in rest]
                answers: list[Decision] = yield Step(self.store.verb_decide, (asks,))
                for number, decision in zip(rest, answers, strict=True):
                    found[number] = decision
                    passed = passed and decision.allowed
        except BaseException:
            self._untake(form, key, cost, taken, found)
            raise
        if not passed:
            self._untake(form, key, cost, taken, found)
        whole = joined(tuple(found))  # type: ignore[arg-type] # none is None any more
        if not passed:
            self.note_refusal(form, key, whole, sent)
        return whole

    def _untake(
        self,
        form: Canonical,
        key: Key,
        cost: int,
        taken: list[tuple[int, Tier]],
        found: list[Decision | None],
    ) -> None:
        for number, tier in taken:
            decision = found[number]
            assert decision is not None
            if not tier.give_back(form, cost):
                refund = self._ask("refund", self.limits[number], key, cost, at=decision.at)
                self.store.later(refund)
            found[number] = decision.glance()

    def after_fork(self) -> None:
        """In a child: what is leased is the parent's."""
        super().after_fork()
        self.held.clear()
