"""Upstreams that are dead, slow, or talk nonsense; clients that are slow."""

from __future__ import annotations

import asyncio
import gc
import socket
import threading
import warnings
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from gateway_tools import Raw, Upstream, answering, forever, gateway, head_of, raw_upstream, until
from nginx_tools import free_port

from headgate.gateway import Guard, Held, Plan
from headgate.gateway.patience import Patience
from headgate.gateway.plan import Target
from headgate.gateway.upstream import Upstream as Far
from headgate.service.settings import SettingsError

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"


@pytest.fixture(scope="module")
def upstream() -> Iterator[Upstream]:
    made = Upstream()
    yield made
    made.close()


class Told(Guard):
    """A guard that remembers."""

    def __init__(self, wait: float = 0.0) -> None:
        self.wait = wait
        self.told: list[str] = []

    def enter(self) -> object:
        if self.wait:
            raise Held(self.wait)
        self.token = object()
        return self.token

    def leave(self, token: object, outcome: str, seconds: float) -> None:
        assert token is self.token
        assert seconds >= 0
        self.told.append(outcome)


def request(connection: socket.socket) -> bytes:
    got = b""
    while b"\r\n\r\n" not in got and (more := connection.recv(65536)):
        got += more
    return got


def says(answer: bytes) -> Callable[[socket.socket], None]:
    def handle(connection: socket.socket) -> None:
        request(connection)
        connection.sendall(answer)

    return handle


def answer_one(listener: socket.socket) -> None:
    connection, _ = listener.accept()
    with connection:
        says(OK)(connection)


def test_nobody_is_there() -> None:
    guard = Told()
    with gateway(f"http://127.0.0.1:{free_port()}", guard=guard) as front:
        answer = httpx.get(front.url)
    assert answer.status_code == 502
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["title"] == "Bad Gateway"
    assert "127.0.0.1" not in answer.text  # nothing is told of what lies behind
    assert answer.headers["date"]
    assert guard.told == ["failure"]


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"nonsense\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Le",
        b"HTTP/1.1 999 Odd\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nX-Large: " + b"x" * 200_000 + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"X-Many: 1\r\n" * 1000 + b"\r\n",
    ],
    ids=["nothing", "nonsense", "half a head", "status", "lengths", "large", "many"],
)
def test_an_upstream_that_talks_nonsense(answer: bytes) -> None:
    calls: list[int] = []

    def handle(connection: socket.socket) -> None:
        calls.append(1)
        says(answer)(connection)

    guard = Told()
    with raw_upstream(handle) as port, gateway(f"http://127.0.0.1:{port}", guard=guard) as front:
        assert httpx.get(front.url).status_code == 502
    assert len(calls) == 1  # it is never asked twice
    assert guard.told == ["failure"]


def test_large_headers_of_an_upstream_that_still_pass() -> None:
    answer = OK.replace(b"\r\n\r\n", b"\r\nX-Large: " + b"x" * 30_000 + b"\r\n\r\n")
    with raw_upstream(says(answer)) as port, gateway(f"http://127.0.0.1:{port}") as front:
        assert httpx.get(front.url).headers["x-large"] == "x" * 30_000


@pytest.mark.parametrize("head", [b"Content-Length: 50", b"Transfer-Encoding: chunked"])
def test_an_upstream_that_dies_in_the_middle(head: bytes) -> None:
    part = b"HTTP/1.1 200 OK\r\n" + head + b"\r\n\r\n5\r\nhello\r\n"
    with (
        raw_upstream(says(part)) as port,
        gateway(f"http://127.0.0.1:{port}", "1 concurrent") as front,
    ):
        for _ in range(3):  # and what it held has come back
            with pytest.raises(httpx.RemoteProtocolError):
                httpx.get(front.url)


def test_an_upstream_that_hangs_up_between_two_calls() -> None:
    with (
        raw_upstream(says(OK)) as port,
        gateway(f"http://127.0.0.1:{port}") as front,
        httpx.Client() as client,
    ):
        for _ in range(5):
            assert client.get(front.url).text == "hello"


