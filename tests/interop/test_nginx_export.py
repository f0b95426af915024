"""What is exported for nginx, in a real nginx: accepted, for the same requests, the same counts."""

from __future__ import annotations

import http.client
import itertools
import json
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from nginx_tools import Nginx, free_port, settled

from headgate import Facts, Gate, ManualClock
from headgate.export import nginx_config
from headgate.paths import normal_path
from headgate.rules import read_rules
from headgate.rules.match import Snapshot

PACED: dict[str, dict[str, Any]] = {
    "bucket": {"limit": "10/second token-bucket burst 5"},
    "gcra": {"limit": "20/second gcra burst 1"},
    "leaky": {"limit": "30/second leaky-bucket burst 3"},
    "queue": {"limit": "10/second leaky-bucket queue 6 delay 4"},
    "soft": {"limit": "10/second gcra burst 4 soft 50%"},
    "even": {"limit": "10/second even"},
    "slow": {"limit": "90/minute gcra burst 2"},
    "both": {"limits": ["20/second gcra burst 6", "5/second gcra burst 8"]},
}
ASIDE: list[dict[str, Any]] = [
    {"name": "waits", "limit": "10/second leaky-bucket queue 5 delay 2", "wait": "2s"},
    {"name": "tenant", "key": ["header:x-tenant", "ip", "path"], "limit": "1/minute gcra burst 2"},
    {"name": "ip", "key": ["ip"], "limit": "1/minute gcra burst 1"},
    {"name": "param", "match": {"path": "/param/{id}/x"}, "key": ["param:id"],
     "limit": "1/minute gcra burst 1"},
    {"name": "held", "limit": "3 concurrent"},
]  # fmt: skip


def rules() -> str:
    found = [{"name": name, "key": ["ip"], **rule} for name, rule in PACED.items()] + ASIDE
    for rule in found:
        rule.setdefault("match", {"path": f"/{rule['name']}/**"})
    return json.dumps({"version": 1, "rules": found})


