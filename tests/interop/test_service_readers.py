"""Who reads an answer slowly gets all of it; who does not read it loses the connection."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from headgate.service.servers import bound, serve_with
from headgate.service.settings import Listen, Settings
from servers import until

SIZE = 24 << 20
PIECE = 1 << 20
TIMEOUT = 2.0


def app_of(*, pieces: bool) -> Any:
    """An application with one long answer, in pieces or at once."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        headers = [(b"content-length", str(SIZE).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        size = PIECE if pieces else SIZE
        for place in range(0, SIZE, size):
            more = place + size < SIZE
            await send({"type": "http.response.body", "body": bytes(size), "more_body": more})

    return app


@contextlib.contextmanager
def serving(app: Any) -> Iterator[tuple[socket.socket, Any]]:
    """A client that has asked such an application, and the server."""
    listener = bound(Listen("127.0.0.1", 0))
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 64 << 10)
    server = serve_with(app, Settings(rules=(), timeout=TIMEOUT, drain=1.0))
    thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[listener])))
    thread.start()
    try:
        with socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 10)
            client.settimeout(60)
            client.connect(listener.getsockname())
            client.sendall(b"GET / HTTP/1.1\r\nHost: shop\r\nConnection: close\r\n\r\n")
            yield client, server
    finally:
        server.should_exit = True
        thread.join(60)
        assert not thread.is_alive()


def read(client: socket.socket, most: int) -> int:
    """Read so many bytes, or to the end; how many there were."""
    found = 0
    with contextlib.suppress(ConnectionResetError):
        while found < most and (got := client.recv(min(65536, most - found))):
            found += len(got)
    return found


@pytest.mark.parametrize("pieces", [True, False])
def test_a_long_answer_that_is_read_slowly(pieces: bool) -> None:
    with serving(app_of(pieces=pieces)) as (client, _):
        found, began = 0, time.monotonic()
        while time.monotonic() - began < 2 * TIMEOUT:
            found += read(client, 256 << 10)
            time.sleep(0.05)  # what the buffer holds never runs out meanwhile
        assert found < SIZE
        assert found + read(client, SIZE) > SIZE  # all of it, and a head


def test_a_long_answer_that_is_not_read() -> None:
    with serving(app_of(pieces=True)) as (client, server):
        until(lambda: server.server_state.connections)
        until(lambda: not server.server_state.connections)
        assert read(client, SIZE) < SIZE
