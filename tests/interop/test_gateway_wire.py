"""What passes the gateway over the wire, and what it refuses to read."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from gateway_tools import Raw, Running, Upstream, answering, gateway, head_of, spoken

from headgate.gateway import Gateway, Plan


@pytest.fixture(scope="module")
def upstream() -> Iterator[Upstream]:
    made = Upstream()
    yield made
    made.close()


@pytest.fixture(scope="module")
def front(upstream: Upstream) -> Iterator[Running]:
    with gateway(upstream.url) as running:
        yield running


def test_what_the_upstream_sees(upstream: Upstream, front: Running) -> None:
    upstream.app = answering()
    httpx.get(
        f"{front.url}/a",
        headers={"X-Forwarded-For": "10.1.1.1", "Connection": "x-gone", "X-Gone": "1"},
    )
    assert upstream.last("x-forwarded-for") == ["127.0.0.1"]
    assert upstream.last("x-gone") == []
    assert upstream.last("connection") == []
    assert upstream.last("host") == [f"127.0.0.1:{front.port}"]
    assert upstream.last("via") == ["1.1 headgate"]


def test_nothing_is_added_that_the_client_did_not_say(upstream: Upstream, front: Running) -> None:
    upstream.app = answering(headers=((b"content-encoding", b"gzip"), (b"x-name", b"Zo\xeb")))
    answer = spoken(front.port, b"GET / HTTP/1.1\r\nHost: shop\r\nConnection: close\r\n\r\n")
    for name in ("accept", "accept-encoding", "user-agent", "content-type", "cookie"):
        assert upstream.last(name) == []
    assert b"x-name: Zo\xeb\r\n" in answer
    assert b"hello" in answer  # as it came, and not unpacked
    assert answer.lower().count(b"\r\ndate:") == 1
    assert answer.lower().count(b"\r\nserver:") == 1


@pytest.mark.parametrize(
    "target",
    ["/a/../b", "//a//b", "/%2e%2e/a%2Fb", "/a#b", "/a;v=1?x=%20&&y", "/%", "/?x=/../", "/~%7E+"],
)
def test_a_target_passes_as_it_is(upstream: Upstream, front: Running, target: str) -> None:
    upstream.app = answering()
    spoken(front.port, f"GET {target} HTTP/1.1\r\nHost: shop\r\nConnection: close\r\n\r\n".encode())
    scope = upstream.calls[-1]
    query = scope["query_string"]
    assert scope["raw_path"] + (b"?" + query if query else b"") == target.encode()


def test_a_prefix_of_the_upstream(upstream: Upstream) -> None:
    upstream.app = answering()
    with gateway(Plan(f"{upstream.url}/base/", host="upstream")) as front:
        httpx.get(f"{front.url}/a?b=c")
    assert upstream.calls[-1]["raw_path"] == b"/base/a"
    assert upstream.last("host") == [f"127.0.0.1:{upstream.port}"]


def test_a_target_with_a_host_is_limited_as_any_other(upstream: Upstream) -> None:
    rules = (
        '{"version": 1, "rules": [{"name": "login", "match": {"path": "/login"}, "key": ["ip"],'
        ' "limit": "1/hour"}]}'
    )
    upstream.app = answering()
    with gateway(upstream.url, rules=rules) as front:
        call = (
            b"GET http://evil.example/login?x HTTP/1.1\r\nHost: shop\r\nConnection: close\r\n\r\n"
        )
        assert head_of(spoken(front.port, call))[0] == 200
        assert upstream.calls[-1]["raw_path"] == b"/login"
        assert upstream.last("host") == ["evil.example"]  # as RFC 9112 wants it
        assert head_of(spoken(front.port, call))[0] == 429
        assert httpx.get(f"{front.url}/%6cogin").status_code == 429


@pytest.mark.parametrize(
    ("line", "status"),
    [
        (b"CONNECT evil.example:443 HTTP/1.1", 501),
        (b"TRACE / HTTP/1.1", 501),
        (b"get /login HTTP/1.1", 501),  # a rule for GET would not match it
        (b"OPTIONS * HTTP/1.1", 400),
        (b"GET @evil.example/ HTTP/1.1", 400),
        (b"GET ftp://evil.example/ HTTP/1.1", 400),
    ],
)
def test_what_is_not_passed_on(
    upstream: Upstream, front: Running, line: bytes, status: int
) -> None:
    count = len(upstream.calls)
    answer = spoken(front.port, line + b"\r\nHost: shop\r\nConnection: close\r\n\r\n")
    assert head_of(answer)[0] == status
    assert len(upstream.calls) == count


@pytest.mark.parametrize(
    "head",
    [
        b"Content-Length: 5\r\nContent-Length: 6",
        b"Content-Length: 5, 6",
        b"Content-Length: 5\r\nTransfer-Encoding: chunked",
        b"Transfer-Encoding: chunked\r\nContent-Length: 5",
        b"Transfer-Encoding: gzip, chunked",
        b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity",
        b"Transfer-Encoding : chunked",
        b"Transfer-Encoding:\x0bchunked",
        b"Content-Length: -5",
        b"Content-Length: 0x5",
        b"X: 1\r\n continued: Content-Length: 5\r\nContent-Length: 1\r\nContent-Length: 2",
        b"X: a\nTransfer-Encoding: chunked\r\nContent-Length: 5",
        b"Host: other",
    ],
)
def test_requests_that_can_be_read_in_two_ways(
    upstream: Upstream, front: Running, head: bytes
) -> None:
    count = len(upstream.calls)
    second = b"GET /smuggled HTTP/1.1\r\nHost: shop\r\n\r\n"
    with Raw(front.port) as raw:
        raw.send(b"POST / HTTP/1.1\r\nHost: shop\r\n" + head + b"\r\n\r\n0\r\n\r\n" + second)
        assert head_of(raw.rest())[0] in (400, 501)
    assert len(upstream.calls) == count


def test_a_head_that_is_too_large(upstream: Upstream, front: Running) -> None:
    count = len(upstream.calls)
    fine = httpx.get(front.url, headers={"X-Large": "x" * 30_000})
    assert fine.status_code == 200
    assert upstream.last("x-large") == ["x" * 30_000]
    with Raw(front.port) as raw:
        raw.send(b"GET / HTTP/1.1\r\nHost: shop\r\nX-Large: " + b"x" * 100_000)
        assert head_of(raw.rest())[0] == 400
    assert len(upstream.calls) == count + 1


def test_websockets_are_refused_clearly(upstream: Upstream, front: Running) -> None:
    count = len(upstream.calls)
    upgrade = {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
    }
    refused = httpx.get(front.url, headers=upgrade)
    assert (refused.status_code, refused.json()["status"]) == (501, 501)
    assert "Websockets" in refused.json()["detail"]
    assert len(upstream.calls) == count


@pytest.mark.parametrize("can", [True, False])
def test_websockets_from_a_server_that_understands_them(can: bool) -> None:
    sent: list[dict[str, Any]] = []

    async def send(message: Any) -> None:
        sent.append(message)

    extensions: dict[str, Any] = {"websocket.http.response": {}} if can else {}
    scope = {"type": "websocket", "path": "/", "headers": [], "extensions": extensions}
    asyncio.run(Gateway("http://127.0.0.1:1")(scope, None, send))  # type: ignore[arg-type] # unread
    assert sent[0].get("status", sent[0].get("code")) == (501 if can else 1008)
