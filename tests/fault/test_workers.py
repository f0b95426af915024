"""Real servers with several workers: each counts apart, and says so; one worker says nothing."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import headgate

SOURCE = Path(headgate.__file__).parents[1]
APPLICATION = """
import sys
from headgate import Limiter

limiter = Limiter("100/minute")  # made here
print("application loaded", file=sys.stderr, flush=True)

def wsgi(environ, start_response):
    remaining = limiter.hit("k").remaining  # used here
    start_response("200 OK", [("Content-Length", "2")])
    return [b"%02d" % remaining]

async def asgi(scope, receive, send):
    if scope["type"] == "http":
        remaining = limiter.hit("k").remaining  # used here
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"%02d" % remaining})
"""
pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="the servers need fork")


class Server:
    """A server that runs, what it says, and the socket it answers on."""

    def __init__(self, path: Path) -> None:
        self.log = path / "log"
        self.socket = path / "s"

    def lines(self, mark: str) -> list[str]:
        """The lines that hold a mark."""
        return [line for line in self.log.read_text().splitlines() if mark in line]

    def wait_for(self, mark: str, count: int) -> None:
        """Wait until so many lines hold a mark."""
        deadline = time.monotonic() + 60
        while len(self.lines(mark)) < count:
            assert time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.02)

    def ask(self) -> str:
        """What the application answers, once somebody listens."""
        deadline = time.monotonic() + 60
        while True:
            try:
                with socket.socket(socket.AF_UNIX) as connection:
                    connection.settimeout(60)
                    connection.connect(str(self.socket))
                    connection.sendall(b"GET / HTTP/1.0\r\nHost: here\r\n\r\n")
                    with connection.makefile("rb") as file:
                        return file.read().decode()[-2:]
            except OSError:
                assert time.monotonic() < deadline, self.log.read_text()
                time.sleep(0.02)


@contextlib.contextmanager
def running(path: Path, *command: str, **env: str) -> Iterator[Server]:
    """A server in the folder of its application."""
    (path / "application.py").write_text(APPLICATION)
    server = Server(path)
    environ = {key: value for key, value in os.environ.items() if key != "XDG_RUNTIME_DIR"}
    environ |= {"PYTHONPATH": str(SOURCE), "PYTHONWARNINGS": "", "HOME": str(path), **env}
    with server.log.open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", *command], cwd=path, env=environ, stdout=log, stderr=log,
            start_new_session=True,
        )  # fmt: skip
    try:
        yield server
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def gunicorn(path: Path, *options: str) -> contextlib.AbstractContextManager[Server]:
    return running(path, "gunicorn", "--bind", f"unix:{path / 's'}", *options, "application:wsgi")


def uvicorn(path: Path, *options: str, **env: str) -> contextlib.AbstractContextManager[Server]:
    flags = ("--uds", str(path / "s"), "--http", "h11")  # whose answers `ask` can read
    return running(path, "uvicorn", *flags, *options, "application:asgi", **env)


def line_of(mark: str) -> str:
    number = next(n for n, line in enumerate(APPLICATION.splitlines(), 1) if mark in line)
    return f"application.py:{number}: SeveralWorkersWarning: headgate "


def test_each_gunicorn_worker_warns(tmp_path: Path) -> None:
    with gunicorn(tmp_path, "--workers", "2") as server:
        server.wait_for("application loaded", 2)
        warned = server.lines("SeveralWorkersWarning")
    assert len(warned) == 2
    for line in warned:
        assert line_of("# made here") in line
        assert "this process is one of 2 gunicorn workers" in line
        assert "'100/minute' admits up to 200 in all" in line
        assert 'store="zone:///' in line


@pytest.mark.parametrize("kind", [("sync",), ("gthread", "--threads", "2")], ids=lambda x: x[0])
def test_gunicorn_with_preload_warns_at_the_first_use(tmp_path: Path, kind: tuple[str]) -> None:
    with gunicorn(tmp_path, "--workers", "2", "--preload", "--worker-class", *kind) as server:
        assert server.ask() == "99"
        for _ in range(10):
            server.ask()
        warned = server.lines("SeveralWorkersWarning")
        assert len(server.lines("application loaded")) == 1
    assert len(warned) == 1  # once, for all that come from one fork
    assert line_of("# used here") in warned[0]
    assert "this process is one of 2 gunicorn workers" in warned[0]


@pytest.mark.parametrize("options", [(), ("--preload",)], ids=str)
def test_one_gunicorn_worker_is_left_in_peace(tmp_path: Path, options: tuple[str, ...]) -> None:
    with gunicorn(tmp_path, "--workers", "1", *options) as server:
        assert server.ask() == "99"
        assert server.ask() == "98"
        assert server.lines("SeveralWorkersWarning") == []


def test_one_gunicorn_worker_after_another_is_left_in_peace(tmp_path: Path) -> None:
    with gunicorn(tmp_path, "--workers", "1", "--preload", "--max-requests", "1") as server:
        for _ in range(3):
            assert server.ask() == "99"
        assert server.lines("SeveralWorkersWarning") == []


@pytest.mark.parametrize("told", [("--workers", "2"), ()], ids=["option", "WEB_CONCURRENCY"])
def test_each_uvicorn_worker_warns(tmp_path: Path, told: tuple[str, ...]) -> None:
    with uvicorn(tmp_path, *told, **({} if told else {"WEB_CONCURRENCY": "2"})) as server:
        server.wait_for("application loaded", 2)
        warned = server.lines("SeveralWorkersWarning")
    assert len(warned) == 2
    for line in warned:
        assert line_of("# made here") in line
        assert "this process is one of 2 uvicorn workers" in line


@pytest.mark.parametrize("options", [("--workers", "1"), ("--reload",)], ids=str)
def test_one_uvicorn_worker_is_left_in_peace(tmp_path: Path, options: tuple[str, ...]) -> None:
    with uvicorn(tmp_path, *options) as server:
        assert server.ask() == "99"
        assert server.lines("SeveralWorkersWarning") == []
