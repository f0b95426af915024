"""One limit for all workers of a real gunicorn, and forks in the middle of decisions."""

from __future__ import annotations

import http.client
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from .support import environment, run_helper

REQUESTS, LIMIT, HOUR = 300, 100, 3600


class LocalConnection(http.client.HTTPConnection):
    """HTTP over a socket in the file system: no port can be taken."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=60)
        self.path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self.path))


def request(path: Path) -> int:
    """The status of one request."""
    connection = LocalConnection(path)
    try:
        connection.request("GET", "/")
        return connection.getresponse().status
    finally:
        connection.close()


@contextmanager
def gunicorn(store: str, *options: str) -> Iterator[tuple[Path, Path]]:
    """A server of four workers: its socket and its log."""
    folder = Path(tempfile.mkdtemp(prefix="gate"))
    place, log = folder / "socket", folder / "log"
    command = [
        sys.executable, "-m", "gunicorn", "--workers", "4", "--bind", f"unix:{place}",
        "--worker-tmp-dir", str(folder), *options, "fault.support_app:app",
    ]  # fmt: skip
    # Whatever else it may leave behind goes with the folder.
    own = {"STORE": store, "HOME": str(folder), "XDG_RUNTIME_DIR": str(folder)}
    with log.open("w") as output:
        server = subprocess.Popen(
            command, env=environment() | own, cwd=folder, stdout=output, stderr=output
        )
    try:
        deadline = time.monotonic() + 60
        while log.read_text().count("Booting worker") < 4:
            assert server.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.02)
        yield place, log
    finally:
        server.send_signal(signal.SIGTERM)
        try:
            server.wait(60)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()
        shutil.rmtree(folder, ignore_errors=True)


def admitted(store: str, *options: str) -> Counter[int]:
    """The statuses of all requests, which came over several connections at a time."""
    with gunicorn(store, *options) as (place, log), ThreadPoolExecutor(6) as clients:
        statuses, deadline = Counter[int](), time.monotonic() + 60
        while len(set(re.findall(r"served by (\d+)", log.read_text()))) < 2:
            assert time.monotonic() < deadline, "one worker served them all"
            statuses += Counter(clients.map(request, [place] * REQUESTS))
    return statuses


@pytest.mark.parametrize("way", ["preload", "each", "anonymous"])
def test_gunicorn(way: str, tmp_path: Path) -> None:
    options = () if way == "each" else ("--preload",)
    for attempt in range(2):
        store = "zone://" if way == "anonymous" else f"zone://{tmp_path}/{attempt}.zone"
        begin = time.time() // HOUR
        statuses = admitted(f"{store}?size=1MiB", *options)
        if time.time() // HOUR == begin:  # else a new hour began, with a hundred of its own
            break
    assert statuses == {200: LIMIT, 429: statuses.total() - LIMIT}


@pytest.mark.parametrize("way", ["file", "anonymous"])
def test_fork_while_a_thread_decides(way: str, tmp_path: Path) -> None:
    store = "zone://" if way == "anonymous" else f"zone://{tmp_path}/forks.zone"
    worst = float(run_helper("support_forks", f"{store}?size=1MiB&patience=100", 100))
    assert worst < 30, worst
