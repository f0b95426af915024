"""The service's processes: reload, workers that die, a store that goes away, and the end."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPException
from pathlib import Path
from typing import Any

import pytest
from service_tools import Running, eventually, serving

from servers import Server

RULES = """
version: 1
rules:
  - {name: api, match: {resource: api}, key: [user], limit: 1000/30d fixed-window}
  - {name: one, match: {resource: one}, key: [user], limit: 1 concurrent, wait: 60s}
"""
BROKEN = "version: 1\nrules:\n  - {name: api, limit: nonsense}\n"


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    with serving(RULES, "--workers", "2") as running:
        yield running


def metric(running: Running, name: str) -> float:
    with contextlib.closing(running.client("admin")) as admin:
        text = admin.get("/metrics").body.decode()
    found = [line.rsplit(" ", 1)[1] for line in text.splitlines() if line.startswith(f"{name} ")]
    return float(found[0])


def pids(running: Running) -> list[int]:
    return [worker["pid"] for worker in running.status()["workers"]]


def allowed(running: Running, call: dict[str, Any], times: int) -> int:
    """How many of so many calls pass, on a connection of their own."""
    with contextlib.closing(running.client()) as client:
        return sum(client.post("/v1/check", call).json["allowed"] for _ in range(times))


def test_exact_with_eight_clients(running: Running) -> None:
    call = {"rule": "api", "key": "exact"}
    with ThreadPoolExecutor(8) as threads:
        counts = list(threads.map(lambda _: allowed(running, call, 150), range(8)))
    assert sum(counts) == 1000
    assert metric(running, "headgate_workers") == 2


def test_rules_change(running: Running) -> None:
    """By the file alone, and by SIGHUP; a broken file keeps the last good rules."""
    good = running.rules.read_text()

    def limit(name: str) -> set[str]:
        found = set()
        for _ in range(4):  # whichever worker answers
            with contextlib.closing(running.client()) as client:
                rules = client.get("/v1/rules").json["rules"]
            found |= {rule["limits"][0] for rule in rules if rule["name"] == name}
        return found

    def said(level: str) -> int:
        told = [line for line in running.lines() if line["message"].startswith("rules from")]
        return sum(line["level"] == level for line in told)

    def replace(text: str, level: str) -> None:
        """Replace the rules, and wait until every process has said what it makes of them."""
        before, other = said(level), running.rules.with_suffix(".new")
        other.write_text(text)
        os.replace(other, running.rules)
        if level == "warning":
            running.process.send_signal(signal.SIGHUP)
        eventually(lambda: said(level) >= before + 3)

    replace(good.replace("1000/30d", "7/30d"), "info")
    assert limit("api") == {"7/30d fixed-window"}
    errors = metric(running, "headgate_reload_errors_total")
    replace(BROKEN, "warning")
    eventually(lambda: metric(running, "headgate_reload_errors_total") >= errors + 2)
    assert limit("api") == {"7/30d fixed-window"}
    with contextlib.closing(running.client()) as client:
        status = client.get("/v1/rules").json["status"]
        assert "nonsense" in status["last_error"]
        assert status["errors"] >= 1
        assert client.post("/v1/check", {"rule": "api", "key": "reload"}).json["remaining"] == 6
    assert "nonsense" in running.status()["rules"]["last_error"]
    replace(good, "info")
    with contextlib.closing(running.client("admin")) as admin:
        assert admin.post("/reload", {}).json["last_error"] is None
    assert limit("api") == {"1000/30d fixed-window"}
    audits = [line for line in running.lines() if line["logger"] == "headgate.audit"]
    assert audits[-1]["action"] == "reload"
    assert audits[-1]["who"] == "127.0.0.1"


def test_a_worker_is_killed(running: Running) -> None:
    """Others serve on, nobody sees more than a broken connection, and the counts are exact."""
    call = {"rule": "api", "key": "killed"}
    before, over = pids(running), threading.Event()
    passed, broken, wrong = [], [], []

    def ask() -> None:
        client = running.client()
        while not over.wait(0.005):
            try:
                answer = client.post("/v1/check", call)
            except (OSError, HTTPException):
                broken.append(1)
                client.close()
                continue
            if answer.status != 200:
                wrong.append(answer)
            elif answer.json["allowed"]:
                passed.append(1)
        client.close()

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    eventually(lambda: len(passed) > 50)
    os.kill(before[0], signal.SIGKILL)
    already = len(passed)
    eventually(lambda: len(passed) > already + 200)
    over.set()
    for thread in threads:
        thread.join()
    assert not wrong
    # Whoever's connection broke may have been counted, but nobody twice.
    with contextlib.closing(running.client()) as client:
        used = 1000 - client.get("/v1/peek?rule=api&key=killed").json["remaining"]
    assert len(passed) <= used <= len(passed) + len(broken)
    assert len(broken) <= 8
    eventually(lambda: all(pids(running)) and before[0] not in pids(running))
    assert any("ended by SIGKILL" in line["message"] for line in running.lines())


def test_permits_of_other_workers(running: Running) -> None:
    """What one worker gave out, any of them takes back; who waits for it gets it."""
    with contextlib.closing(running.client()) as client:
        held = client.post("/v1/permits", {"rule": "one", "key": "w", "ttl": 60}).json["permit"]
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(allowed, running, {"rule": "one", "key": "w"}, 1)
        time.sleep(0.1)  # it is waiting by then, or it need not wait
        with contextlib.closing(running.client()) as client:
            assert client.send("DELETE", f"/v1/permits/{held['token']}").status == 200
        assert waiting.result(60) == 1


def test_whoever_hangs_up_while_waiting(running: Running) -> None:
    """Nothing is kept for them."""
    client = running.client()
    held = client.post("/v1/permits", {"rule": "one", "key": "h", "ttl": 60}).json["permit"]
    body = b'{"rule": "one", "key": "h"}'
    head = b"POST /v1/check HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
    impatient = running.raw()
    impatient.sendall(head + b"content-length: %d\r\n\r\n" % len(body) + body)
    time.sleep(0.2)
    impatient.close()
    time.sleep(0.1)
    assert client.send("DELETE", f"/v1/permits/{held['token']}").status == 200
    began = time.monotonic()
    assert client.post("/v1/check", {"rule": "one", "key": "h"}).json["allowed"]
    assert time.monotonic() - began < 30
    client.close()


def test_the_end_is_orderly() -> None:
    """A request under way is answered; nobody new is let in; all processes are gone."""
    with serving(RULES, "--workers", "2", "--drain", "60s") as running:
        workers = pids(running)
        client = running.client()
        assert client.get("/healthz").status == 200
        held = client.post("/v1/permits", {"rule": "one", "key": "x", "ttl": 3.0}).json
        assert held["allowed"]
        with ThreadPoolExecutor(1) as threads:
            waiting = threads.submit(client.post, "/v1/check", {"rule": "one", "key": "x"})
            time.sleep(1)  # on a connection that there is already: it has been read by then
            running.process.send_signal(signal.SIGTERM)
            eventually(lambda: refused(running))
            assert waiting.result(60).json["allowed"]  # when the lease had run out
        client.close()
        assert running.stop() == 0
        for pid in workers:
            assert not Path(f"/proc/{pid}").exists()


def refused(running: Running) -> bool:
    """Whether nobody listens any more."""
    try:
        running.raw().close()
    except OSError:
        return True
    return False


def test_the_master_is_killed() -> None:
    """Its workers do not stay behind."""
    with serving(RULES) as running:
        workers = pids(running)
        running.process.kill()
        running.process.wait()
        eventually(lambda: not any(Path(f"/proc/{pid}").exists() for pid in workers))


@pytest.mark.parametrize(("on_error", "passes"), [("allow", True), ("deny", False)])
def test_redis_goes_away(on_error: str, passes: bool) -> None:
    rules = RULES.replace("version: 1", f"version: 1\ndefaults: {{on_error: {on_error}}}")
    with Server() as server, serving(rules, "--store", f"{server.url}?budget=2s") as running:
        client = running.client()
        call = {"rule": "api", "key": "redis"}
        assert client.post("/v1/check", call).json["remaining"] == 999
        held = client.post("/v1/permits", {"rule": "one", "key": "r"}).json["permit"]
        assert client.send("DELETE", f"/v1/permits/{held['token']}").status == 200
        server.stop()

        def degraded() -> Any:
            answer = client.post("/v1/check", call)
            assert answer.status == 200
            return answer.json if answer.json["degraded"] else None

        found = eventually(degraded)
        assert found["allowed"] is passes
        eventually(lambda: degraded() and client.get("/readyz").json["store"] == "away")
        eventually(lambda: metric(running, "headgate_store_failures_total") > 0)
        client.close()


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        (("--admin", "0.0.0.0:0"), "--token-file"),
        (("--listen", "nowhere"), "127.0.0.1:8080"),
        (("--workers", "0"), "workers"),
        (("--tls-cert", "x"), "--tls-key"),
        (("--store", "nothing://"), "no store"),
        (("--rules", "/nowhere/rules.yaml"), "rules.yaml"),
    ],
)
def test_what_cannot_be(tmp_path: Path, flags: tuple[str, ...], problem: str) -> None:
    running = Running(tmp_path, RULES, *flags, wait=False)
    assert running.process.wait(60) == 2
    assert problem in running.log()
    assert "Traceback" not in running.log()
    assert running.process.stdout is not None
    running.process.stdout.close()
    running.stop()


def test_a_port_that_is_taken(tmp_path: Path) -> None:
    with serving(RULES) as first:
        running = Running(tmp_path, RULES, "--listen", first.where["http"], wait=False)
        assert running.process.wait(60) == 2
        assert "nobody can listen" in running.log()
        assert running.process.stdout is not None
        running.process.stdout.close()
        running.stop()
