"""What the tests of outgoing calls share: a provider over real HTTP, and a clock that walks."""

from __future__ import annotations

import gzip
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from headgate import ManualClock

__all__ = ["START", "USAGE", "Provider", "eventually", "walking"]

START = 1_000_000.0
USAGE = {"text": "answer " * 40, "usage": {"total_tokens": 7}}


class Provider:
    """Somebody who offers an API, and counts who calls.

    /ok /empty /usage /gzip /away     what their names say; /away leads to /ok
    /say/429?Retry-After=5            a response with this status and these headers
    /slow                             a body whose second half waits for `go`
    /broken                           a body that breaks off
    """

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.go = threading.Event()
        self.inside = self.most = 0
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def entered(self, path: str) -> None:
        with self._lock:
            self.calls.append(path)
            self.inside += 1
            self.most = max(self.most, self.inside)

    def left(self) -> None:
        with self._lock:
            self.inside -= 1

    def close(self) -> None:
        self.go.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> Provider:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _handler(provider: Provider) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            length = int(self.headers.get("Content-Length", 0))
            self.rfile.read(length)
            url = urlsplit(self.path)
            provider.entered(url.path)
            try:
                self._answer(url.path, dict(parse_qsl(url.query)))
            except OSError:  # the client has left
                self.close_connection = True
            finally:
                provider.left()

        do_POST = do_HEAD = do_GET  # noqa: N815 # their names

        def _answer(self, path: str, words: dict[str, str]) -> None:
            if path.startswith("/say/"):
                self._send(int(path.removeprefix("/say/")), words, b"said")
            elif path == "/empty":
                self._send(204, {}, None)
            elif path == "/away":
                self._send(302, {"Location": "/ok"}, b"")
            elif path == "/usage":
                self._send(200, {}, json.dumps(USAGE).encode())
            elif path == "/gzip":
                packed = gzip.compress(json.dumps(USAGE).encode())
                self._send(200, {"Content-Encoding": "gzip"}, packed)
            elif path == "/slow":
                self._send(200, {"Transfer-Encoding": "chunked"}, None)
                self.wfile.write(b"5\r\nfirst\r\n")
                provider.go.wait(60)
                self.wfile.write(b"6\r\nsecond\r\n0\r\n\r\n")
            elif path == "/broken":
                self._send(200, {"Content-Length": "100"}, None)
                self.wfile.write(b"not a hundred")
                self.close_connection = True
            else:
                self._send(200, {}, b"ok")

        def _send(self, status: int, words: dict[str, str], body: bytes | None) -> None:
            self.send_response(status)
            for name, value in words.items():
                self.send_header(name, value)
            if body is not None:
                self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if body is not None and self.command != "HEAD":
                self.wfile.write(body)

        def log_message(self, *words: Any) -> None:
            pass

    return Handler


@contextmanager
def walking(clock: ManualClock) -> Iterator[None]:
    """Let time pass as soon as somebody waits for it."""
    over = threading.Event()

    def walk() -> None:
        while not over.wait(0.002):
            wakeup = clock.next_wakeup()
            if wakeup is not None:
                clock.advance(max(0.0, wakeup - clock.now()))

    walker = threading.Thread(target=walk)
    walker.start()
    try:
        yield
    finally:
        over.set()
        walker.join()


def eventually(true: Callable[[], Any], what: str = "it did not happen") -> None:
    """Wait for what another thread does."""
    end = time.monotonic() + 60
    while not true():
        assert time.monotonic() < end, what
        time.sleep(0.002)
