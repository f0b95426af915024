"""Envoy's quotas: several Envoys that share one limit."""

from __future__ import annotations

import asyncio
from typing import Any

from envoy_service_tools import service

from headgate import ManualClock
from headgate.service.envoy import wire
from headgate.service.envoy.quota import Session
from headgate.service.envoy.quota_wire import read_reports
from headgate.service.envoy.rls import RateLimits


class Envoy:
    """An Envoy that keeps to what it was handed out, and reports."""

    def __init__(self, limits: RateLimits, clock: ManualClock, **bucket: str) -> None:
        self.session = Session(limits, clock.now)
        pairs = [wire.text(1, key) + wire.text(2, value) for key, value in bucket.items()]
        self._bucket = b"".join(wire.message(1, pair) for pair in pairs)
        self.tokens = 0
        self.passed = 0
        self._allowed = self._denied = 0

    def use(self, count: int) -> None:
        """So many requests."""
        mine = min(count, self.tokens)
        self.tokens -= mine
        self.passed += mine
        self._allowed += mine
        self._denied += count - mine

    async def report(self) -> None:
        usage = wire.message(1, self._bucket) + wire.message(2, b"")
        usage += wire.number(3, self._allowed) + wire.number(4, self._denied)
        self._allowed = self._denied = 0
        data = wire.text(1, "shop") + wire.message(2, usage)
        assert read_reports(data)[1]
        self.heard(await self.session.report(data))

    def heard(self, answer: bytes) -> None:
        for _, _, action in wire.fields(answer):
            parts = {name: value for name, _, value in wire.fields(action)}
            strategy = {n: v for n, _, v in wire.fields(dict(_fields(parts[2]))[3])}
            if 1 in strategy:
                self.tokens, self._max = 0, -1
            else:
                most = dict(_fields(strategy[3]))[1]
                if most != self._max:
                    self.tokens = self._max = most

    _max = -1


def _fields(data: bytes) -> list[tuple[int, Any]]:
    return [(name, value) for name, _, value in wire.fields(data)]


def test_several_share_one_limit_and_never_pass_more() -> None:
    limits, clock = service()

    async def main() -> list[int]:
        envoys = [Envoy(limits, clock, a="1", b="2") for _ in range(3)]
        totals = []
        for _ in range(4):
            before = sum(envoy.passed for envoy in envoys)
            for _ in range(12):
                for load, envoy in enumerate(envoys):
                    envoy.use(1 + 10 * load)
                    await envoy.report()
                clock.advance(5)
            totals.append(sum(envoy.passed for envoy in envoys) - before)
        return totals

    totals = asyncio.run(main())
    assert all(70 <= total <= 100 for total in totals[:1])
    assert sum(totals) <= 400
    assert sum(totals) >= 300


def test_what_is_not_used_comes_back() -> None:
    limits, clock = service()

    async def main() -> None:
        idle, keen = (Envoy(limits, clock, b="2", a="1") for _ in range(2))
        idle.use(500)
        await idle.report()
        assert idle.tokens == 100  # it is handed out all there is
        for _ in range(12):
            clock.advance(1)
            await idle.report()
            keen.use(20)
            await keen.report()
        assert keen.passed >= 60

    asyncio.run(main())


def test_a_quota_is_renewed_before_it_ends() -> None:
    limits, clock = service()

    async def main() -> None:
        envoy = Envoy(limits, clock, user="anna")
        envoy.use(1)
        await envoy.report()
        due = envoy.session.until_due()
        assert due is not None
        assert due <= 6
        clock.advance(due)
        assert await envoy.session.renew()

    asyncio.run(main())
