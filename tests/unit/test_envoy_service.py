"""Envoy's services without a connection: what is counted, told and handed out."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from envoy_service_tools import TREE, service
from hypothesis import given
from hypothesis import strategies as st

from headgate import AsyncGate
from headgate.rules.envoy import read_envoy
from headgate.service.envoy import statistics, wire
from headgate.service.envoy.app import EnvoyService
from headgate.service.envoy.rls import RateLimits
from headgate.service.envoy.statistics import Counters, near_of
from headgate.service.envoy.status import GrpcError


def descriptor(hits: int | None = None, **entries: str) -> bytes:
    pairs = [wire.text(1, key) + wire.text(2, value) for key, value in entries.items()]
    data = b"".join(wire.message(1, pair) for pair in pairs)
    return data if hits is None else data + wire.message(3, wire.number(1, hits))


def request(*descriptors: bytes, hits: int = 0, domain: str = "shop") -> bytes:
    told = b"".join(wire.message(2, each) for each in descriptors)
    return wire.text(1, domain) + told + wire.number(3, hits)


def ask(limits: RateLimits, *descriptors: bytes, hits: int = 0) -> bytes:
    return asyncio.run(limits.answer(request(*descriptors, hits=hits)))


def overall(answer: bytes) -> int:
    return next(int(value) for name, _, value in wire.fields(answer) if name == 1)


def headers(answer: bytes) -> dict[str, str]:
    return dict(wire.pair(value) for name, _, value in wire.fields(answer) if name == 3)


def told(limits: RateLimits, rule: str) -> dict[str, int]:
    prefix = f"ratelimit.service.rate_limit.{rule}."
    found = limits.statistics.told().items()
    return {name.removeprefix(prefix): value for name, value in found if name.startswith(prefix)}


# -- statistics


def test_what_is_counted_hit_by_hit() -> None:
    limits, _ = service()
    for _ in range(12):
        ask(limits, descriptor(user="anna"))
    assert told(limits, "shop.user") == {
        "total_hits": 12, "over_limit": 2, "near_limit": 2, "within_limit": 10, "shadow_mode": 0,
        "over_limit_with_local_cache": 0,
    }  # fmt: skip


def test_what_is_counted_of_many_hits() -> None:
    limits, _ = service()
    ask(limits, descriptor(user="anna"), hits=7)
    assert told(limits, "shop.user")["near_limit"] == 0
    ask(limits, descriptor(user="anna"), hits=5)
    found = told(limits, "shop.user")
    assert (found["over_limit"], found["near_limit"], found["within_limit"]) == (2, 2, 7)
    ask(limits, descriptor(user="anna"), hits=4)
    assert told(limits, "shop.user")["over_limit"] == 6
    before = told(limits, "shop.user")
    ask(limits, descriptor(0, user="anna"))  # looking is no hit
    assert told(limits, "shop.user") == before


class Peer:
    """How envoyproxy/ratelimit counts, from a counter that always goes up."""

    def __init__(self, quota: int) -> None:
        self.quota, self.used = quota, 0
        self.over = self.near = self.within = 0

    def hit(self, hits: int) -> None:
        before, after = self.used, self.used + hits
        self.used = after
        mark = near_of(self.quota)
        if after <= self.quota:
            self.within += hits
            self.near += max(0, after - max(mark, before))
        elif before >= self.quota:
            self.over += hits
        else:
            self.over += after - self.quota
            self.near += self.quota - max(mark, before)


@given(st.integers(1, 40), st.lists(st.integers(1, 12), max_size=30))
def test_counts_are_those_of_the_peer(quota: int, given_: list[int]) -> None:
    peer, mine, used = Peer(quota), Counters(), 0
    for hits in given_:
        peer.hit(hits)
        if used + hits <= quota:
            mine.passed(hits, quota, near_of(quota), quota - used - hits)
        else:
            left = max(0, quota - used)
            mine.refused(hits, quota, near_of(quota), left, shadow=False)
        used += hits
    assert (mine.over_limit, mine.near_limit, mine.within_limit) == (
        peer.over, peer.near, peer.within,
    )  # fmt: skip


def test_shadow_and_details(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statistics, "MOST", 4)
    limits, _ = service()
    answers = [ask(limits, descriptor(watched="x")) for _ in range(3)]
    assert [overall(answer) for answer in answers] == [1, 1, 1]
    assert told(limits, "shop.watched")["shadow_mode"] == 2
    for user in "abcdefgh":
        ask(limits, descriptor(each=user))
    assert told(limits, "shop.each_a")["total_hits"] == 1
    assert len(limits.statistics.rules) == 4  # names that hold values have an end


def test_quota_mode_is_no_shadow() -> None:
    limits, _ = service(TREE.replace("shadow_mode", "quota_mode"))
    answers = [ask(limits, descriptor(watched="x")) for _ in range(3)]
    assert [overall(answer) for answer in answers] == [1, 1, 1]
    found = told(limits, "shop.watched")
    assert (found["over_limit"], found["shadow_mode"]) == (2, 0)


def test_errors_are_counted() -> None:
    limits, _ = service()
    for data in (b"", b"\xff", request()):
        with pytest.raises(GrpcError):
            asyncio.run(limits.answer(data))
    assert limits.statistics.service_error == 3


# -- what is told

OWN = """
version: 1
defaults: {headers: draft-11}
rules:
  - name: two
    match: {entries: {user: "*"}}
    key: ["entry:user"]
    limits: [3/minute fixed-window, 10/hour fixed-window]
  - name: quiet
    match: {entries: {user: "*"}}
    limit: 1/minute fixed-window
    shadow: true
