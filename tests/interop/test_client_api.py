"""headgate.client against the service itself: verdicts, permits and reservations over HTTP."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Iterator
from typing import Any

import pytest

from client_tools import Decider, Service
from headgate import AsyncGate, Facts, LimitExceeded, StoreError, StoreUnavailable
from headgate.client import AsyncClient, Client, Refused, Rejected, Verdict
from headgate.client.verdicts import read_verdict, read_verdicts
from headgate.service.admin import Admin
from headgate.service.app import Service as HeadgateService
from headgate.service.settings import Settings
from headgate.stores import MemoryStore
from headgate.telemetry import Telemetry
from servers import free_port

RULES = """
{"version": 1, "rules": [
  {"name": "login", "match": {"path": "/login"}, "key": ["ip"],
   "limit": "2/hour fixed-window first-hit"},
  {"name": "api", "match": {"path": "/api/*"}, "key": ["user"],
   "limits": ["100/hour", "1000/day"]},
  {"name": "export", "match": {"path": "/export"}, "key": ["user"], "limit": "1 concurrent"},
  {"name": "guess", "match": {"path": "/guess"}, "key": ["user"],
   "limit": "2/hour fixed-window first-hit", "count": "failures"},
  {"name": "llm", "match": {"path": "/llm"}, "key": ["user"],
   "limit": "1000/hour fixed-window first-hit"}
]}
"""


class Running:
    """A service and its admin side, behind a switch that can be told to misbehave."""

    def __init__(self) -> None:
        self.gate = AsyncGate(RULES, store=MemoryStore())
        settings = Settings(lease=2.0)
        self.app = HeadgateService(self.gate, settings)
        self.decider = Decider()
        self.decider.apps = {
            "s": self._asked,
            "admin": Admin(self.gate, settings, Telemetry()),
        }
        self.service = Service(self.decider)
        self.slow = 0.0
        self.instead: int = 0
        self.requests: list[str] = []

    async def _asked(self, scope: Any, receive: Any, send: Any) -> None:
        self.requests.append(scope["path"])
        if self.instead:
            await send({"type": "http.response.start", "status": self.instead, "headers": []})
            await send({"type": "http.response.body", "body": b"<html>"})
            return
        if self.slow:
            await asyncio.sleep(self.slow)
        await self.app(scope, receive, send)

    @property
    def url(self) -> str:
        return f"{self.service.url}/s"

    def client(self, **options: Any) -> Client:
        return Client(self.url, **{"timeout": 5, "admin": f"{self.service.url}/admin", **options})

    def tasks(self, **options: Any) -> AsyncClient:
        admin = f"{self.service.url}/admin"
        return AsyncClient(self.url, **{"timeout": 5, "admin": admin, **options})


@pytest.fixture
def running() -> Iterator[Running]:
    made = Running()
    yield made
    made.service.close()


def test_check_by_facts_and_by_rule(running: Running) -> None:
    with running.client() as client:
        first = client.check(path="/login", ip="192.0.2.7")
        assert first
        assert (first.remaining, first.rule, first.status) == (1, "", 200)
        assert client.check(Facts(path="/login", ip="192.0.2.7")).remaining == 0
        refused = client.check(rule="login", key="192.0.2.7")
        assert not refused
        assert (refused.rule, refused.status, refused.remaining) == ("login", 429, 0)
        assert 3500 < refused.retry_after <= 3600
        assert [part.rule for part in refused.decisions] == ["login"]
        assert client.check(path="/nothing").remaining is None
        assert client.check(rule="api", key="u", cost=100).remaining == 0
        assert [part.remaining for part in client.peek(rule="api", key="u").decisions] == [0, 900]


def test_a_key_may_be_anything_that_a_key_is(running: Running) -> None:
    with running.client() as client:
        for key in ("naïve", b"\xff\x00", ("a", b"\xfe"), ""):
            assert client.check(rule="llm", key=key, cost=1000)
            assert not client.check(rule="llm", key=key)


def test_check_many(running: Running) -> None:
    with running.client() as client:
        calls: list[Any] = [Facts(path="/login", ip="192.0.2.9")] * 2
        calls += [{"rule": "login", "key": "192.0.2.9"}, {"rule": "llm", "key": "k", "cost": 7}]
        assert [bool(one) for one in client.check_many(calls)] == [True, True, False, True]
        assert client.check_many([]) == []
        many = client.check_many({"rule": "llm", "key": f"user:{n}"} for n in range(1200))
        assert len(many) == 1200
        assert all(many)
    assert running.requests.count("/v1/check/batch") == 4


def test_hold_is_a_block(running: Running) -> None:
    with running.client() as client:
        with client.hold(path="/export", user="u") as held:
            assert held.verdict
            with pytest.raises(Refused) as caught, client.hold(path="/export", user="u"):
                pass
            assert isinstance(caught.value, LimitExceeded)
            assert caught.value.verdict.rule == "export"
            time.sleep(2.5)  # longer than its lease
            assert not held.lost
            assert not client.peek(path="/export", user="u")
        assert client.peek(path="/export", user="u")
        with pytest.raises(ZeroDivisionError), client.hold(path="/export", user="u"):
            1 / 0  # noqa: B018 # the exception is the point
        assert client.peek(path="/export", user="u")
        verdict = client.check(path="/export", user="u")
        assert verdict.held is not None
        renewed = client.renew(verdict.held, ttl=30)
        assert renewed is not None
        assert renewed.lease == 30
        assert client.release(renewed)
        assert not client.release(renewed)
        assert client.renew(renewed) is None


def test_only_failures_count(running: Running) -> None:
    with running.client() as client:
        for _ in range(5):
            with client.hold(path="/guess", user="u"):
                pass
        for _ in range(2):
            with pytest.raises(ZeroDivisionError), client.hold(path="/guess", user="u"):
                1 / 0  # noqa: B018 # the exception is the point
        assert not client.check(path="/guess", user="u")


def test_reserve_and_settle(running: Running) -> None:
    with running.client() as client:
        with client.reserve(path="/llm", user="u", cost=900) as reserved:
            assert client.peek(path="/llm", user="u").remaining == 100
            reserved.settle(742)
        assert client.peek(path="/llm", user="u").remaining == 258
        with client.reserve(rule="llm", key="u", cost=100):
            pass  # unsettled: the estimate stays
        assert client.peek(rule="llm", key="u").remaining == 158
        with pytest.raises(ZeroDivisionError), client.reserve(rule="llm", key="u", cost=100):
            1 / 0  # noqa: B018 # the exception is the point
        assert client.peek(rule="llm", key="u").remaining == 158
        with pytest.raises(Refused), client.reserve(rule="llm", key="u", cost=900):
            pass


def test_reset_asks_the_admin(running: Running) -> None:
    with running.client() as client:
        client.check(rule="login", key="k", cost=2)
        assert not client.check(rule="login", key="k")
        assert client.reset(rule="login", key="k")
        assert client.check(rule="login", key="k")
        assert {rule["name"] for rule in client.rules()["rules"]} >= {"login", "api"}
    with running.client(admin=None) as client, pytest.raises(StoreError, match="admin"):
        client.reset(rule="login", key="k")


def test_what_is_wrong_is_said(running: Running) -> None:
    with running.client() as client:
        with pytest.raises(Rejected, match="there is no rule 'nope'"):
            client.check(rule="nope", key="k")
        with pytest.raises(Rejected, match="there is no field 'colour'"):
            client.check(colour="red")
        with pytest.raises(TypeError, match="a key is a"):
            client.check(rule="login", key=1)
        with pytest.raises(ValueError, match="an outcome is"):
            client.release(client.check(path="/export", user="w").held, "so so")
        assert client.check(rule="login", key="k")  # and the service is none the worse for it
    with pytest.raises(StoreError, match="closed"):
        client.check(rule="login", key="k")
    with pytest.raises(ValueError, match="on_error is allow, deny or raise"):
        Client("headgate://h", on_error="local")


def test_names_awaited(running: Running) -> None:
    async def work() -> None:
        async with running.tasks() as client:
            assert (await client.check(path="/login", ip="192.0.2.7")).remaining == 1
            assert (await client.peek(path="/login", ip="192.0.2.7")).remaining == 1
            found = await client.check_many([{"rule": "login", "key": "192.0.2.7"}] * 2)
            assert [bool(one) for one in found] == [True, False]
            assert await client.reset(rule="login", key="192.0.2.7")
            async with client.hold(path="/export", user="u") as held:
                with pytest.raises(Refused):
                    await client.hold(path="/export", user="u").__aenter__()
                await asyncio.sleep(2.5)  # longer than its lease
                assert not held.lost
                assert not await client.peek(path="/export", user="u")
            verdict = await client.check(path="/export", user="u")
            assert verdict.held is not None
            assert await client.renew(verdict.held) is not None
            assert await client.release(verdict.held)
            async with client.reserve(rule="llm", key="u", cost=900) as reserved:
                reserved.settle(1)
            assert (await client.peek(rule="llm", key="u")).remaining == 999
            assert (await client.rules())["rules"]
            results = await asyncio.gather(*(client.check(rule="api", key="k") for _ in range(120)))
            assert sum(map(bool, results)) == 100

    asyncio.run(work())


def test_a_cancelled_task_gives_its_permit_back(running: Running) -> None:
    async def work() -> None:
        async with running.tasks() as client:
            await client.check(rule="api", key="first")
            running.slow = 0.05

            async def one() -> None:
                async with client.hold(path="/export", user="u", ttl=600):
                    await asyncio.sleep(60)

            for pause in (0.0, 0.01, 0.03, 0.08):
                task = asyncio.create_task(one())
                await asyncio.sleep(pause)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                end = time.monotonic() + 60
                while not await client.peek(path="/export", user="u"):
                    assert time.monotonic() < end
                    await asyncio.sleep(0.01)

    asyncio.run(work())


@pytest.mark.parametrize("on_error", ["allow", "deny", "raise"])
def test_nobody_listens(on_error: str, caplog: pytest.LogCaptureFixture) -> None:
    with Client(f"headgate://127.0.0.1:{free_port()}", on_error=on_error) as client:
        begin = time.monotonic()
        with caplog.at_level(logging.WARNING, "headgate"):
            for _ in range(200):
                if on_error == "raise":
                    with pytest.raises(StoreUnavailable):
                        client.check(rule="x", key="k")
                    continue
                verdict = client.check(rule="x", key="k")
                assert verdict.degraded
                assert bool(verdict) is (on_error == "allow")
                time.sleep(0.001)
        assert time.monotonic() - begin < 60
        if on_error == "allow":
            assert [bool(one) for one in client.check_many([{"rule": "x"}] * 2)] == [True, True]
            with client.hold(rule="x") as held:
                assert held.held is None
            assert len([one for one in caplog.records if "no service" in one.message]) == 1
        elif on_error == "deny":
            with pytest.raises(Refused, match="refused by rule"), client.hold(rule="x", key="k"):
                pass


@pytest.mark.parametrize("status", [200, 404, 502, 503])
def test_somebody_else_answers(status: int, running: Running) -> None:
    with running.client() as client:
        assert not client.check(rule="api", key="k").degraded
        running.instead = status
        assert client.check(rule="api", key="k").degraded
        assert all(one.degraded for one in client.check_many([{"rule": "api"}] * 2))
    running.instead = 0
    with running.client(on_error="raise") as client:
        client.check(rule="api", key="k")
        running.instead = status
        with pytest.raises(StoreUnavailable, match=r"nonsense|answered \d+"):
            client.check(rule="api", key="k")


def test_a_slow_service_ends_with_the_timeout(running: Running) -> None:
    with running.client(timeout=1.0) as client:
        assert not client.check(rule="api", key="k").degraded
        running.slow = 60.0
        begin = time.monotonic()
        assert client.check(rule="api", key="k").degraded
        assert time.monotonic() - begin < 20


def test_a_forked_child_has_connections_of_its_own(running: Running) -> None:
    with running.client() as client:
        assert client.check(rule="api", key="k").remaining == 99
        child = os.fork()
        if child == 0:
            os._exit(0 if client.check(rule="api", key="k").remaining == 98 else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert client.check(rule="api", key="k").remaining == 97


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{}", b"null", b'{"allowed": 1}', b'{"allowed": true}', b"[" * 100_000]
)
def test_nonsense_is_a_value_error(body: bytes) -> None:
    with pytest.raises(ValueError):
        read_verdict(body, "")
    with pytest.raises(ValueError):
        read_verdicts(body, ["", ""])


def test_a_verdict_is_a_value() -> None:
    assert Verdict(allowed=True) == Verdict(allowed=True)
    assert not Verdict(allowed=False)
    assert Verdict(allowed=True).decision is None
    denial = Verdict(allowed=False, rule="closed", retry_after=float("inf")).decision
    assert denial is not None
    assert denial.retry_after == float("inf")
