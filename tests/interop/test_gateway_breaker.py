"""The gateway's circuit breaker: an upstream that dies is left alone until it is back."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
import pytest
from gateway_tools import Raw, Upstream, answering, forever, gateway, head_of, raw_upstream, until

from headgate import ManualClock
from headgate.cli import main
from headgate.gateway import BreakerGuard, Plan, relay
from headgate.gateway.breaker import breaker_settings
from headgate.gateway.settings import GatewaySettings
from headgate.resilience import Breaker
from headgate.service.settings import SettingsError

GET = b"GET / HTTP/1.1\r\nHost: shop\r\n\r\n"
POST = b"POST / HTTP/1.1\r\nHost: shop\r\nContent-Length: 10\r\n\r\nhalf"


@pytest.fixture(scope="module")
def upstream() -> Iterator[Upstream]:
    made = Upstream()
    yield made
    made.close()


def breaker_of(clock: ManualClock | None = None, **words: Any) -> Breaker:
    told: dict[str, Any] = {"window": 4, "wait": 30, "probes": 1}
    return Breaker("shop", clock=clock or ManualClock(), **{**told, **words})


class Mortal:
    """An upstream that dies and comes back at the same port."""

    def __init__(self) -> None:
        self.calls = 0
        self.status = 200
        self.answers = threading.Event()
        """Unless it is set, those who ask are kept waiting."""
        self.answers.set()
        self.server: ThreadingHTTPServer | None = None
        self.port = 0
        self.live()

    def live(self) -> None:
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.calls += 1
                outer.answers.wait(60)
                self.send_response(outer.status)
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"ok")

            def log_request(self, code: object = "-", size: object = "-") -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        self.port = self.server.server_port
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    def die(self) -> None:
        if self.server is not None:
            self.server.shutdown()
            self.server.server_close()
            self.server = None


@pytest.fixture
def mortal() -> Iterator[Mortal]:
    made = Mortal()
    yield made
    made.die()


def test_an_upstream_that_dies_and_comes_back(
    mortal: Mortal, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "headgate")
    clock = ManualClock()
    breaker = breaker_of(clock)
    url = f"http://127.0.0.1:{mortal.port}"
    with gateway(url, guard=breaker) as front, httpx.Client(base_url=front.url) as client:
        assert [client.get("/").status_code for _ in range(4)] == [200] * 4
        mortal.die()
        assert [client.get("/").status_code for _ in range(3)] == [502, 502, 503]
        refused = client.get("/")
        assert refused.headers["content-type"] == "application/problem+json"
        assert refused.headers["retry-after"] == "30"
        assert refused.json()["detail"] == "The upstream is not well."
        mortal.live()
        clock.advance(20)
        answer = client.get("/")  # nobody looks before it is time
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "10")
        assert mortal.calls == 4
        clock.advance(11)
        assert client.get("/").status_code == 200
        assert breaker.state == "closed"
        assert mortal.calls == 5
    told = [each.getMessage() for each in caplog.records if "breaker" in each.getMessage()]
    assert told == [
        "upstream shop: the breaker is open: 2 of 4 calls failed",
        "upstream shop: the breaker is half open: the wait is over; 3 calls were held back",
        "upstream shop: the breaker is closed: 0 of 1 calls failed",
    ]


def test_a_probe_that_fails(mortal: Mortal) -> None:
    clock = ManualClock()
    breaker = breaker_of(clock)
    breaker.open()
    mortal.status = 503
    with gateway(f"http://127.0.0.1:{mortal.port}", guard=breaker) as front:
        clock.advance(31)
        assert httpx.get(front.url).text == "ok"  # the upstream's own 503
        assert breaker.state == "open"
        assert httpx.get(front.url).json()["detail"] == "The upstream is not well."
        assert mortal.calls == 1


def test_what_is_a_failure(upstream: Upstream) -> None:
    breaker = breaker_of(window=100)
    plan = Plan(upstream.url, first_byte=1.0, connect=1.0)
    with gateway(plan, guard=breaker) as front:
        for status in (200, 302, 404, 429, 500, 503):
            upstream.app = answering(status=status)
            assert httpx.get(front.url).status_code == status
        found = breaker.metrics()
        assert (found.succeeded, found.failed, found.ignored) == (4, 2, 0)
        upstream.app = forever
        assert httpx.get(front.url).status_code == 504
        found = breaker.metrics()
        assert (found.failed, found.ignored, found.in_flight) == (3, 0, 0)


def test_clients_are_not_the_upstreams_fault(upstream: Upstream) -> None:
    breaker = breaker_of(window=100)
    plan = Plan(upstream.url, between=1.0, max_body=20)
    with gateway(plan, guard=breaker) as front:
        upstream.app = forever
        with Raw(front.port) as raw:  # leaves before it is answered
            raw.send(GET)
            until(lambda: breaker.metrics().in_flight == 1)
        until(lambda: breaker.metrics().ignored == 1)
        with Raw(front.port) as raw:  # does not send all
            raw.send(POST)
            assert head_of(raw.rest())[0] == 408
        until(lambda: breaker.metrics().ignored == 2)

        def much() -> Iterator[bytes]:
            yield bytes(15)
            yield bytes(15)

        assert httpx.post(front.url, content=much()).status_code == 413
    found = breaker.metrics()
    assert (found.permitted, found.ignored, found.failed) == (3, 3, 0)


def test_a_slow_request_does_not_use_up_the_upstreams_time(upstream: Upstream) -> None:
    breaker = breaker_of(window=100)
    upstream.app = forever
    with gateway(Plan(upstream.url, total=0.1), guard=breaker) as front, Raw(front.port) as raw:
        raw.send(POST)
        assert head_of(raw.rest())[0] == 504
        assert breaker.metrics().ignored == 1
        assert httpx.get(front.url).status_code == 504  # now it is the upstream's
        assert breaker.metrics().failed == 1


def test_slow_calls_open_it(upstream: Upstream) -> None:
    clock = ManualClock()
    breaker = breaker_of(clock, window=2, slow_after=1.0)

    async def slow(scope: Any, receive: Any, send: Any) -> None:
        await asyncio.sleep(1.1)
        await answering()(scope, receive, send)

    with gateway(upstream.url, guard=breaker) as front:
        upstream.app = answering()
        with Raw(front.port) as raw:  # a client that takes its time
            raw.send(POST)
            threading.Event().wait(1.1)
            raw.send(b"+ half")
            assert head_of(raw.until(b"hello"))[0] == 200
        assert breaker.metrics().slow == 0
        upstream.app = slow
        assert [httpx.get(front.url).status_code for _ in range(3)] == [200, 200, 503]
    assert breaker.metrics().slow == 2


def test_a_probe_that_streams_is_judged_when_it_begins(upstream: Upstream) -> None:
    clock = ManualClock()
    breaker = breaker_of(clock)
    breaker.open()
    free = threading.Event()

    async def stream(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"first", "more_body": True})
        await asyncio.to_thread(free.wait, 10)
        await send({"type": "http.response.body", "body": b"last"})

    upstream.app = stream
    with gateway(upstream.url, guard=breaker) as front, Raw(front.port) as raw:
        clock.advance(31)
        raw.send(GET)
        raw.until(b"first")
        assert breaker.state == "closed"
        free.set()
        assert b"last" in raw.until(b"last")
    assert breaker.metrics().in_flight == 0


def test_no_client_holds_a_probe(upstream: Upstream, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay, "ARRIVAL", 0.05)
    clock = ManualClock()
    breaker = breaker_of(clock)
    breaker.open()
    clock.advance(31)
    upstream.app = answering()
    with gateway(upstream.url, guard=breaker) as front:
        with Raw(front.port) as raw:
            raw.send(POST)  # and no more: it is the only probe
            until(lambda: breaker.metrics().in_flight == 1)
            answer = httpx.get(front.url)
            if answer.status_code == 503:
                assert answer.headers["retry-after"] == "1"
            until(lambda: breaker.metrics().in_flight == 0)
            assert httpx.get(front.url).status_code == 200
            assert breaker.state == "closed"
            raw.send(b"+ half")
            assert head_of(raw.until(b"hello"))[0] == 200  # it goes on, uncounted
        with Raw(front.port) as raw:
            breaker.open()
            clock.advance(31)
            upstream.app = forever
            raw.send(GET)
            until(lambda: breaker.metrics().in_flight == 1)
        until(lambda: breaker.metrics().in_flight == 0)  # it has left
        assert breaker.state == "half_open"
        upstream.app = answering()
        assert httpx.get(front.url).status_code == 200


def test_an_upstream_that_does_not_read_is_at_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay, "ARRIVAL", 1.0)
    breaker = breaker_of(window=100)
    done = threading.Event()

    def handle(_connection: socket.socket) -> None:
        done.wait(60)

    with raw_upstream(handle) as port:
        plan = Plan(f"http://127.0.0.1:{port}", between=2.0)
        with gateway(plan, guard=breaker) as front, contextlib.suppress(httpx.HTTPError):
            assert httpx.post(front.url, content=bytes(32 << 20)).status_code == 504
        done.set()
    assert (breaker.metrics().failed, breaker.metrics().ignored) == (1, 0)


def test_many_at_once_and_few_probes(mortal: Mortal) -> None:
    clock = ManualClock()
    breaker = breaker_of(clock, probes=2)
    breaker.open()
    clock.advance(31)
    mortal.status = 500
    mortal.answers.clear()
    with gateway(f"http://127.0.0.1:{mortal.port}", guard=breaker) as front:

        async def crowd() -> list[int]:
            told = []
            async with httpx.AsyncClient(timeout=60) as client:
                for each in asyncio.as_completed([client.get(front.url) for _ in range(30)]):
                    told.append((await each).status_code)
                    if len(told) == 28:
                        mortal.answers.set()
            return told

        told = asyncio.run(crowd())
    assert told == [503] * 28 + [500] * 2
    assert mortal.calls == 2


def test_switched_off_by_hand(upstream: Upstream) -> None:
    upstream.app = answering()
    breaker = breaker_of()
    breaker.force_open()
    with gateway(upstream.url, guard=breaker) as front:
        answer = httpx.get(front.url)
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "60")


def test_the_command(mortal: Mortal) -> None:
    process = subprocess.Popen(
        [
            sys.executable, "-m", "headgate", "gateway", "--upstream",
            f"http://127.0.0.1:{mortal.port}", "--listen", "127.0.0.1:0", "--log", "json",
            "--breaker", "errors=2, open=2s, probes=1",
        ],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        url = process.stdout.readline().split()[3].rstrip(",")
        mortal.die()
        assert [httpx.get(url).status_code for _ in range(3)] == [502, 502, 503]
        mortal.live()
        until(lambda: httpx.get(url).status_code == 200)
    finally:
        process.terminate()
        errors = process.communicate(timeout=60)[1]
    lines = [json.loads(line) for line in errors.splitlines()]
    told = [(each["level"], each["breaker"]) for each in lines if "breaker" in each]
    assert told == [("warning", "open"), ("info", "half_open"), ("info", "closed")]
    assert lines[-2]["refused"] >= 1


def test_it_is_off_unless_it_is_wanted(mortal: Mortal) -> None:
    assert GatewaySettings("http://shop").gateway().relay.guard.enter() is None
    made = GatewaySettings("http://shop", breaker="on", first_byte_timeout="5min")
    guard = GatewaySettings.from_json(made.as_json()).gateway().relay.guard
    assert isinstance(guard, BreakerGuard)
    assert guard.breaker.name == "http://shop"
    assert guard.breaker.settings.probe_lease == 375  # no shorter than the time-outs


def test_what_can_be_said() -> None:
    assert breaker_settings("off") is None
    on = breaker_settings("on")
    assert on is not None
    found = on.failure_ratio, on.window_seconds, on.minimum, on.wait, on.probes
    assert found == (0.5, 10.0, 10, 10.0, 3)
    said = breaker_settings(
        "failures=12.5%, slow=2s, slow-share=80%, window=100 calls, minimum=50, open=1min, "
        "probes=5, ramp=30s"
    )
    assert said is not None
    assert (said.failure_ratio, said.slow_after, said.slow_ratio) == (0.125, 2.0, 0.8)
    assert (said.window, said.window_seconds, said.minimum) == (100, None, 50)
    assert (said.wait, said.probes, said.ramp) == (60.0, 5, 30.0)
    alone = breaker_settings("errors=5")
    assert alone is not None
    assert (alone.failure_ratio, alone.failure_count, alone.minimum) == (None, 5, 5)
    few = breaker_settings("window=5calls")
    assert few is not None
    assert few.minimum == 5


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("yes", "off, on, or some of failures="),
        ("failures=50", "failures is a share such as 50%"),
        ("failures=0%", "failures is a share such as 50%"),
        ("failures=500%", "failures is a share such as 50%"),
        ("errors=-1", "errors is a number above 0"),
        ("errors=0", "errors is a number above 0"),
        ("slow=", "slow is a time such as 10s"),
        ("open=soon", "open is a time such as 10s"),
        ("window=0 calls", "window is a number above 0"),
        ("slow-share=50%", "needs slow_after"),
        ("errors=20,window=10calls", "do not fit"),
        ("probes=1,probes=2", "probes is said twice"),
        ("failures=50%,", "not ''"),
    ],
)
def test_what_cannot_be_said(text: str, words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        GatewaySettings("http://shop", breaker=text)


def test_the_help_names_it(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["gateway", "--help"])
    assert "failures=50%" in capsys.readouterr().out