@pytest.mark.parametrize(
    ("method", "content", "expected"),
    [("GET", None, 200), ("DELETE", None, 200), ("POST", None, 502), ("PUT", b"x", 502)],
)
def test_a_connection_that_breaks_under_its_second_call(
    method: str, content: bytes | None, expected: int
) -> None:
    """Sent again is only what may arrive twice, once, and never what a new connection broke."""
    asked: list[bytes] = []

    def handle(connection: socket.socket) -> None:
        for _ in range(2):
            asked.append(request(connection))
            if len(asked) in {1, 3}:
                connection.sendall(OK)
            else:
                return

    with (
        raw_upstream(handle) as port,
        gateway(f"http://127.0.0.1:{port}") as front,
        httpx.Client() as client,
    ):
        assert client.get(front.url).status_code == 200
        assert client.request(method, front.url, content=content).status_code == expected
        if expected == 200:  # the third was answered: now the used connection, and a new one, break
            assert client.get(front.url).status_code == 502
    assert len([one for one in asked if one]) == (5 if expected == 200 else 2)


def test_an_upstream_that_comes_back() -> None:
    port = free_port()
    with gateway(f"http://127.0.0.1:{port}") as front:
        assert httpx.get(front.url).status_code == 502
        listener = socket.create_server(("127.0.0.1", port))
        thread = threading.Thread(target=answer_one, args=(listener,))
        thread.start()
        assert httpx.get(front.url).status_code == 200
        thread.join(60)
        listener.close()


def test_an_upstream_that_does_not_answer_in_time(upstream: Upstream) -> None:
    upstream.app = forever
    guard = Told()
    with gateway(Plan(upstream.url, first_byte=0.1, connect=0.1), guard=guard) as front:
        answer = httpx.post(front.url, content=b"x")
        assert (answer.status_code, answer.json()["title"]) == (504, "Gateway Timeout")
        assert httpx.get(front.url).status_code == 504
    with gateway(Plan(upstream.url, total=0.1), guard=guard) as front:
        assert httpx.get(front.url).status_code == 504
    assert guard.told == ["failure"] * 3


def test_an_upstream_that_stops_in_the_middle(upstream: Upstream) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"first", "more_body": True})
        await forever(scope, receive, send)

    upstream.app = app
    with gateway(Plan(upstream.url, between=1.0)) as front, Raw(front.port) as raw:
        raw.send(b"GET / HTTP/1.1\r\nHost: shop\r\n\r\n")
        answer = raw.rest()
    assert b"first" in answer
    assert not answer.endswith(b"0\r\n\r\n")  # so the client knows


def test_nothing_is_kept_of_what_an_upstream_does_not_read() -> None:
    async def body() -> AsyncIterator[bytes]:
        while True:
            yield bytes(65536)

    async def main(port: int) -> None:
        far = Far(Plan(f"http://127.0.0.1:{port}"))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await far.request("POST", "/", "", [], body())
        await far.close()

    gc.collect()  # what others have left is not meant
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        warnings.catch_warnings(record=True) as told,
    ):
        warnings.simplefilter("always")
        asyncio.run(main(listener.getsockname()[1]))
        gc.collect()
    assert [str(each.message) for each in told if each.category is ResourceWarning] == []


def test_no_connection_in_time() -> None:
    # A full queue of connections that nobody accepts: the next one hangs.
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listener:
        address = listener.getsockname()
        held = []
        for _ in range(4):
            one = socket.socket()
            one.settimeout(0)
            one.connect_ex(address)
            held.append(one)
        try:
            plan = Plan(f"http://127.0.0.1:{address[1]}", connect=0.2, first_byte=0.2)
            with gateway(plan) as front:
                assert httpx.get(front.url).status_code == 504
        finally:
            for one in held:
                one.close()


def test_a_client_that_does_not_send_its_request(upstream: Upstream) -> None:
    upstream.app = answering()
    guard = Told()
    with gateway(Plan(upstream.url, between=0.15), guard=guard) as front:
        with Raw(front.port) as raw:
            raw.send(b"POST / HTTP/1.1\r\nHost: shop\r\nContent-Length: 5\r\n\r\nabc")
            status, headers = head_of(raw.rest())
        assert (status, headers["connection"]) == (408, "close")
    assert guard.told == ["ignored"]


