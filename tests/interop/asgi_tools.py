"""What the tests of the ASGI adapters share: a real server in a thread, and calls without one."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Coroutine, Iterator
from typing import Any

import httpx
import uvicorn

from headgate import ManualClock

__all__ = [
    "BROWSER",
    "ONE",
    "START",
    "Served",
    "called",
    "clock",
    "codes",
    "hello",
    "http_scope",
    "rules_text",
    "ws_scope",
]

START = 1_000_000.0
BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
ONE = '{"name": "one", "limit": "1 concurrent"}'


def clock() -> ManualClock:
    """A clock that stands still."""
    return ManualClock(START)


def rules_text(*rules: str, defaults: str = "") -> str:
    """A rules file in JSON, from its rules."""
    head = f'"defaults": {defaults}, ' if defaults else ""
    return f'{{"version": 1, {head}"rules": [{", ".join(rules)}]}}'


class Served:
    """A server on a port of its own, whose application may be changed between calls."""

    def __init__(self) -> None:
        self.app: Any = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self.server = uvicorn.Server(
            uvicorn.Config(
                self._call, host="127.0.0.1", port=0, log_level="critical", lifespan="off",
                proxy_headers=False, interface="asgi3",
            )
        )  # fmt: skip
        self.thread = threading.Thread(target=self.server.run, daemon=True)
        self.thread.start()
        while not self.server.started:
            assert self.thread.is_alive()
            self.thread.join(0.005)
        self.port: int = self.server.servers[0].sockets[0].getsockname()[1]

    async def _call(self, scope: Any, receive: Any, send: Any) -> None:
        self._loop = asyncio.get_running_loop()
        await self.app(scope, receive, send)

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Do something in the server's event loop."""
        assert self._loop is not None  # after a call
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60)

    @contextlib.contextmanager
    def client(self, app: Any, **options: Any) -> Iterator[httpx.Client]:
        """A client of an application."""
        self.app = app
        with httpx.Client(base_url=f"http://127.0.0.1:{self.port}", timeout=60, **options) as made:
            yield made

    def close(self) -> None:
        """Stop it."""
        self.server.should_exit = True
        self.thread.join(60)
        assert not self.thread.is_alive()


def http_scope(path: str = "/", **more: Any) -> dict[str, Any]:
    """A scope as a server makes it."""
    headers = [(b"host", b"Shop.Example:8000")]
    peer = ("192.0.2.7", 4711)
    return {
        "type": "http",
        "method": "GET",
        "path": path,
        "headers": headers,
        "client": peer,
    } | more


def ws_scope(path: str = "/", **more: Any) -> dict[str, Any]:
    """A scope of a websocket."""
    scope = http_scope(path, **more) | {"type": "websocket", "subprotocols": []}
    del scope["method"]
    return scope


def called(app: Any, scope: dict[str, Any], *received: dict[str, Any]) -> list[dict[str, Any]]:
    """What an application sends when it is called without a server."""
    sent: list[dict[str, Any]] = []
    left = list(received)

    async def receive() -> dict[str, Any]:
        return left.pop(0) if left else {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    asyncio.run(app(scope, receive, send))
    return sent


async def hello(scope: Any, receive: Any, send: Any) -> None:
    """An application that says hello."""
    headers = [(b"content-type", b"text/plain"), (b"x-own", b"1")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"hello"})


def codes(client: Any, path: str, count: int, **more: Any) -> list[int]:
    """What a path answers, asked so often."""
    return [client.get(path, **more).status_code for _ in range(count)]
