"""What the tests of the gateway share: real servers in threads, and bytes straight on a socket."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import uvicorn

from headgate.gateway import Gateway, Plan
from headgate.gateway.serving import server_of
from headgate.service.servers import bound
from headgate.service.settings import Listen

__all__ = [
    "Raw", "Running", "Upstream", "answering", "forever", "gateway", "head_of", "raw_upstream",
    "spoken", "until",
]  # fmt: skip


class Running:
    """A server on a port of its own, in a thread."""

    def __init__(self, server: uvicorn.Server) -> None:
        listener = bound(Listen("127.0.0.1", 0))
        self.port: int = listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.server = server
        self.thread = threading.Thread(
            target=lambda: asyncio.run(server.serve(sockets=[listener])), daemon=True
        )
        self.thread.start()
        until(lambda: server.started)

    def close(self) -> None:
        """Stop it."""
        self.server.should_exit = True
        self.thread.join(60)
        assert not self.thread.is_alive()


class Upstream(Running):
    """A server whose application may be changed between calls, and that remembers them."""

    def __init__(self) -> None:
        self.app: Any = answering()
        self.calls: list[dict[str, Any]] = []
        config = uvicorn.Config(
            self._call, http="h11", lifespan="off", proxy_headers=False, interface="asgi3",
            log_level="critical", log_config=None,
        )  # fmt: skip
        super().__init__(uvicorn.Server(config))

    async def _call(self, scope: Any, receive: Any, send: Any) -> None:
        self.calls.append(scope)
        await self.app(scope, receive, send)

    def last(self, name: str) -> list[str]:
        """The lines of a header in the last call."""
        pairs = self.calls[-1]["headers"]
        return [value.decode("latin-1") for key, value in pairs if key.decode() == name]


def answering(
    body: bytes = b"hello", status: int = 200, headers: tuple[tuple[bytes, bytes], ...] = ()
) -> Any:
    """An application with one answer, after it has read the request."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        while (await receive()).get("more_body"):
            pass
        await send({"type": "http.response.start", "status": status, "headers": [*headers]})
        await send({"type": "http.response.body", "body": body})

    return app


@contextlib.contextmanager
def gateway(
    plan: Plan | str, *limits: str, drain: float = 1.0, head: float = 10.0, **words: Any
) -> Iterator[Running]:
    """A gateway in front of an upstream."""
    running = Running(server_of(Gateway(plan, *limits, **words), drain=drain, head=head))
    try:
        yield running
    finally:
        running.close()


class Raw:
    """A connection on which bytes are written as they are."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=60)

    def send(self, data: bytes) -> None:
        """Send bytes."""
        self.socket.sendall(data)

    def some(self) -> bytes:
        """What comes next; b"" at the end."""
        try:
            return self.socket.recv(65536)
        except ConnectionResetError:
            return b""

    def until(self, mark: bytes) -> bytes:
        """All until a mark has been seen, or to the end."""
        found = b""
        while mark not in found and (more := self.some()):
            found += more
        return found

    def rest(self) -> bytes:
        """All until the other side closes."""
        found = b""
        while more := self.some():
            found += more
        return found

    def __enter__(self) -> Raw:
        return self

    def __exit__(self, *error: object) -> None:
        self.socket.close()


def spoken(port: int, *data: bytes) -> bytes:
    """The answer to bytes, until the other side closes."""
    with Raw(port) as raw:
        for part in data:
            raw.send(part)
        return raw.rest()


def head_of(answer: bytes) -> tuple[int, dict[str, str]]:
    """Status and headers of the first response in some bytes."""
    head = answer.partition(b"\r\n\r\n")[0].decode("latin-1").split("\r\n")
    pairs = (line.partition(": ") for line in head[1:])
    return int(head[0].split()[1]), {name.lower(): value for name, _, value in pairs}


@contextlib.contextmanager
def raw_upstream(answer: Callable[[socket.socket], None]) -> Iterator[int]:
    """A server that does what a function does with each of its connections."""
    listener = socket.create_server(("127.0.0.1", 0))

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection = listener.accept()[0]
                connection.settimeout(60)
                threading.Thread(target=handle, args=(connection,), daemon=True).start()

    def handle(connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            answer(connection)

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(60)


def until(condition: Callable[[], Any], seconds: float = 60.0) -> None:
    """Wait for something that is about to be."""
    tick = threading.Event()
    for _ in range(int(seconds / 0.005)):
        if condition():
            return
        tick.wait(0.005)
    raise AssertionError("it did not come to be")


async def forever(_scope: Any, receive: Any, _send: Any) -> None:
    """An application that never answers; it ends when its caller has left."""
    while (await receive())["type"] != "http.disconnect":
        pass
