"""What the tests of the service share: the service in processes of its own, and a client."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from servers import until

__all__ = ["Answer", "Client", "Running", "serving", "until"]

JSON = {"content-type": "application/json"}


class Answer(NamedTuple):
    """A response."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Client:
    """One kept connection."""

    def __init__(self, where: str) -> None:
        host, _, port = where.rpartition(":")
        self.connection = http.client.HTTPConnection(host, int(port), timeout=60)

    def send(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        """A request; a body that is not bytes is sent as JSON."""
        told = {name.replace("_", "-"): value for name, value in headers.items()}
        if body is not None:
            told = {**JSON, **told}
            if not isinstance(body, bytes):
                body = json.dumps(body).encode()
        self.connection.request(method, path, body, told)
        answer = self.connection.getresponse()
        pairs = {name.lower(): value for name, value in answer.getheaders()}
        return Answer(answer.status, pairs, answer.read())

    def post(self, path: str, body: Any, **headers: str) -> Answer:
        return self.send("POST", path, body, **headers)

    def get(self, path: str, **headers: str) -> Answer:
        return self.send("GET", path, **headers)

    def close(self) -> None:
        self.connection.close()


class Running:
    """`headgate serve` under way."""

    def __init__(self, folder: Path, rules: str, *flags: str, wait: bool = True) -> None:
        self.folder = folder
        self.rules = folder / "rules.yaml"
        self.rules.write_text(rules)
        zone = f"zone://{folder}/zone?size=4MiB&patience=30"
        store = () if "--store" in flags else ("--store", zone)
        self._log = (folder / "log").open("w+")
        self.process = subprocess.Popen(
            [
                sys.executable, "-m", "headgate", "serve", "--rules", str(self.rules),
                "--listen", "127.0.0.1:0", "--grpc", "off", "--admin", "127.0.0.1:0",
                "--log", "json", *store, *flags,
            ],
            stdout=subprocess.PIPE, stderr=self._log, text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )  # fmt: skip
        self.said: list[str] = []
        self.where: dict[str, str] = {}
        self._drain = threading.Thread(target=self._read_on, daemon=True)
        if wait:
            self._listen()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.said.append(line.rstrip())
            name, _, place = line.strip().partition(" ")
            if name in ("http", "admin", "grpc") and line.startswith("  "):
                self.where[name] = place.strip().partition("://")[2] or place.strip()
            if len(self.said) > 2 and self.said[-2].startswith("  curl") and not line.strip():
                break
        else:
            raise AssertionError(f"it ended: {self.log()}")
        self._drain.start()

    def _read_on(self) -> None:
        assert self.process.stdout is not None
        self.process.stdout.read()

    def client(self, name: str = "http") -> Client:
        """A client of one of the listeners."""
        return Client(self.where[name])

    def raw(self, name: str = "http") -> socket.socket:
        """A bare connection."""
        host, _, port = self.where[name].rpartition(":")
        return socket.create_connection((host, int(port)), timeout=60)

    def log(self) -> str:
        self._log.flush()
        return (self.folder / "log").read_text()

    def lines(self) -> list[dict[str, Any]]:
        """What it has logged."""
        return [json.loads(line) for line in self.log().splitlines() if line.startswith("{")]

    def status(self) -> dict[str, Any]:
        client = self.client("admin")
        with contextlib.closing(client):
            found: dict[str, Any] = client.get("/status").json
            return found

    def stop(self, seconds: float = 60.0) -> int:
        """End it in order."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(seconds)
        finally:
            if self.process.poll() is None:
                self.process.kill()
                self.process.wait()
            self._log.close()
            if self._drain.ident is not None:
                self._drain.join(5)
            if self.process.stdout is not None and not self._drain.is_alive():
                self.process.stdout.close()  # whoever still writes to it holds the thread


@contextlib.contextmanager
def serving(rules: str, *flags: str) -> Iterator[Running]:
    """The service, until the block ends."""
    with tempfile.TemporaryDirectory(prefix="headgate-test-") as folder:
        running = Running(Path(folder), rules, *flags)
        try:
            yield running
        finally:
            running.stop()


def eventually(true: Any, seconds: float = 60.0) -> Any:
    """Wait until something is true."""
    end = time.monotonic() + seconds
    while True:
        found = true()
        if found:
            return found
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)
