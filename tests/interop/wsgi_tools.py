"""What the tests of the WSGI adapters share: a real server, a client, and what all must do."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import pytest
from werkzeug.serving import WSGIRequestHandler, make_server

from headgate import Ask, Decision, Limit, ManualClock, MemoryStore
from servers import until

__all__ = ["BROWSER", "Battery", "Client", "CountingStore", "Reply", "Stage", "rules", "serving"]

BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
NOBODY = "redis://127.0.0.1:1/0"
"""Where no server listens."""
START = 1_000_000.0


def rules(*said: dict[str, Any], **more: Any) -> str:
    """A rules file, from its rules; one without a key counts by address."""
    every = [{"key": ["ip"], "name": f"rule-{place}", **one} for place, one in enumerate(said)]
    return json.dumps({"version": 1, **more, "rules": every})


class CountingStore(MemoryStore):
    """A store that notes what it is asked, and is always asked at length."""

    def __init__(self) -> None:
        super().__init__(clock=ManualClock(START))
        self.asked: list[list[str]] = []

    def quick(self, space: str, limits: Sequence[Limit]) -> None:
        return None

    def decide(self, asks: Sequence[Ask]) -> list[Decision]:
        self.asked.append([ask.op for ask in asks])
        return super().decide(asks)


class Stage:
    """What views and a test tell each other."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.calls: list[str] = []
        self.closed: list[str] = []

    def blocks(self) -> Iterator[bytes]:
        """A body whose second block comes when the test says so."""
        try:
            yield b"one\n"
            assert self.go.wait(60)
            yield b"two\n"
        finally:
            self.closed.append("stream")

    def endless(self) -> Iterator[bytes]:
        """A body that ends when nobody listens any more."""
        try:
            while True:
                yield b"." * 65536
        finally:
            self.closed.append("endless")


