"""Limits at the gateway: rates, connections as nginx counts them, the upstream's own."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from gateway_tools import Raw, Upstream, answering, gateway, head_of, until
from nginx_tools import Nginx, free_port, settled

from headgate import ManualClock
from headgate.addresses import Trusted
from headgate.gateway import Plan
from headgate.gateway.guard import Heed
from servers import Server

GET = b"GET / HTTP/1.1\r\nHost: shop\r\n\r\n"
RULES = """{"version": 1, "rules": [
  {"name": "login", "match": {"method": "POST", "path": "/login"}, "key": ["ip"],
   "limit": "2/hour", "count": "failures"},
  {"name": "tenant", "match": {"path": "/api/*"}, "key": ["header:x-tenant"], "limit": "1/hour"},
  {"name": "held", "match": {"path": "/held"}, "key": ["ip"], "limit": "1 concurrent",
   "status": 503}
]}"""


@pytest.fixture(scope="module")
def upstream() -> Iterator[Upstream]:
    made = Upstream()
    yield made
    made.close()


def test_limits_as_text(upstream: Upstream) -> None:
    upstream.app = answering()
    with gateway(upstream.url, "2/minute", clock=ManualClock(1e6)) as front:
        count = len(upstream.calls)
        answers = [httpx.get(front.url) for _ in range(3)]
        assert [answer.status_code for answer in answers] == [200, 200, 429]
        assert answers[0].headers["ratelimit"] == '"default";r=1;t=60'
        assert answers[2].headers["retry-after"]
        assert answers[2].headers["content-type"] == "application/problem+json"
        assert len(upstream.calls) == count + 2


def test_rules(upstream: Upstream) -> None:
    with gateway(upstream.url, rules=RULES) as front:
        upstream.app = answering()
        good = [httpx.post(f"{front.url}/login").status_code for _ in range(4)]
        assert good == [200] * 4
        upstream.app = answering(status=401)
        bad = [httpx.post(f"{front.url}//login/").status_code for _ in range(3)]
        assert bad == [401, 401, 429]
        upstream.app = answering()
        for tenant, status in (("a", 200), ("a", 429), ("b", 200)):
            headers = {"X-Tenant": tenant}
            assert httpx.get(f"{front.url}/api/x", headers=headers).status_code == status
        assert httpx.get(f"{front.url}/free").status_code == 200


def test_a_failure_of_the_upstream_is_a_failure() -> None:
    rules = RULES.replace("2/hour", "1/hour")
    with gateway(f"http://127.0.0.1:{free_port()}", rules=rules) as front:
        assert httpx.post(f"{front.url}/login").status_code == 502
        assert httpx.post(f"{front.url}/login").status_code == 429


def test_an_address_that_was_made_up_does_not_help(upstream: Upstream) -> None:
    upstream.app = answering()
    spoofs = [{"X-Forwarded-For": f"192.0.2.{each}"} for each in range(2)]
    with gateway(upstream.url, "1/hour") as front:
        told = [httpx.get(front.url, headers=spoof).status_code for spoof in spoofs]
        assert told == [200, 429]
    with gateway(Plan(upstream.url, trusted=Trusted("loopback")), "1/hour") as front:
        told = [httpx.get(front.url, headers=spoof).status_code for spoof in (*spoofs, spoofs[0])]
        assert told == [200, 200, 429]
        assert upstream.last("x-forwarded-for") == ["192.0.2.1, 127.0.0.1"]


def test_the_health_of_the_gateway_is_not_counted(upstream: Upstream) -> None:
    upstream.app = answering()
    with gateway(Plan(upstream.url, health="/-/up"), "1/hour") as front:
        count = len(upstream.calls)
        assert [httpx.get(f"{front.url}/-/up").text for _ in range(3)] == ["ok\n"] * 3
        assert len(upstream.calls) == count
        assert httpx.get(front.url).status_code == 200


def test_exactly_as_many_as_the_limit(upstream: Upstream) -> None:
    upstream.app = answering()
    with (
        gateway(upstream.url, "20/30d fixed-window") as front,
        httpx.Client() as client,
        ThreadPoolExecutor(8) as pool,
    ):
        told = list(pool.map(lambda _: client.get(front.url).status_code, range(60)))
    assert (told.count(200), told.count(429)) == (20, 40)


# -- connections


class Held:
    """An application that answers when it is told to."""

    def __init__(self) -> None:
        self.waiting: list[threading.Event] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        free = threading.Event()
        self.waiting.append(free)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"first", "more_body": True})
        while not free.is_set():
            await asyncio.sleep(0.002)
        await send({"type": "http.response.body", "body": b"last"})


TRACE = ("+", "+", "+", "-", "+", "+", "x", "+", "-", "-", "+", "+", "+")
"""A call begins, one ends, one is broken off by its client."""


def walked(port: int, upstream: Upstream) -> list[bool]:
    """Which calls of the trace were let in."""
    upstream.app = held = Held()
    open_calls: list[Raw] = []
    passed = []
    for step in TRACE:
        if step == "+":
            raw = Raw(port)
            raw.send(GET)
            begun = raw.until(b"\r\n\r\n")
            passed.append(head_of(begun)[0] == 200)
            if passed[-1]:
                if b"first" not in begun:
                    raw.until(b"first")
                open_calls.append(raw)
            else:
                raw.socket.close()
            continue
        raw = open_calls.pop(0)
        free = held.waiting.pop(0)
        if step == "-":
            free.set()
            raw.until(b"last")
        raw.socket.close()
        free.set()
        time.sleep(0.1)  # until the end has been seen there: nginx cannot be asked
    for raw in open_calls:
        raw.socket.close()
    for free in held.waiting:
        free.set()
    return passed


def test_connections_are_counted_as_by_limit_conn(upstream: Upstream, tmp_path: Path) -> None:
    port = free_port()
    config = settled(f"""
        limit_conn_zone $binary_remote_addr zone=each:1m;
        server {{
            listen 127.0.0.1:{port};
            location / {{
                limit_conn each 2;
                proxy_pass {upstream.url};
                proxy_buffering off;
                proxy_http_version 1.1;
            }}
        }}""")
    with Nginx(tmp_path, config).serving(port):
        theirs = walked(port, upstream)
    with gateway(upstream.url, "2 concurrent") as front:
        ours = walked(front.port, upstream)
    assert ours == theirs
    assert ours == [True, True, False, True, False, True, True, True, False]


def test_a_place_is_held_until_the_body_has_been_sent(upstream: Upstream) -> None:
    upstream.app = held = Held()
    with gateway(upstream.url, rules=RULES) as front, Raw(front.port) as raw:
        raw.send(GET.replace(b" / ", b" /held "))
        raw.until(b"first")
        assert httpx.get(f"{front.url}/held").status_code == 503
        held.waiting[0].set()
        assert b"last" in raw.until(b"last")
        upstream.app = answering()
        until(lambda: httpx.get(f"{front.url}/held").status_code == 200)


def test_what_is_kept_on_a_server_comes_back(upstream: Upstream) -> None:
    upstream.app = answering(bytes(100_000))
    with (
        Server() as redis,
        gateway(upstream.url, "1 concurrent", store=f"{redis.url}?budget=5s") as front,
        httpx.Client() as client,
    ):
        assert [client.get(front.url).status_code for _ in range(20)] == [200] * 20


# -- the upstream's own limits


def test_the_upstreams_own_refusal_passes(upstream: Upstream) -> None:
    own = ((b"retry-after", b"7"), (b"ratelimit", b'"theirs";r=0;t=7'))
    upstream.app = answering(b"slow down", 429, own)
    with gateway(upstream.url, "10/hour") as front:
        answer = httpx.get(front.url)
        count = len(upstream.calls)
        assert (answer.status_code, answer.headers["retry-after"]) == (429, "7")
        assert answer.text == "slow down"
        assert answer.headers.get_list("ratelimit")[0] == '"theirs";r=0;t=7'
        assert httpx.get(front.url).status_code == 429
        assert len(upstream.calls) == count + 1  # it is asked again


@pytest.mark.parametrize("status", [429, 503])
def test_the_upstreams_own_refusal_is_heeded(upstream: Upstream, status: int) -> None:
    clock = ManualClock(1e6)
    upstream.app = answering(status=status, headers=((b"retry-after", b"7"),))
    with gateway(upstream.url, heed=Heed("header:x-tenant", clock)) as front:
        one, other = {"X-Tenant": "a"}, {"X-Tenant": "b"}
        assert httpx.get(front.url, headers=one).text == "hello"
        upstream.app = answering()
        count = len(upstream.calls)
        clock.advance(3)
        answer = httpx.get(front.url, headers=one)
        assert (answer.status_code, answer.headers["retry-after"]) == (status, "4")
        assert len(upstream.calls) == count
        assert httpx.get(front.url, headers=other).status_code == 200
        assert httpx.get(front.url).status_code == 200
        clock.advance(4)
        assert httpx.get(front.url, headers=one).status_code == 200


def test_one_word_for_all(upstream: Upstream) -> None:
    heed = Heed("all", ManualClock(1e6))
    upstream.app = answering(status=503, headers=((b"retry-after", b"nonsense"),))
    with gateway(upstream.url, heed=heed) as front:
        assert httpx.get(front.url).text == "hello"
        upstream.app = answering(status=503, headers=((b"retry-after", b"9"),))
        assert httpx.get(front.url).text == "hello"
        upstream.app = answering()
        assert httpx.get(front.url).status_code == 503
