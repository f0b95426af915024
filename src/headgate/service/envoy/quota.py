"""Quotas: Envoy decides by itself for a while, and only reports.

A bucket of Envoy's is a descriptor of the rules. What an Envoy may let pass is taken from the
store beforehand, and handed out as a bucket of so many tokens that is not filled again; what was
not used goes back once it can be used no more. So several Envoys, and those who ask by other
ways, share one limit, and together they never pass more than was taken.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from itertools import permutations
from math import ceil
from typing import TYPE_CHECKING, Any

from ...decision import Ask, Decision
from ...errors import StoreError
from ...rules.compiled import Bound, Matched
from .quota_grants import Bucket, Grant
from .quota_wire import ALLOW, DENY, Report, abandoned, blanket, read_reports, tokens
from .status import Code, GrpcError
from .wire import WireError

if TYPE_CHECKING:
    from .rls import RateLimits
    from .streams import Stream

__all__ = ["Quotas", "Session"]

MOST = 10_000
"""So many buckets one Envoy may have; the one that was reported longest ago is given up."""
LONGEST = 60
"""Seconds that an assignment lives at most."""
SPARE = 1.5
"""How much more than the last report would need is handed out."""
ORDERS = 5
"""A bucket has no order; of so many entries every order is tried on a tree of descriptors."""
CROSSING = 0.25
"""Seconds in which an assignment and a report may cross on their ways."""
INFINITY = float("inf")


class Quotas:
    """The service: one session for each Envoy."""

    def __init__(self, limits: RateLimits) -> None:
        self._limits = limits

    async def serve(self, stream: Stream) -> None:
        """StreamRateLimitQuotas: reports come in, assignments go out."""
        session = Session(self._limits)
        await stream.begin()
        reading = asyncio.ensure_future(stream.read())
        try:
            while True:
                done, _ = await asyncio.wait({reading}, timeout=session.until_due())
                if not done:
                    answer = await session.renew()
                else:
                    data = reading.result()
                    if data is None:
                        return
                    answer = await session.report(data)
                    reading = asyncio.ensure_future(stream.read())
                if answer:
                    await stream.send(answer)
        finally:
            reading.cancel()


class Session:
    """The buckets of one Envoy."""

    def __init__(self, limits: RateLimits, clock: Callable[[], float] = time.monotonic) -> None:
        self._limits = limits
        self._gate = limits.gate
        self._clock = clock
        self._domain = ""
        self._buckets: dict[tuple[tuple[str, str], ...], Bucket] = {}
        self._matcher: Any = None

    def until_due(self) -> float | None:
        """Seconds until an assignment is to be renewed; None if none is."""
        due = min((bucket.due for bucket in self._buckets.values()), default=INFINITY)
        return None if due == INFINITY else max(0.0, due - self._clock())

    async def report(self, data: bytes) -> bytes:
        """Settle what was used, and say what may be used next."""
        try:
            domain, reports = read_reports(data)
        except WireError as error:
            raise GrpcError(Code.INVALID_ARGUMENT, str(error)) from None
        self._domain = self._domain or domain
        if not self._domain:
            raise GrpcError(Code.INVALID_ARGUMENT, "the domain must not be empty")
        self._match_anew()
        now, out = self._clock(), []
        work = []
        for report in reports:
            bucket = self._buckets.pop(report.entries, None)
            if bucket is None:
                bucket = Bucket(report, now)
                bucket.matched = self._matched(report.entries)
                if len(self._buckets) >= MOST:
                    out.append(abandoned(self._buckets.pop(next(iter(self._buckets))).id))
            self._buckets[report.entries] = bucket  # the latest report stands last
            work.append((bucket, self._settled(bucket, report, now)))
        out += await self._assigned(work, now)
        return b"".join(out)

    async def renew(self) -> bytes:
        """Hand out more before what was handed out runs out."""
        self._match_anew()
        now = self._clock()
        due = [bucket for bucket in self._buckets.values() if bucket.due <= now]
        work: list[tuple[Bucket, list[Ask]]] = [(bucket, []) for bucket in due]
        return b"".join(await self._assigned(work, now))

    # -- what the rules say

    def _match_anew(self) -> None:
        matcher = self._limits.matcher()
        if matcher is not self._matcher:
            self._matcher = matcher
            for bucket in self._buckets.values():
                bucket.matched = self._matched(bucket.entries)
                bucket.replaced(self._clock())

    def _matched(self, entries: tuple[tuple[str, str], ...]) -> Matched:
        matched: Matched = self._matcher.matched(self._domain, entries)
        if self._matcher.tree is None or matched != Matched(()) or len(entries) > ORDERS:
            return matched
        for order in permutations(entries):
            matched = self._matcher.matched(self._domain, order)
            if matched != Matched(()):
                return matched
        return Matched(())

    # -- what was used

    def _settled(self, bucket: Bucket, report: Report, now: float) -> list[Ask]:
        """What a report changes in the store."""
        elapsed = max(now - bucket.seen, report.elapsed, 0.01)
        if bucket.rate >= 0:
            bucket.interval = elapsed
        used = report.allowed + report.denied
        rate = used / max(elapsed, 1.0)
        bucket.rate = rate if bucket.rate < 0 else max(rate, (bucket.rate + rate) / 2)
        if not used:
            bucket.rate = 0.0
        bucket.seen = now
        self._count_hits(bucket, report)
        asks: list[Ask] = []
        over = report.allowed
        for grant in bucket.grants:
            mine = min(over, grant.left)
            grant.left -= mine
            over -= mine
        if over > 0:  # let pass without an assignment
            for bound in bucket.matched.bounds:
                asks += [ask._replace(op="charge") for ask in self._asks(bound, over)]
        # What is left of a grant comes back when Envoy can use it no more: when it has had time
        # to hear of the next one before it made this report.
        done = [grant for grant in bucket.grants if grant.gone + CROSSING < now]
        for grant in done:
            asks += grant.back()
        bucket.grants = [grant for grant in bucket.grants if grant not in done]
        return asks

    def _count_hits(self, bucket: Bucket, report: Report) -> None:
        for bound in bucket.matched.bounds:
            counters = self._limits.statistics.of(bound.rule.name)
            counters.total_hits += report.allowed + report.denied
            counters.within_limit += report.allowed
            counters.over_limit += report.denied

    # -- what may be used

    async def _assigned(self, work: Sequence[tuple[Bucket, list[Ask]]], now: float) -> list[bytes]:
        """One action for each of the buckets, from one call to the store."""
        groups, takes = [], []
        for bucket, asks in work:
            mine = self._takes(bucket, now)
            takes.append(mine)
            groups.append([*asks, *mine])
        answers: list[list[Decision]] = [[]] * len(work)
        places = [place for place, group in enumerate(groups) if group]
        if places:
            try:
                found = await self._decide([groups[place] for place in places])
            except StoreError as error:
                raise GrpcError(Code.UNAVAILABLE, f"the store cannot answer: {error}") from error
            for place, decisions in zip(places, found, strict=True):
                answers[place] = decisions
        return [
            self._action(bucket, mine, decided[len(decided) - len(mine) :], now)
            for (bucket, _), mine, decided in zip(work, takes, answers, strict=True)
        ]

    async def _decide(self, groups: list[list[Ask]]) -> list[list[Decision]]:
        store: Any = self._gate.store
        if store.blocking:
            found: list[list[Decision]] = await store.decide_many_async(groups)
        else:
            found = store.decide_many(groups)
        return found

    def _asks(self, bound: Bound, cost: int) -> list[Ask]:
        gate = self._gate
        on_error, room = gate._book.plan(bound).on_error, gate._desk.room()
        return [
            Ask("take", limit, bound.key, cost, gate.name, room=room, on_error=on_error)
            for limit in bound.limits
        ]

    def _takes(self, bucket: Bucket, now: float) -> list[Ask]:
        """What is taken beforehand: as much as is likely to be needed, if there is as much."""
        bounds = _vetoing(bucket.matched)
        limits = [limit for bound in bounds for limit in bound.limits]
        if not limits:
            return []
        quota = min(limit.raised(limit.capacity) for limit in limits)
        window = min(limit.window for limit in limits) / 1_000_000
        bucket.ttl = ttl = int(max(1, min(LONGEST, window, max(window / 10, 2 * bucket.interval))))
        if bucket.interval == 0:  # nothing is known of it yet
            want = max(ceil(quota / 10), ceil(bucket.rate * SPARE))
        else:
            want = ceil(bucket.rate * ttl * SPARE)
        bucket.want = want = max(1, min(want, quota))
        current = bucket.current(now)
        if current is not None and current.left >= want / 2:
            return []
        asks = [ask for bound in bounds for ask in self._asks(bound, want)]
        return [ask._replace(least=1) for ask in asks]

    def _action(
        self, bucket: Bucket, takes: list[Ask], answers: list[Decision], now: float
    ) -> bytes:
        matched = bucket.matched
        if not _vetoing(matched):  # nothing to count, or only in shadow
            bucket.replaced(now)
            bucket.due = INFINITY
            return blanket(bucket.id, DENY if matched.denied is not None else ALLOW, LONGEST)
        current = bucket.current(now)
        fresh = bool(takes) and all(answer.allowed for answer in answers)
        if fresh:
            bucket.replaced(now)
            granted = min(answer.granted for answer in answers)
            current = Grant(takes, answers, granted, now + _life(answers))
            bucket.grants.append(current)
        elif current is not None and current.left > 4 * bucket.want + 8:
            fresh = True  # far too much: others may need it
            bucket.replaced(now)
            current = current.part(2 * bucket.want)
            bucket.grants.append(current)
        elif current is None or not current.left:
            bucket.replaced(now)
            wait = max(answer.retry_after for answer in answers)
            ttl = max(1, min(bucket.ttl, ceil(min(wait, LONGEST))))
            bucket.due = now + min(wait, ttl) if bucket.rate > 0 else INFINITY
            return blanket(bucket.id, DENY, ttl)
        ttl = max(1, min(bucket.ttl, int(current.end - now)))
        soon = min(now + ttl * 0.9, max(current.end, now + 0.05))
        bucket.due = soon if bucket.rate > 0 else INFINITY
        return tokens(bucket.id, current.count, ttl, fresh)


def _vetoing(matched: Matched) -> list[Bound]:
    return [bound for bound in matched.bounds if not bound.rule.rule.shadow]


def _life(answers: list[Decision]) -> float:
    """For how long a grant holds: what was taken in a window ends with it."""
    return min(
        answer.reset_after
        if answer.limit.algorithm == "fixed-window"
        else min(LONGEST, answer.limit.window / 1_000_000)
        for answer in answers
    )