class Reply(NamedTuple):
    """A response."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        """Its body as data."""
        return json.loads(self.body)


class Client:
    """A client of a server on this machine."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.gate: Any = None

    def ask(self, path: str = "/", method: str = "GET", **headers: str) -> Reply:
        """One call on a connection of its own; headers are written with underscores."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        with contextlib.closing(connection):
            told = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, path, headers=told)
            response = connection.getresponse()
            found = {name.lower(): value for name, value in response.getheaders()}
            return Reply(response.status, found, response.read())

    def statuses(self, count: int, path: str = "/", method: str = "GET", **more: str) -> list[int]:
        """The statuses of several calls."""
        return [self.ask(path, method, **more).status for _ in range(count)]

    @contextlib.contextmanager
    def begun(self, path: str) -> Iterator[socket.socket]:
        """A call that was let in, and of which the first bytes of the body have come."""
        with until(lambda: self._begun(path)) as sock:
            yield sock

    def _begun(self, path: str) -> socket.socket | None:
        sock = socket.create_connection(("127.0.0.1", self.port), timeout=60)
        sock.sendall(f"GET {path} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n".encode())
        seen = b""
        while not re.search(rb"\r\n\r\n(?:[0-9a-f]+\r\n)?.", seen, re.DOTALL):
            seen += sock.recv(1024)
        if b" 200 " in seen.splitlines()[0]:
            return sock
        sock.close()  # the call before has not given back yet
        return None


class _Quiet(WSGIRequestHandler):
    def log(self, *args: Any) -> None:  # nobody reads it
        pass


@contextlib.contextmanager
def serving(app: Any) -> Iterator[Client]:
    """A threaded server of an application."""
    server = make_server("127.0.0.1", 0, app, threaded=True, request_handler=_Quiet)
    server.daemon_threads = True  # type: ignore[attr-defined] # of the threaded one
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield Client(server.port)
    finally:
        server.shutdown()
        thread.join(60)
        server.server_close()


class Battery:
    """What every adapter must do, over real HTTP.

    The application of a subclass has the paths `/` and `/other` (a text), `/login` (401 unless the
    header X-Password is right), `/boom` (an exception), `/stream` and `/endless` (of the stage),
    `/file` (this file).
    """

    stage: Stage
    stack: contextlib.ExitStack

    @pytest.fixture(autouse=True)
    def _staged(self) -> Iterator[None]:
        self.stage = Stage()
        with contextlib.ExitStack() as self.stack:
            yield
            self.stage.go.set()

    def serve(self, *limits: str, **words: Any) -> Client:
        """A server of the application with such limits; its client also has the gate."""
        raise NotImplementedError

    def started(self, *limits: str, **words: Any) -> Client:
        """The same on a clock that stands still."""
        if not isinstance(words.get("store"), MemoryStore):
            words.setdefault("clock", ManualClock(START))
        return self.serve(*limits, **words)

    def test_a_limit_as_text(self) -> None:
        client = self.started("2/minute")
        first, second, third = (client.ask() for _ in range(3))
        assert [first.status, second.status, third.status] == [200, 200, 429]
        assert first.headers["ratelimit-policy"] == '"default";q=2;w=60'
        assert first.headers["ratelimit"].startswith('"default";r=1;t=')
        assert "retry-after" not in first.headers
        assert int(third.headers["retry-after"]) > 0
        assert third.headers["content-type"] == "application/problem+json"
        assert third.json()["status"] == 429
        assert third.json()["violated-policies"] == ["default"]
        assert self.stage.calls == ["/", "/"]

    def test_a_page_for_browsers_and_none_for_head(self) -> None:
        client = self.started("1/minute")
        client.ask()
        page = client.ask(Accept=BROWSER)
        assert page.headers["content-type"] == "text/html; charset=utf-8"
        assert b"<h1>Too many requests</h1>" in page.body
        head = client.ask(method="HEAD")
        assert (head.status, head.body) == (429, b"")
        assert int(head.headers["content-length"]) > 0

    def test_what_a_rule_says_of_its_refusals(self) -> None:
        client = self.started(
            rules=rules(
                {"match": {"path": "/"}, "limit": "1/minute", "status": 503},
                {
                    "match": {"path": "/other"},
                    "limit": "9/s",
                    "deny": {"networks": ["127.0.0.0/8"]},
                },
            )
        )
        assert client.statuses(2) == [200, 503]
        assert client.ask("/other").status == 403

    def test_what_is_given_in_place_of_an_error(self) -> None:
        said: dict[str, Any] = {
            "/": {"redirect": "/waiting"},
            "/other": {"page": "<p>Later.</p>"},
            "/boom": {"data": {"items": []}},
            "/login": {"function": "shop:queue"},
        }
        client = self.started(
            rules=rules(
                *(
                    {"match": {"path": path}, "limit": "1/minute", "cost": 2, "otherwise": other}
                    for path, other in said.items()
                )
            ),
            functions={"shop:queue": lambda facts: {"ip": facts.ip, "user": facts.user}},
            user=lambda request: "ann",
        )
        redirect = client.ask("/")
        assert (redirect.status, redirect.headers["location"]) == (303, "/waiting")
        page = client.ask("/other")
        assert (page.status, page.body) == (429, b"<p>Later.</p>")
        data = client.ask("/boom")
        assert (data.status, data.json()) == (200, {"items": []})
        assert client.ask("/login").json() == {"ip": "127.0.0.1", "user": "ann"}
        assert self.stage.calls == []

    def test_a_body_of_the_users_own(self) -> None:
        client = self.started(
            "1/minute", body=lambda verdict, accept: (420, "text/plain", f"calm: {verdict.rule}")
        )
        client.ask()
        reply = client.ask()
        assert (reply.status, reply.body) == (420, b"calm: default")
        assert "retry-after" in reply.headers

    def test_a_permit_is_held_until_a_stream_has_ended(self) -> None:
        client = self.started("1 concurrent")
        with client.begun("/stream") as sock:
            assert client.ask().status == 429
            self.stage.go.set()
            while sock.recv(1024):
                pass
        until(lambda: client.ask().status == 200)
        assert self.stage.closed == ["stream"]

    def test_a_permit_comes_back_when_the_client_goes_away(self) -> None:
        client = self.started("1 concurrent")
        with client.begun("/endless"):
            assert client.ask().status == 429
        until(lambda: client.ask().status == 200)
        assert self.stage.closed == ["endless"]

    def test_a_permit_comes_back_after_an_error_and_after_a_file(self) -> None:
        client = self.started("1 concurrent")
        assert client.ask("/boom").status == 500
        until(lambda: client.ask().status == 200)
        with open(__file__, "rb") as file:
            assert reply_of(client, "/file").body == file.read()
        until(lambda: client.ask(method="HEAD").status == 200)
        until(lambda: client.ask().status == 200)

    def test_only_failures_are_counted(self) -> None:
        client = self.started(rules=rules({"limit": "2/minute", "count": "failures"}))
        # A success comes back when the body is closed, a moment after its last byte.
        for _ in range(4):
            until(lambda: client.ask("/login", X_Password="right").status == 200)
        for _ in range(2):
            until(lambda: client.ask("/login").status == 401)
        assert client.ask("/login").status == 429
        assert client.ask("/login", X_Password="right").status == 429

    def test_the_user_says_what_a_failure_is(self) -> None:
        client = self.started(
            rules=rules({"limit": "1/minute", "count": "failures"}), failed=lambda response: True
        )
        assert client.ask().status == 200
        until(lambda: client.ask().status == 429)

    def test_a_spoofed_address_does_not_help(self) -> None:
        client = self.started("1/minute")
        spoofed = [client.ask(X_Forwarded_For=f"192.0.2.{n}").status for n in range(3)]
        assert spoofed == [200, 429, 429]

    def test_a_trusted_proxy_is_believed(self) -> None:
        client = self.started("1/minute", trusted="loopback")
        assert client.statuses(2, X_Forwarded_For="6.6.6.6, 192.0.2.1") == [200, 429]
        assert client.ask(X_Forwarded_For="192.0.2.1, 192.0.2.2").status == 200

    def test_exempt_paths_and_rules_in_shadow(self) -> None:
        client = self.started(
            rules=rules(
                {"limit": "1/minute"},
                {"match": {"path": "/other"}, "exempt": True, "name": "open"},
                {"limit": "1/hour", "shadow": True, "name": "hidden"},
            )
        )
        assert client.statuses(3, "/other") == [200] * 3
        assert "ratelimit" not in client.ask("/other").headers
        first = client.ask()
        assert "hidden" not in first.headers["ratelimit"]
        assert client.ask().json()["violated-policies"] == ["rule-0"]

    def test_no_spelling_of_a_call_is_a_way_around_its_rule(self) -> None:
        said = {"match": {"path": "/login", "method": "POST", "host": "shop.example"}}
        client = self.started(rules=rules({**said, "limit": "1/minute"}))
        assert client.ask("/login", "POST", Host="shop.example").status == 401
        for path in ("/login", "//login", "/login/", "/%6Cogin", "/x/../login", "/login?a=1"):
            assert client.ask(path, "POST", Host="SHOP.example:80").status == 429, path
        # A server may also refuse a method in small letters by itself.
        assert client.ask("/login", "post", Host="shop.example").status in (400, 429)
        assert client.ask("/login", "POST", Host="other.example").status == 401

    def test_what_is_known_of_a_call(self) -> None:
        client = self.started(
            rules=rules(
                {"match": {"path": "/"}, "key": ["user"], "limit": "1/minute"},
                {"match": {"path": "/other"}, "key": ["header:X-Tenant"], "limit": "1/minute"},
                {
                    "match": {"path": "/file"}, "limit": "1/minute",
                    "plans": {"by": "plan", "pro": ["3/minute"]},
                },
            ),
            user=self.user,
            attributes=lambda request: {"plan": "pro"},
        )  # fmt: skip
        assert client.statuses(2, X_User="ann") == [200, 429]
        assert client.statuses(2, X_User="bob") == [200, 429]
        assert client.statuses(3) == [200] * 3
        assert client.statuses(2, "/other", X_Tenant="a") == [200, 429]
        assert client.statuses(4, "/file") == [200] * 3 + [429]

    user: Callable[[Any], Any]
    """Reads the header X-User."""

    @pytest.mark.parametrize(("on_error", "statuses"), [("allow", [200] * 3), ("deny", [429] * 3)])
    def test_a_store_that_is_gone(self, on_error: str, statuses: list[int]) -> None:
        said = rules(
            {"limit": "1/minute"}, {"limit": "1 concurrent"}, defaults={"on_error": on_error}
        )
        client = self.serve(rules=said, store=NOBODY)
        assert client.statuses(3) == statuses
        if on_error == "allow":
            assert client.ask("/boom").status == 500

    def test_rules_that_change_while_it_runs(self) -> None:
        client = self.started(rules=rules({"limit": "2/minute"}))
        assert client.statuses(3) == [200, 200, 429]
        client.gate.reload(rules({"limit": "3/minute"}))
        assert client.statuses(2) == [200, 429]

    def test_the_store_is_asked_once(self) -> None:
        store = CountingStore()
        client = self.started(
            rules=rules({"limit": "9/minute"}, {"limits": ["9/hour", "99/day"]}, {"limit": "9/s"}),
            store=store,
        )
        assert client.ask().status == 200
        assert store.asked == [["take"] * 4]


def reply_of(client: Client, path: str) -> Reply:
    """The first reply that is no refusal."""
    return until(lambda: (reply := client.ask(path)).status != 429 and reply)  # type: ignore[no-any-return] # what it found