"""


def test_headers_by_format() -> None:
    limits, _ = service(OWN)
    found = headers(ask(limits, descriptor(user="anna")))
    assert found["ratelimit-policy"] == '"two#0";q=3;w=60, "two#1";q=10;w=3600'
    assert "quiet" not in str(found)
    limits, _ = service(OWN, headers="draft-06")
    assert headers(ask(limits, descriptor(user="anna")))["ratelimit-remaining"] == "2"
    limits, _ = service(OWN, headers="off")
    assert headers(ask(limits, descriptor(user="anna"))) == {}
    for _ in range(3):
        answer = ask(limits, descriptor(user="anna"))
    assert overall(answer) == 2
    assert list(headers(answer)) == ["retry-after"]
    with pytest.raises(ValueError, match="unknown format"):
        service(OWN, headers="other")


def test_rules_may_change() -> None:
    limits, _ = service()
    for _ in range(10):
        assert overall(ask(limits, descriptor(user="anna"))) == 1
    assert overall(ask(limits, descriptor(user="anna"))) == 2
    limits.gate.reload(read_envoy(TREE.replace("requests_per_unit: 10}", "requests_per_unit: 12}")))
    assert overall(ask(limits, descriptor(user="anna"))) == 1  # what was used stays used
    assert overall(ask(limits, descriptor(user="anna"))) == 1
    assert overall(ask(limits, descriptor(user="anna"))) == 2


def test_windows_pass() -> None:
    limits, clock = service()
    for _ in range(10):
        ask(limits, descriptor(user="anna"))
    assert overall(ask(limits, descriptor(user="anna"))) == 2
    clock.advance(60)
    assert overall(ask(limits, descriptor(user="anna"))) == 1


def test_requests_are_remembered_within_bounds() -> None:
    limits, _ = service()

    async def main() -> None:
        for number in range(10_000):
            await limits.answer(request(descriptor(user=str(number))))

    asyncio.run(main())
    assert len(limits._known) <= 4096


# -- health and the end

Message = dict[str, Any]


class Call:
    """A call of ASGI's, by hand."""

    def __init__(self, app: EnvoyService, path: str, *, trailers: bool = True) -> None:
        self.sent: asyncio.Queue[Message] = asyncio.Queue()
        self._given: asyncio.Queue[Message] = asyncio.Queue()
        scope: Message = {
            "type": "http", "method": "POST", "path": path,
            "headers": [(b"content-type", b"application/grpc+proto")],
            "extensions": {"http.response.trailers": {}} if trailers else {},
        }  # fmt: skip
        self.task = asyncio.ensure_future(app(scope, self._given.get, self.sent.put))

    def give(self, body: bytes, *, more: bool = False) -> None:
        self._given.put_nowait({"type": "http.request", "body": body, "more_body": more})

    async def status(self) -> bytes:
        """How it ended."""
        await asyncio.wait_for(self.task, 5)
        found = b""
        while not self.sent.empty():
            pairs = dict((await self.sent.get()).get("headers", ()))
            found = pairs.get(b"grpc-status", found)
        return found


def run(main: Callable[[EnvoyService], Awaitable[None]], **options: Any) -> None:
    async def all_of_it() -> None:
        gate = AsyncGate(read_envoy(TREE))
        await main(EnvoyService(gate, **options))
        await gate.close()

    asyncio.run(all_of_it())


def test_watchers_are_told_and_let_go() -> None:
    async def main(app: EnvoyService) -> None:
        call = Call(app, "/grpc.health.v1.Health/Watch")
        call.give(b"\0\0\0\0\0")
        assert (await call.sent.get())["type"] == "http.response.start"
        assert (await call.sent.get())["body"] == b"\0\0\0\0\x02\x08\x01"
        await app.drain()
        assert (await call.sent.get())["body"] == b"\0\0\0\0\x02\x08\x02"
        await app.close()
        with pytest.raises(asyncio.CancelledError):
            await call.task
        assert not app._open

    run(main)


def test_half_messages_and_slow_ones() -> None:
    async def main(app: EnvoyService) -> None:
        path = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"
        for body, status in (
            (b"", b"13"), (b"\0\0\0\0\x05ab", b"13"), (b"\0\0\0\0\0\0", b"13"),
            (b"\x01" * 9, b"13"), (b"\x07\0\0\0\0", b"13"), (bytes(2000), b"8"),
        ):  # fmt: skip
            call = Call(app, path)
            call.give(body)
            assert await call.status() == status, body
        slow = Call(app, path)
        slow.give(b"\0", more=True)
        assert await slow.status() == b"4"
        whole = b"\0" + (len(request(descriptor(user="x")))).to_bytes(4, "big")
        pieces = Call(app, path)
        for byte in whole + request(descriptor(user="x")):
            pieces.give(bytes((byte,)), more=True)
        pieces.give(b"")
        assert await pieces.status() == b"0"
        assert await Call(app, "/nothing").status() == b"12"

    run(main, largest=1000, patience=0.1)


def test_reflection_is_off_by_default() -> None:
    async def main(app: EnvoyService) -> None:
        assert not any("reflection" in path for path in app.paths)

    run(main)