def test_a_client_that_does_not_take_its_response(upstream: Upstream) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(1024):
            await send({"type": "http.response.body", "body": bytes(65536), "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    upstream.app = app
    with gateway(Plan(upstream.url, between=0.2), "1 concurrent") as front, Raw(front.port) as raw:
        raw.send(b"GET / HTTP/1.1\r\nHost: shop\r\n\r\n")
        raw.until(b"\r\n\r\n")

        def free() -> bool:
            with httpx.stream("GET", front.url) as response:
                return response.status_code == 200

        until(free)  # what it held has come back, though it is still there


def test_a_guard_holds_calls_back(upstream: Upstream) -> None:
    upstream.app = answering()
    count = len(upstream.calls)
    guard = Told(wait=6.2)
    with gateway(upstream.url, guard=guard) as front:
        answer = httpx.get(front.url)
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "7")
        assert len(upstream.calls) == count
        guard.wait = 0.0
        assert httpx.get(front.url).status_code == 200
        upstream.app = answering(status=500)
        assert httpx.get(front.url).status_code == 500
        upstream.app = answering(status=404)
        assert httpx.get(front.url).status_code == 404
    assert guard.told == ["success", "failure", "success"]


def test_connections_to_the_upstream_are_bounded(upstream: Upstream) -> None:
    upstream.app = forever
    plan = Plan(upstream.url, connections=1, connect=0.2, first_byte=5)
    with gateway(plan) as front, Raw(front.port) as raw:
        count = len(upstream.calls)
        raw.send(b"GET / HTTP/1.1\r\nHost: shop\r\n\r\n")
        until(lambda: len(upstream.calls) > count)
        assert httpx.get(front.url).status_code == 504


def test_an_upstream_on_a_unix_socket(tmp_path: Path) -> None:
    path = str(tmp_path / "app.sock")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        thread = threading.Thread(target=answer_one, args=(listener,))
        thread.start()
        with gateway(f"unix:{path}") as front:
            assert httpx.get(front.url).text == "hello"
        thread.join(60)


@pytest.mark.parametrize(
    "url",
    ["", "shop", "ftp://shop", "http://", "http://u:p@shop", "http://shop?x", "http://shop:x",
     "unix:"],
)  # fmt: skip
def test_an_upstream_that_cannot_be(url: str) -> None:
    with pytest.raises(SettingsError):
        Plan(url)


def test_the_parts_of_an_upstream() -> None:
    assert Target.parse("https://[::1]:8443/a/") == ("https", "::1", 8443, "/a", "")
    assert Target.parse("https://[::1]:8443/a/").authority == "[::1]:8443"
    assert Target.parse("http://shop").authority == "shop"
    wrongs: list[dict[str, Any]] = [{"host": "x"}, {"total": -1.0}, {"health": "x"}]
    for wrong in wrongs:
        with pytest.raises(SettingsError):
            Plan("http://shop", **wrong)


async def ended(patience: Patience, seconds: float, *stops: str) -> None:
    async with patience:
        patience.allow(seconds, "it")
        for why in stops:
            patience.stop(why)
            patience.allow(0, "it")
        await asyncio.sleep(10)


def test_patience_ends_for_the_first_reason() -> None:
    async def main() -> list[str]:
        found = []
        cases = ((0.0, 0.01, ()), (0.01, 5.0, ()), (0.01, 0.0, ()), (0.0, 5.0, ("x", "later")))
        for total, seconds, stops in cases:
            patience = Patience(total)
            with pytest.raises(TimeoutError):
                await ended(patience, seconds, *stops)
            found.append(patience.why)
            patience.stop("too late")
        async with (patience := Patience()):
            patience.allow(5, "it")
        return [*found, patience.why]

    assert asyncio.run(main()) == ["it", "total", "total", "x", ""]
