"""`headgate serve --grpc`: Envoy's protocol beside the HTTP API, on the same counts."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest
from envoy_tools import LIMITS, Asking, Process, Upstream, get, proxy, typed
from service_tools import Running, eventually, serving

TREE = """
domain: shop
descriptors:
  - key: user
    rate_limit: {unit: day, requests_per_unit: 10}
  - key: all
    rate_limit: {unit: day, requests_per_unit: 100}
"""
OWN = """
version: 1
rules:
  - name: writers
    match: {entries: {method: POST}}
    key: ["entry:user"]
    limit: 10/day fixed-window
"""
OK, OVER = 1, 2
CHECK = "grpc.health.v1.Health/Check"
GRPC = ("--grpc", "127.0.0.1:0")


@pytest.fixture(scope="module")
def tree() -> Iterator[Running]:
    with serving(TREE, *GRPC, "--workers", "2") as running:
        yield running


@contextlib.contextmanager
def asking(running: Running) -> Iterator[Asking]:
    made = Asking(int(running.where["grpc"].rpartition(":")[2]))
    with contextlib.closing(made):
        yield made


def code(asked: Asking, *descriptors: Any, domain: str = "shop") -> int:
    found: int = asked.limit(domain, *descriptors).overall_code
    return found


def remaining(running: Running, **call: Any) -> int:
    with contextlib.closing(running.client()) as client:
        found: int = client.post("/v1/peek", call).json["remaining"]
        return found


def replace(running: Running, text: str) -> None:
    other = running.rules.with_suffix(".new")
    other.write_text(text)
    os.replace(other, running.rules)


def test_health_and_limits(tree: Running) -> None:
    with asking(tree) as asked:
        assert asked.raw(CHECK, b"") == b"\x08\x01"
        name = LIMITS.encode()
        assert asked.raw(CHECK, b"\n" + bytes([len(name)]) + name) == b"\x08\x01"
        answers = [asked.limit("shop", {"user": "anna"}, {"other": "x"}) for _ in range(11)]
    assert [answer.overall_code for answer in answers] == [OK] * 10 + [OVER]
    first = answers[0].statuses
    assert [status.code for status in first] == [OK, OK]
    assert first[0].current_limit.requests_per_unit == 10
    assert first[0].limit_remaining == 9
    assert not first[1].HasField("current_limit")


def test_one_count_for_both(tree: Running) -> None:
    """What HTTP takes, gRPC does not have any more, and the other way round."""
    call = {"domain": "shop", "entries": {"user": "both"}}
    with asking(tree) as asked, contextlib.closing(tree.client()) as client:
        assert [code(asked, {"user": "both"}) for _ in range(4)] == [OK] * 4
        assert client.post("/v1/check", call).json["remaining"] == 5
        assert asked.limit("shop", {"user": "both"}).statuses[0].limit_remaining == 4
        assert [client.post("/v1/check", call).json["allowed"] for _ in range(5)] == (
            [True] * 4 + [False]
        )
        assert code(asked, {"user": "both"}) == OVER


def test_exact_through_both(tree: Running) -> None:
    def by_grpc(_: int) -> int:
        with asking(tree) as asked:
            return sum(code(asked, {"all": "1"}) == OK for _ in range(20))

    def by_http(_: int) -> int:
        call = {"domain": "shop", "entries": {"all": "1"}}
        with contextlib.closing(tree.client()) as client:
            return sum(client.post("/v1/check", call).json["allowed"] for _ in range(20))

    with ThreadPoolExecutor(8) as pool:
        counts = [*pool.map(by_grpc, range(4)), *pool.map(by_http, range(4))]
    assert sum(counts) == 100


def test_reload(tree: Running) -> None:
    """New limits are in force; a broken file is not; connections stay; counts stay."""
    with asking(tree) as asked:

        def limit() -> int:
            status = asked.limit("shop", {"user": "re"}).statuses[0]
            return int(status.current_limit.requests_per_unit)

        assert limit() == 10
        replace(tree, TREE.replace("requests_per_unit: 10}", "requests_per_unit: 7777}"))
        tree.process.send_signal(signal.SIGHUP)
        eventually(lambda: limit() == 7777)
        used = 7777 - remaining(tree, domain="shop", entries={"user": "re"})
        assert used >= 2
        replace(tree, "domain: [")
        tree.process.send_signal(signal.SIGHUP)
        eventually(lambda: tree.status()["rules"]["last_error"])
        assert limit() == 7777
        replace(tree, TREE)
        tree.process.send_signal(signal.SIGHUP)
        eventually(lambda: limit() == 10)
        assert asked.raw(CHECK, b"") == b"\x08\x01"
    assert tree.process.poll() is None


def test_the_process_is_killed(tree: Running) -> None:
    """It comes back at the same place, with the counts; HTTP does not notice."""
    call = {"domain": "shop", "entries": {"user": "killed"}}
    with asking(tree) as asked, contextlib.closing(tree.client()) as client:
        assert [code(asked, {"user": "killed"}) for _ in range(3)] == [OK] * 3
        pid, workers = tree.process.pid, tree.status()["workers"]
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        (own,) = {int(child) for child in children} - {worker["pid"] for worker in workers}
        os.kill(own, signal.SIGKILL)
        assert client.post("/v1/check", call).json["remaining"] == 6

        def back() -> int | None:
            with contextlib.suppress(grpc.RpcError):
                return code(asked, {"user": "killed"})
            return None

        assert eventually(back, 60) == OK
        assert client.post("/v1/peek", call).json["remaining"] == 5
        assert tree.status()["workers"] == workers


def test_a_real_envoy_in_front(tree: Running) -> None:
    upstream = Upstream()
    header = {"header_name": "x-user", "descriptor_key": "user"}
    limits = [{"actions": [{"request_headers": header}]}]
    service = {"grpc_service": {"envoy_grpc": {"cluster_name": "service"}}}
    filter_ = {
        "name": "envoy.filters.http.ratelimit",
        "typed_config": typed(
            "envoy.extensions.filters.http.ratelimit.v3.RateLimit",
            domain="shop",
            timeout="3s",
            rate_limit_service={**service, "transport_api_version": "V3"},
        ),
    }
    port = int(tree.where["grpc"].rpartition(":")[2])
    front = Process(proxy(upstream.port, port, filter_, limits), {})
    try:
        found = [get(front.port, x_user="front") for _ in range(12)]
    finally:
        front.kill()
        upstream.shutdown()
        upstream.server_close()
    assert [status for status, _, _ in found] == [200] * 10 + [429] * 2
    assert int(found[-1][1]["retry-after"]) >= 1
    assert upstream.count == 10
    assert remaining(tree, domain="shop", entries={"user": "front"}) == 0


def test_a_port_that_is_taken(tmp_path: Path) -> None:
    """It says so, and leaves no process behind."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        place = f"127.0.0.1:{taken.getsockname()[1]}"
        running = Running(tmp_path, OWN, "--grpc", place, wait=False)
        assert running.process.wait(60) == 2
        assert f"nobody can listen at {place}" in running.log()
        assert "Traceback" not in running.log()
        running.stop()


def test_own_rules() -> None:
    with serving(OWN, *GRPC) as running, asking(running) as asked:
        call = {"method": "POST", "user": "anna"}
        assert [code(asked, call, domain="any") for _ in range(4)] == [OK] * 4
        with contextlib.closing(running.client()) as client:
            by_name = client.post("/v1/check", {"rule": "writers", "key": "anna"}).json
            assert by_name["remaining"] == 5
            by_facts = client.post("/v1/check", {"entries": call}).json
            assert by_facts["remaining"] == 4
        assert asked.limit("any", call).statuses[0].limit_remaining == 3
        assert code(asked, {"method": "GET", "user": "anna"}, domain="any") == OK

        replace(running, OWN.replace("10/day", "7777/day"))
        running.process.send_signal(signal.SIGHUP)

        def limit() -> int:
            status = asked.limit("any", call).statuses[0]
            return int(status.current_limit.requests_per_unit)

        eventually(lambda: limit() == 7777)
        assert running.stop() == 0
        with pytest.raises(grpc.RpcError):
            code(asked, call, domain="any")