class Front:
    """nginx alone, with the exported limits."""

    def __init__(self, folder: Path, text: str, server: str = "", http_part: str = "") -> None:
        exported = nginx_config(read_rules(text, name="rules.json"), zone_size="64k")
        assert not exported.left_out
        self.port = free_port()
        config = settled(
            f"include limits.conf;\n{http_part}server {{\nlisten 127.0.0.1:{self.port};\n"
            "set_real_ip_from 127.0.0.0/8;\nreal_ip_header X-Real-IP;\n"
            f"location / {{ empty_gif; }}\n{server}\n}}"
        )
        self.nginx = Nginx(folder, config, **{"limits.conf": exported.text})

    def status(self, path: str, method: str = "GET", **headers: str) -> int:
        """The status of one answer, on a connection of its own."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, path, headers=named)
            return connection.getresponse().status
        finally:
            connection.close()


class Slow:
    """An upstream that answers when it is told to."""

    def __init__(self) -> None:
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port: int = self.socket.getsockname()[1]
        self.open: list[socket.socket] = []

    def accept(self, count: int) -> None:
        for _ in range(count):
            connection, _peer = self.socket.accept()
            connection.recv(65536)
            self.open.append(connection)

    def answer(self) -> None:
        while self.open:
            connection = self.open.pop()
            connection.sendall(b"HTTP/1.0 200 OK\r\n\r\n")
            connection.close()


@pytest.fixture(scope="module")
def slow() -> Iterator[Slow]:
    slow = Slow()
    yield slow
    slow.socket.close()


@pytest.fixture(scope="module")
def front(tmp_path_factory: pytest.TempPathFactory, slow: Slow) -> Iterator[Front]:
    held = f"location /held/ {{ proxy_pass http://127.0.0.1:{slow.port}; }}"
    front = Front(tmp_path_factory.mktemp("nginx"), rules(), held)
    assert "[warn]" not in front.nginx.test()
    with front.nginx.serving(front.port):
        yield front


class Sent(NamedTuple):
    """A request: when it left, when its answer came, and whether it was let through."""

    left: float
    came: float
    passed: bool


def trace(front: Front, seconds: float, ip: str) -> dict[str, list[Sent]]:
    """Requests on every paced path, about 30 ms apart, with a rush now and then."""
    connection = http.client.HTTPConnection("127.0.0.1", front.port, timeout=60)
    found: dict[str, list[Sent]] = {name: [] for name in PACED}
    start = time.monotonic()
    for turn in itertools.count():
        if time.monotonic() - start > seconds:
            break
        for name in PACED:
            # A bucket is told by its rushes; strict distances, by steady calls.
            for _ in range(8 if turn % 20 == 0 and name != "even" else 1):
                left = time.monotonic()
                connection.request("GET", f"/{name}/{turn}", headers={"X-Real-IP": ip})
                answer = connection.getresponse()
                answer.read()
                assert answer.status in (200, 429)
                found[name].append(Sent(left, time.monotonic(), answer.status == 200))
        time.sleep(max(0.0, start + (turn + 1) * 0.03 - time.monotonic()))
    connection.close()
    return found


def replayed(name: str, times: list[float]) -> int:
    """How many of the same calls headgate lets through."""
    clock = ManualClock(times[0])
    with Gate(rules(), clock=clock) as gate:
        passed = 0
        for at in times:
            clock.advance(max(0.0, at - clock.now()))
            passed += bool(gate.check(Facts(path=f"/{name}/1", ip="127.0.0.1")))
        return passed


def compared(found: dict[str, list[Sent]]) -> dict[str, tuple[int, list[int], int]]:
    """Of each path: what nginx let through, what headgate does, and of how many."""
    told = {}
    for name, sent in found.items():
        # nginx saw a call somewhere between its leaving and its answer.
        ours = [replayed(name, [each[end] for each in sent]) for end in (0, 1)]
        told[name] = sum(each.passed for each in sent), ours, len(sent)
    return told


def test_the_same_counts(front: Front) -> None:
    """On a machine that stands still for a moment nobody knows when nginx saw a call.

    So a trace may be disturbed, and then there is another one, from a fresh address; a rate that
    was written wrongly is wrong in all of them.
    """
    tried = []
    for attempt in range(5):
        told = compared(trace(front, 2.5, f"192.0.2.{100 + attempt}"))
        tried.append(told)
        if all(
            min(ours) - 1 <= passed <= max(ours) + 1 and passed < calls
            for passed, ours, calls in told.values()
        ):
            return
    raise AssertionError(tried)


def test_waiting(front: Front) -> None:
    """Twelve at once; there is another try, as above, if they did not come at once."""

    def asked(_: int) -> int:
        return front.status("/waits/1")

    tried = []
    for _ in range(5):
        with ThreadPoolExecutor(12) as pool, Gate(rules()) as gate:
            start = time.monotonic()
            statuses = list(pool.map(asked, range(12)))
            took = time.monotonic() - start
            ours = list(pool.map(lambda _: bool(gate.check(Facts(path="/waits/1"))), range(12)))
        passed = statuses.count(200)
        assert statuses.count(429) == 12 - passed
        assert took >= 0.25  # of six, the last waits for three places
        if abs(passed - sum(ours)) <= 1:
            return
        tried.append((statuses, ours))
        time.sleep(2)  # until nobody waits any more
    raise AssertionError(tried)


def test_keys_of_several_parts(front: Front) -> None:
    def ask(tenant: str, ip: str, path: str = "/tenant/a") -> int:
        headers = {"X_Tenant": tenant} if tenant else {}
        return front.status(path, X_Real_IP=ip, **headers)

    assert [ask("a", "192.0.2.1") for _ in range(3)] == [200, 200, 429]
    assert ask("a", "192.0.2.2") == 200
    assert ask("b", "192.0.2.1") == 200
    assert ask("a", "192.0.2.1", "/tenant/b") == 200
    assert ask("a", "192.0.2.1", "/tenant/a/") == 429  # the same path
    assert [ask("", "192.0.2.1") for _ in range(3)] == [200] * 3  # a part is missing


def test_addresses(front: Front) -> None:
    def ask(ip: str) -> int:
        return front.status("/ip/1", X_Real_IP=ip)

    assert [ask("192.0.2.9"), ask("192.0.2.9")] == [200, 429]
    assert ask("::ffff:192.0.2.9") == 429  # the same address within version 6
    assert ask("::ffff:192.0.2.10") == 200  # and another
    assert [ask("2001:db8::1"), ask("2001:db8::ffff:2")] == [200, 429]  # one subscriber
    assert ask("2001:db8:0:1::1") == 200
    # A byte of an address may be a line break.
    assert [ask("10.0.10.0"), ask("10.0.10.1"), ask("10.0.10.0")] == [200, 200, 429]


def test_parameters(front: Front) -> None:
    paths = ["/param/7/x", "/param/7/x/", "/param/8/x", "//param/%37/x", "/param/7/y"]
    assert [front.status(path) for path in paths] == [200, 429, 200, 429, 200]


def test_connections(front: Front, slow: Slow) -> None:
    with ThreadPoolExecutor(3) as pool:
        for _ in range(2):
            accepting = threading.Thread(target=slow.accept, args=(3,))
            accepting.start()
            held = [pool.submit(front.status, "/held/1") for _ in range(3)]
            accepting.join(60)
            assert [front.status("/held/1") for _ in range(2)] == [429, 429]
            slow.answer()
            assert [each.result(60) for each in held] == [200] * 3


MATCHING = json.dumps({
    "version": 1,
    "allow": {"networks": ["10.0.0.0/8", "2001:db8::/32"]},
    "deny": {"networks": ["203.0.113.0/24"]},
    "rules": [
        {"name": "health", "match": {"path": ["/health", "/live/**"]}, "exempt": True},
        {"name": "probe", "match": {"method": ["GET", "HEAD"], "host": "probe.example"},
         "exempt": True},
        *({"limit": "1000/second gcra", **rule} for rule in (
            {"name": "all"},
            {"name": "login", "match": {"method": "POST", "path": "/login"}},
            {"name": "one", "match": {"path": "/api/*/x"}},
            {"name": "rest", "match": {"path": "/api/*"}},
            {"name": "any", "match": {"path": ["/v1/**", "/v2/{id}/y"]}},
            {"name": "odd", "match": {"path": ["/a.b+c$(d)/é", '/quote"d\\/{x:path}']}},
            {"name": "host", "match": {"host": ["*.shop.example", "one.example"]}},
            {"name": "header", "match": {"header": {"X-Kind": ["Good", "a.c"], "X-There": "*"}}},
            {"name": "keyed", "key": ["header:x-tenant"]},
            {"name": "two", "key": ["host", "header:x-tenant"]},
            {"name": "free", "allow": {"networks": ["192.0.2.0/28"]}},
            {"name": "route", "match": {"path": ["/r/{a}", "/s/*"]}, "key": ["route", "ip"]},
        )),
    ],
})  # fmt: skip
PATHS = (
    "/", "/login", "/Login", "/login/", "//login", "/%6cogin", "/login%0a", "/loginx", "/api",
    "/api/", "/api/q", "/api/q/x", "/api/q/x/", "/api/q/X", "/api/q/r/x", "/v1", "/v1x", "/v1/",
    "/v1/a/b", "/v2/7/y", "/v2/7/8/y", "/a.b+c$(d)/%C3%A9", "/aXb+c$(d)/%C3%A9",
    "/quote%22d%5C/q/w", "/health", "/health/", "/healthy", "/live", "/live/1", "/x/../login",
    "/r/1", "/s/1/2", "/r",
)  # fmt: skip
CALLS: list[tuple[str, str, dict[str, str]]] = [
    *(("GET", path, {}) for path in PATHS),
    *(("POST", path, {}) for path in PATHS[:8]),
    *(("GET", "/", {"Host": host}) for host in (
        "a.shop.example", "shop.example", "xshop.example", "A.B.Shop.Example:81", "one.example.",
        "probe.example", "ONE.example", "two.example",
    )),
    ("POST", "/", {"Host": "probe.example"}),
    *(("GET", "/", {"X-Kind": kind, "X-There": "1"}) for kind in ("Good", "good", "a.c", "abc")),
    ("GET", "/", {"X-Kind": "Good"}),
    ("GET", "/", {"X-Tenant": "t"}),
    *(("GET", "/", {"X-Real-IP": ip}) for ip in (
        "10.1.2.3", "11.1.2.3", "2001:db8::1", "2001:db9::1", "192.0.2.15", "192.0.2.16",
        "203.0.113.9", "::ffff:10.0.0.1",
    )),
]  # fmt: skip


def test_the_same_requests(tmp_path: Path) -> None:
    """A zone's key is there exactly where headgate's rule applies."""
    ruleset = read_rules(MATCHING, name="rules.json")
    snapshot = Snapshot(ruleset)
    names = [rule.name for rule in ruleset.rules if not rule.exempt]
    maps = "".join(
        f'map $headgate_key_{name} $seen_{name} {{ default {name}; "" ""; }}\n' for name in names
    )
    seen = ",".join(f"${{seen_{name}}}" for name in names)
    front = Front(tmp_path, MATCHING, f'add_header X-Seen "{seen}" always;', maps)
    assert "[warn]" not in front.nginx.test()
    with front.nginx.serving(front.port):
        for method, path, given in CALLS:
            headers = {"Host": "plain.example", "X-Real-IP": "198.51.100.1", **given}
            connection = http.client.HTTPConnection("127.0.0.1", front.port, timeout=60)
            connection.request(method, path, headers=headers)
            answer = connection.getresponse()
            answer.read()
            connection.close()
            found = set(filter(None, (answer.headers["X-Seen"] or "").split(",")))
            ip = headers["X-Real-IP"].removeprefix("::ffff:")
            facts = Facts(
                method=method,
                path=normal_path(path),
                host=headers["Host"],
                ip=ip,
                headers={name.lower(): value for name, value in headers.items()},
            )
            matched = snapshot.match(facts)
            assert found == {bound.rule.name for bound in matched.bounds}, (method, path, given)
            assert (answer.status == 403) == (matched.denied is not None), (method, path, given)


def test_a_dry_run(tmp_path: Path) -> None:
    text = json.dumps({"version": 1, "rules": [
        {"name": "one", "limit": "1/minute gcra burst 1", "shadow": True, "log_level": "warning"},
        {"name": "two", "limit": "1 concurrent", "shadow": True},
    ]})  # fmt: skip
    front = Front(tmp_path, text)
    with front.nginx.serving(front.port):
        assert [front.status("/") for _ in range(3)] == [200] * 3
        assert front.nginx.log().count("limiting requests, dry run") == 2


def test_statuses(tmp_path: Path) -> None:
    text = json.dumps({"version": 1, "rules": [
        {"name": "one", "limit": "1/minute gcra burst 1", "status": 503},
    ]})  # fmt: skip
    front = Front(tmp_path, text)
    with front.nginx.serving(front.port):
        assert [front.status("/") for _ in range(2)] == [200, 503]
