"""A small service for the tests of clients: stores behind `/v1/decide`, in a thread or a process.

Run as `python client_tools.py PORT [TOKEN]` it serves a store in memory until it is killed.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import uvicorn

from headgate.clock import Clock
from headgate.errors import StoreError
from headgate.stores import MemoryStore
from headgate.stores.client.codec import (
    decode_asks,
    decode_change,
    encode_decisions,
    encode_own,
)
from servers import Killable, free_port

__all__ = ["Decider", "Process", "Service", "asked"]

Answer = tuple[int, bytes]


async def asked(receive: Any) -> bytes:
    """The whole body of a request."""
    body = b""
    while True:
        message = await receive()
        part: bytes = message.get("body", b"")
        body += part
        if not message.get("more_body"):
            return body


class Decider:
    """An ASGI application: the first part of the path names a store, "" the first one."""

    def __init__(self, token: str = "", largest: int = 1 << 16) -> None:
        self.stores: dict[str, Any] = {"": MemoryStore()}
        self.apps: dict[str, Any] = {}
        """Whole applications, by the first part of the path."""
        self.token = token
        self.largest = largest
        self.bodies: list[int] = []
        """How many groups each request had."""
        self.before: Callable[[str], Any] | None = None
        """Called before a request is answered; what it returns is the answer, or awaited."""

    def add(self, clock: Clock | None = None, store: Any = None) -> str:
        """A new store; the path it is under."""
        name = f"s{len(self.stores)}"
        self.stores[name] = store or MemoryStore(clock=clock)
        return name

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        name, _, rest = scope["path"][1:].partition("/")
        if name in self.apps:
            await self.apps[name]({**scope, "path": f"/{rest}"}, receive, send)
            return
        body = await asked(receive)
        status, found = await self._answer(scope, body)
        kind = b"application/json" if status < 400 else b"application/problem+json"
        headers = [(b"content-type", kind), (b"content-length", b"%d" % len(found))]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": found})

    async def _answer(self, scope: Any, body: bytes) -> Answer:
        path = scope["path"]
        if self.before is not None:
            instead = self.before(path)
            if asyncio.iscoroutine(instead):
                instead = await instead
            if instead is not None:
                return instead  # type: ignore[no-any-return] # a test knows what it returns
        sent = dict(scope["headers"]).get(b"authorization", b"").decode()
        if self.token and sent != f"Bearer {self.token}":
            return 401, problem("the token is not the right one")
        if len(body) > self.largest:
            return 413, problem("too large")
        name, _, verb = path.strip("/").rpartition("v1/")
        store = self.stores.get(name.strip("/"))
        if store is None:
            return 404, problem("no such store")
        try:
            return 200, self._decide(store, verb, body)
        except (ValueError, StoreError) as error:
            return 422, problem(str(error))

    def _decide(self, store: Any, verb: str, body: bytes) -> bytes:
        if verb == "decide":
            groups = decode_asks(body)
            self.bodies.append(len(groups))
            return encode_decisions(groups, store.decide_many(groups))
        if verb == "assign":
            store.assign(*decode_change(body))
            return b"{}"
        space, limit_id, key, _ = decode_change(body)
        return encode_own(store.assigned(space, limit_id, key))


def problem(detail: str) -> bytes:
    """Problem details."""
    return json.dumps({"title": "error", "detail": detail}).encode()


class Service:
    """An application on a port of its own, in a thread."""

    def __init__(self, app: Any = None, **options: Any) -> None:
        self.app = app or Decider()
        config = uvicorn.Config(
            self.app, host="127.0.0.1", port=0, log_level="critical", lifespan="off",
            interface="asgi3", **options,
        )  # fmt: skip
        self.server = uvicorn.Server(config)
        self.thread = threading.Thread(target=self.server.run, daemon=True)
        self.thread.start()
        while not self.server.started:
            assert self.thread.is_alive()
            self.thread.join(0.005)
        sockets = self.server.servers[0].sockets
        self.port: int = 0 if "uds" in options else sockets[0].getsockname()[1]

    @property
    def url(self) -> str:
        return f"headgate://127.0.0.1:{self.port}"

    def close(self) -> None:
        self.server.should_exit = True
        self.server.force_exit = True  # kept connections are no reason to wait
        self.thread.join(60)
        assert not self.thread.is_alive()

    def __enter__(self) -> Service:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class Process(Killable):
    """The same in a process, to be killed or stopped; it begins with an empty store each time."""

    def __init__(self) -> None:
        self.port = free_port()
        self.start()

    @property
    def url(self) -> str:
        return f"headgate://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it and wait until it answers."""
        command = [sys.executable, __file__, str(self.port)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == b"ready\n"

    def kill(self) -> None:
        """As kill -9 does."""
        super().kill()
        assert self.process is not None
        assert self.process.stdout is not None
        self.process.stdout.close()

    def close(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.go_on()
            self.kill()

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def main(port: str) -> None:
    """Serve until killed."""
    config = uvicorn.Config(
        Decider(), host="127.0.0.1", port=int(port), log_level="critical", lifespan="off",
        interface="asgi3",
    )  # fmt: skip
    server = uvicorn.Server(config)

    async def serve() -> None:
        task = asyncio.create_task(server.serve())
        while not server.started:
            await asyncio.sleep(0.005)
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        await task

    asyncio.run(serve())


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1] / "src"))
    main(*sys.argv[1:])
