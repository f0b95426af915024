"""What the tests of links share: small scripts, flows, and a sentinel."""

from __future__ import annotations

import hashlib
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from headgate.errors import StoreUnavailable
from headgate.stores.redis.link import Call, Command, Flow, prepared
from servers import Server, binary, free_port, until

LONG = 30.0
"""A budget for calls that are to succeed, however busy the machine is."""
HANG = 20.0
"""Seconds after which a call that had less than one is plainly not bounded."""


class Script(NamedTuple):
    """A script as links want it."""

    name: str
    text: str

    @property
    def sha(self) -> str:
        return hashlib.sha1(self.text.encode()).hexdigest()


INCR = Script("incr", "return redis.call('INCR', KEYS[1])")
EACH = Script("each", "local r = {} for i, k in ipairs(KEYS) do r[i] = redis.call('INCR', k) end "
              "return r")  # fmt: skip
ECHO = Script("echo", "return ARGV[1]")
incr = prepared(INCR, [])


def asking(*calls: Any) -> Flow[list[Any]]:
    """A flow of one step."""
    return (yield calls)


def counting(key: bytes, times: int) -> Flow[int]:
    """A flow of many steps."""
    last = 0
    for _ in range(times):
        [last] = yield [Call(INCR, [key])]
        if isinstance(last, Exception):
            raise last
    return last


def echo(text: bytes) -> Call:
    """A call whose reply tells whose it is."""
    return Call(ECHO, [b"any"], [text])


def merged(calls: Sequence[Any]) -> tuple[list[Any], Callable[[list[Any]], list[Any]]]:
    """Many EACH calls in one, and the replies given out."""

    def split(replies: list[Any]) -> list[Any]:
        [reply] = replies
        if isinstance(reply, Exception):
            return [reply] * len(calls)
        return [[one] for one in reply]

    return [Call(EACH, [call.keys[0] for call in calls])], split


def client_id() -> Command:
    """A command whose reply tells which connection it came by."""
    return Command((b"CLIENT", b"ID"))


def takes(call: Callable[[], Any]) -> tuple[Any, float]:
    """What a call returned or raised, and how long it took."""
    start = time.monotonic()
    try:
        result = call()
    except Exception as error:
        result = error
    return result, time.monotonic() - start


def eventually(call: Callable[[], Any], seconds: float = 60.0) -> Any:
    """What a call returns once the server is there."""
    end = time.monotonic() + seconds
    while True:
        try:
            return call()
        except StoreUnavailable:
            if time.monotonic() > end:
                raise
            time.sleep(0.005)


@contextmanager
def sentinel(master: Server, service: str = "mymaster") -> Iterator[int]:
    """A sentinel that watches a server; its port."""
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="headgate-sentinel-") as folder:
        settings = Path(folder) / "sentinel.conf"
        settings.write_text(
            f"port {port}\nbind 127.0.0.1\ndir {folder}\n"
            f"sentinel monitor {service} 127.0.0.1 {master.port} 1\n"
            f"sentinel down-after-milliseconds {service} 500\n"
            f"sentinel failover-timeout {service} 10000\n"
        )
        command = [binary("redis-server"), str(settings), "--sentinel"]
        running = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            import redis

            with redis.Redis(port=port, socket_timeout=1) as client:
                until(client.ping, 60, "the sentinel did not start")
            yield port
        finally:
            running.kill()
            running.wait()
