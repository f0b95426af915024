"""What those who run the service see and do: resets and their audit lines, and the status."""

from __future__ import annotations

import contextlib
import json
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from service_tools import Running, eventually, serving

from headgate.cli import main
from servers import Server

RULES = """
version: 1
rules:
  - {name: api, match: {path: /api/*}, key: [user], limits: [3/hour, 100/day]}
  - {name: busy, match: {resource: job}, key: [user], limit: 2 concurrent}
"""
Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    with serving(RULES) as running:
        yield running


def audits(running: Running) -> list[tuple[str, str, str, str]]:
    return [
        (line["action"], line["outcome"], line.get("rule", ""), line.get("key", ""))
        for line in running.lines()
        if line["logger"] == "headgate.audit"
    ]


def test_a_reset_says_whom_it_was_for(running: Running) -> None:
    """By name or by facts: the line has the limits and the keys."""
    with contextlib.closing(running.client("admin")) as admin:
        told = {"reset": ["api#0", "api#1"]}
        assert admin.post("/v1/reset", {"rule": "api", "key": "ann"}).json == told
        assert admin.post("/v1/reset", {"path": "/api/x", "user": "bob"}).json == told
        assert admin.post("/v1/reset", {"path": "/else"}).json == {"reset": []}
    assert audits(running) == [
        ("reset", "done", "api#0, api#1", "ann"),
        ("reset", "done", "api#0, api#1", "bob"),
        ("reset", "done", "", ""),
    ]


def test_no_reset_without_a_store() -> None:
    """What a stand-in forgets is not what was asked for."""
    server = Server()
    call = {"rule": "api", "key": "ann"}
    try:
        with serving(RULES, "--store", f"{server.url}?budget=2s") as running:
            admin = running.client("admin")
            assert admin.post("/v1/reset", call).status == 200
            server.stop()
            answer = eventually(
                lambda: found if (found := admin.post("/v1/reset", call)).status != 200 else None
            )
            assert answer.status == 503
            assert answer.headers["content-type"] == "application/problem+json"
            assert answer.headers["retry-after"] == "1"
            assert audits(running)[-1][:2] == ("POST /v1/reset", "503")
            admin.close()
    finally:
        server.close()


def test_renewing_needs_no_body(running: Running) -> None:
    with contextlib.closing(running.client()) as client:
        held = client.post("/v1/permits", {"resource": "job", "user": "u", "ttl": 5}).json
        path = f"/v1/permits/{held['permit']['token']}"
        found = client.send("PUT", path)
        assert (found.status, found.json["permit"]["lease"]) == (200, 30.0)
        assert client.send("PUT", path, {"ttl": 7}).json["permit"]["lease"] == 7.0
        assert client.send("PUT", path, b"ttl=7", content_type="text/plain").status == 415
    with contextlib.closing(running.client()) as client:
        assert client.send("DELETE", path).status == 200
        assert client.send("PUT", path).status == 404


def test_whoever_waits_for_longer_than_the_end_takes() -> None:
    """They are told to ask somebody else, and get no error of a server that broke."""
    rules = RULES.replace("2 concurrent", "1 concurrent, wait: 20s")
    with serving(rules, "--drain", "1s") as running, ThreadPoolExecutor(1) as threads:
        client, waiting = running.client(), running.client()
        call = {"resource": "job", "user": "u"}
        assert client.post("/v1/permits", {**call, "ttl": 60}).json["allowed"]
        assert waiting.get("/healthz").status == 200
        asked = threads.submit(waiting.post, "/v1/check", call)
        time.sleep(1)  # on a connection that there is already: it has been read by then
        running.process.send_signal(signal.SIGTERM)
        answer = asked.result(60)
        assert answer.status == 503
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.headers["retry-after"] == "1"
        assert running.process.wait(60) == 0
        assert "Traceback" not in running.log()
        client.close()
        waiting.close()


def test_rules_status_of_a_service(running: Running, capsys: Capture, tmp_path: Path) -> None:
    for listener in ("http", "admin"):
        assert main(["rules", "status", f"http://{running.where[listener]}", "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert (found["rules"], found["last_error"]) == (2, None)
    assert main(["rules", "status", f"http://{running.where['http']}/"]) == 0
    assert "rules.yaml: 2 rules, digest " in capsys.readouterr().out
    assert main(["rules", "status", "http://127.0.0.1:1"]) == 2
    assert "Connection refused" in capsys.readouterr().out

    token = tmp_path / "token"
    token.write_text("a-token-of-enough-letters\n")
    token.chmod(0o600)
    with serving(RULES, "--api-token-file", str(token)) as guarded:
        url = f"http://{guarded.where['http']}"
        assert main(["rules", "status", url]) == 2
        assert "401" in capsys.readouterr().out
        assert main(["rules", "status", url, "--token-file", str(token)]) == 0
