"""The gateway passes bodies on as they come, holds back who is too fast, and sees who leaves."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from gateway_tools import Raw, Running, Upstream, answering, gateway, head_of, until

from headgate.gateway import Plan

GET = b"GET / HTTP/1.1\r\nHost: shop\r\n\r\n"
CHUNKED = b"POST / HTTP/1.1\r\nHost: shop\r\nTransfer-Encoding: chunked\r\n\r\n"
PLENTY = 64 << 20
"""More than all the buffers between two programs hold."""


@pytest.fixture(scope="module")
def upstream() -> Iterator[Upstream]:
    made = Upstream()
    yield made
    made.close()


@pytest.fixture(scope="module")
def front(upstream: Upstream) -> Iterator[Running]:
    with gateway(upstream.url) as running:
        yield running


def test_the_beginning_of_a_response_arrives_before_its_end_is_sent(
    upstream: Upstream, front: Running
) -> None:
    seen = threading.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"first", "more_body": True})
        await asyncio.to_thread(seen.wait, 10)
        await send({"type": "http.response.body", "body": b"last"})

    upstream.app = app
    with Raw(front.port) as raw:
        raw.send(GET)
        begun = raw.until(b"first")
        assert head_of(begun)[0] == 200
        assert b"last" not in begun
        seen.set()
        assert b"last" in raw.until(b"0\r\n\r\n")


@pytest.mark.parametrize("length", [True, False])
def test_the_beginning_of_a_request_arrives_before_its_end_is_sent(
    upstream: Upstream, front: Running, length: bool
) -> None:
    got: list[bytes] = []
    first = threading.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        more = True
        while more:
            message = await receive()
            got.append(message["body"])
            more = message["more_body"]
            first.set()
        await send({"type": "http.response.start", "status": 201, "headers": []})
        await send({"type": "http.response.body", "body": b"".join(got)})

    upstream.app = app
    head = b"POST / HTTP/1.1\r\nHost: shop\r\nContent-Length: 9\r\n\r\n" if length else CHUNKED
    with Raw(front.port) as raw:
        raw.send(head + (b"first" if length else b"5\r\nfirst\r\n"))
        assert first.wait(60)
        assert b"".join(got) == b"first"
        raw.send(b"last" if length else b"4\r\nlast\r\n0\r\n\r\n")
        assert b"firstlast" in raw.until(b"firstlast")


def test_both_directions_at_once(upstream: Upstream, front: Running) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        more = True
        while more:
            message = await receive()
            more = message["more_body"]
            body = message["body"].upper()
            await send({"type": "http.response.body", "body": body, "more_body": more})

    upstream.app = app
    with Raw(front.port) as raw:
        raw.send(CHUNKED)
        for word in (b"one", b"two", b"six"):
            raw.send(b"3\r\n" + word + b"\r\n")
            assert word.upper() in raw.until(word.upper())
        raw.send(b"0\r\n\r\n")
        assert raw.until(b"0\r\n\r\n").endswith(b"0\r\n\r\n")


def test_large_bodies_arrive_whole(upstream: Upstream, front: Running) -> None:
    async def echo(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        more = True
        while more:
            message = await receive()
            more = message.get("more_body", False)
            await send({"type": "http.response.body", "body": message["body"], "more_body": more})

    upstream.app = echo
    body = bytes(range(256)) * 8192
    assert httpx.post(front.url, content=body).content == body
    assert httpx.post(front.url, content=iter([body, body])).content == body + body


def settled(count: list[int]) -> int:
    """A number that has stopped growing."""
    tick = threading.Event()
    while True:
        before = count[0]
        tick.wait(0.15)
        if count[0] == before and before:
            return before


def test_a_client_that_does_not_read_holds_the_upstream_back(
    upstream: Upstream, front: Running
) -> None:
    sent = [0]

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        while sent[0] < PLENTY:
            await send({"type": "http.response.body", "body": bytes(65536), "more_body": True})
            sent[0] += 65536

    upstream.app = app
    with Raw(front.port) as raw:
        raw.send(GET)
        assert settled(sent) < PLENTY


def test_an_upstream_that_does_not_read_holds_the_client_back(
    upstream: Upstream, front: Running
) -> None:
    gone = threading.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await asyncio.to_thread(gone.wait, 10)

    upstream.app = app
    sent = 0
    with Raw(front.port) as raw, contextlib.suppress(TimeoutError):
        raw.socket.settimeout(0.3)
        raw.send(b"POST / HTTP/1.1\r\nHost: shop\r\nContent-Length: %d\r\n\r\n" % PLENTY)
        while sent < PLENTY:
            sent += raw.socket.send(bytes(65536))
    gone.set()
    assert 0 < sent < PLENTY


class Left:
    """An application that waits for its caller to leave."""

    def __init__(self, *, starts: bool = False) -> None:
        self.here, self.gone = threading.Event(), threading.Event()
        self._starts = starts

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if self._starts:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"first", "more_body": True})
        self.here.set()
        while (await receive())["type"] != "http.disconnect":
            pass
        self.gone.set()


@pytest.mark.parametrize("starts", [False, True])
def test_a_client_that_leaves_ends_the_upstreams_call(
    upstream: Upstream, front: Running, starts: bool
) -> None:
    upstream.app = left = Left(starts=starts)
    with Raw(front.port) as raw:
        raw.send(GET)
        assert left.here.wait(60)
        if starts:
            raw.until(b"first")
        assert not left.gone.is_set()
    assert left.gone.wait(60)


def test_a_client_that_leaves_in_the_middle_of_its_request(
    upstream: Upstream, front: Running
) -> None:
    upstream.app = left = Left()
    with Raw(front.port) as raw:
        raw.send(CHUNKED + b"5\r\nfirst\r\n")
        assert left.here.wait(60)
    assert left.gone.wait(60)


def test_who_leaves_gives_back_what_it_held(upstream: Upstream) -> None:
    upstream.app = left = Left(starts=True)
    with gateway(upstream.url, "1 concurrent") as front:
        with Raw(front.port) as raw:
            raw.send(GET)
            raw.until(b"first")
            assert httpx.get(front.url).status_code == 429
        assert left.gone.wait(60)
        upstream.app = Left(starts=True)

        def passes() -> bool:
            with httpx.stream("GET", front.url) as response:
                return response.status_code == 200

        until(passes)


def test_a_request_that_is_too_large(upstream: Upstream) -> None:
    upstream.app = left = Left()
    with gateway(Plan(upstream.url, max_body=100)) as front:
        refused = httpx.post(front.url, content=bytes(101))
        assert refused.status_code == 413
        assert refused.headers["content-type"] == "application/problem+json"
        assert not left.here.is_set()
        with Raw(front.port) as raw:
            raw.send(CHUNKED + b"40\r\n" + bytes(64) + b"\r\n")
            assert left.here.wait(60)
            raw.send(b"40\r\n" + bytes(64) + b"\r\n")
            assert head_of(raw.rest())[0] == 413
        assert left.gone.wait(60)


def test_an_answer_before_the_request_has_ended(upstream: Upstream, front: Running) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "http.response.start", "status": 403, "headers": []})
        await send({"type": "http.response.body", "body": b"no"})

    upstream.app = app
    with Raw(front.port) as raw:
        raw.send(CHUNKED + b"5\r\nfirst\r\n")
        assert head_of(raw.until(b"no"))[0] == 403


def test_an_empty_body_and_no_body(upstream: Upstream, front: Running) -> None:
    upstream.app = answering(b"", 204)
    assert httpx.post(front.url, content=b"").status_code == 204
    assert upstream.last("content-length") == ["0"]
    assert httpx.get(front.url).status_code == 204
    assert upstream.last("content-length") == []
    upstream.app = answering(b"hello", headers=((b"content-length", b"5"),))
    head = httpx.head(front.url)
    assert (head.headers["content-length"], head.content) == ("5", b"")
    upstream.app = answering(b"", 304, ((b"etag", b'"1"'), (b"content-length", b"5")))
    assert httpx.get(front.url).headers["etag"] == '"1"'


def test_a_client_that_waits_for_a_word_before_it_sends(upstream: Upstream, front: Running) -> None:
    upstream.app = answering()
    with Raw(front.port) as raw:
        raw.send(
            b"POST / HTTP/1.1\r\nHost: shop\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n"
        )
        assert raw.until(b"\r\n\r\n").startswith(b"HTTP/1.1 100 ")
        raw.send(b"body")
        assert b"hello" in raw.until(b"hello")
    assert upstream.last("expect") == []


def test_connections_are_used_again(upstream: Upstream, front: Running) -> None:
    upstream.app = answering(bytes(1000))
    with httpx.Client() as client:
        for _ in range(4):
            assert client.post(front.url, content=b"body").content == bytes(1000)
    assert len({call["client"] for call in upstream.calls[-4:]}) == 1
