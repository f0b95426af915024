"""Reload reaches every process: by SIGHUP and by POST, the one that speaks gRPC too."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from envoy_tools import Asking
from service_forms import FORMS, NOBODY_FOLLOWS, in_form
from service_tools import Running, eventually, serving

RULES = """
domain: shop
descriptors:
  - {key: user, rate_limit: {unit: day, requests_per_unit: 10}}
"""


@pytest.fixture(params=FORMS)
def running(request: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Running]:
    """The service with rules that nobody looks at who is not told to."""
    in_form(monkeypatch, tmp_path, request.param, NOBODY_FOLLOWS)
    with serving(RULES, "--grpc", "127.0.0.1:0") as made:
        yield made


@pytest.fixture
def asked(running: Running) -> Iterator[Asking]:
    with contextlib.closing(Asking(port_of(running))) as made:
        yield made


def port_of(running: Running) -> int:
    return int(running.where["grpc"].rpartition(":")[2])


def limit(asked: Asking) -> int:
    status = asked.limit("shop", {"user": "ann"}).statuses[0]
    return int(status.current_limit.requests_per_unit)


def over_http(running: Running) -> int:
    with contextlib.closing(running.client()) as client:
        call = {"domain": "shop", "entries": {"user": "ann"}}
        text: str = client.post("/v1/peek", call).json["decisions"][0]["limit"]
        return int(text.partition("/")[0])


def hang_up(running: Running) -> None:
    running.process.send_signal(signal.SIGHUP)


def post(running: Running) -> None:
    with contextlib.closing(running.client("admin")) as admin:
        assert admin.post("/reload", {}).status == 200


def put(running: Running, amount: int) -> None:
    other = running.rules.with_suffix(".new")
    other.write_text(RULES.replace("10}", f"{amount}}}"))
    os.replace(other, running.rules)


def test_it_reaches_grpc(running: Running, asked: Asking) -> None:
    amount = 10
    ways: tuple[Callable[[Running], None], ...] = (hang_up, post, hang_up)
    for tell in ways:
        put(running, amount + 1)
        assert limit(asked) == over_http(running) == amount
        tell(running)
        amount += 1
        eventually(lambda expected=amount: limit(asked) == over_http(running) == expected)
    running.rules.write_text("domain: [")
    post(running)
    assert running.status()["rules"]["last_error"]
    assert limit(asked) == over_http(running) == amount
    put(running, 77)
    post(running)
    eventually(lambda: limit(asked) == over_http(running) == 77)


def grpc_process(running: Running) -> int:
    pid, workers = running.process.pid, running.status()["workers"]
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    (own,) = {int(child) for child in children} - {worker["pid"] for worker in workers}
    return own


@pytest.mark.parametrize("running", ["pyvoy"], indirect=True)
def test_it_reaches_a_process_that_came_back(running: Running, asked: Asking) -> None:
    first = grpc_process(running)
    os.kill(first, signal.SIGKILL)

    def answers(expected: int) -> bool:
        with contextlib.suppress(grpc.RpcError):
            return limit(asked) == expected
        return False

    eventually(lambda: answers(10))
    put(running, 12)
    post(running)
    eventually(lambda: answers(12))


@pytest.mark.parametrize("running", ["pyvoy"], indirect=True)
def test_without_a_master_it_ends(running: Running, asked: Asking) -> None:
    assert limit(asked) == 10
    process = grpc_process(running)
    running.process.kill()
    running.process.wait()
    eventually(lambda: not Path(f"/proc/{process}").exists())
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.1", port_of(running)), timeout=20)
