"""One dependency of several hangs, as a real server: it takes connections and never answers."""

from __future__ import annotations

import asyncio
import http.client
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from headgate.resilience import AdaptiveLimiter, Breaker, Bulkhead, Policy, Pool, SystemGuard

GOOD = ("stock", "prices")
PAGES = 10
CUSTOMERS = 4


class Well(BaseHTTPRequestHandler):
    """A service that is well."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "4")
        self.end_headers()
        self.wfile.write(b"fine")

    def log_message(self, *_: object) -> None:
        return


@contextmanager
def services() -> Iterator[dict[str, int]]:
    """The ports of two services that are well and of one that hangs."""
    servers = [ThreadingHTTPServer(("127.0.0.1", 0), Well) for _ in GOOD]
    for server in servers:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    with socket.create_server(("127.0.0.1", 0), backlog=100) as hanging:
        ports = {name: server.server_address[1] for name, server in zip(GOOD, servers, strict=True)}
        try:
            yield {**ports, "reviews": hanging.getsockname()[1]}
        finally:
            for server in servers:
                server.shutdown()
                server.server_close()


def fetch(port: int) -> str:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    try:
        connection.request("GET", "/")
        return connection.getresponse().read().decode()
    finally:
        connection.close()


async def fetch_soon(port: int) -> str:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(b"GET / HTTP/1.1\r\nHost: shop\r\nConnection: close\r\n\r\n")
        await writer.drain()
        return (await reader.read()).rpartition(b"\r\n")[2].decode()
    finally:
        writer.close()


def test_threads() -> None:
    """A page asks all three, and no page waits longer than the limit of the one that hangs."""
    came: dict[str, list[str]] = {name: [] for name in (*GOOD, "reviews")}
    with services() as ports:
        pools = {name: Pool(CUSTOMERS, name=name) for name in ports}
        policies = {
            name: Policy(
                name, bulkhead=pools[name], time_limit=0.1 if name == "reviews" else 30,
                breaker=Breaker(name, window=10, minimum=3, wait=60), fallback="instead",
            )
            for name in ports
        }  # fmt: skip

        def customer() -> None:
            for _ in range(PAGES):
                for name, port in ports.items():
                    came[name].append(policies[name].call(fetch, port))

        threads = [threading.Thread(target=customer, daemon=True) for _ in range(CUSTOMERS)]
        start = time.monotonic()
        for each in threads:
            each.start()
        for each in threads:
            each.join(60)
        took = time.monotonic() - start
        assert pools["reviews"].abandoned <= CUSTOMERS
        assert all(pools[name].abandoned == 0 for name in GOOD)
        for pool in pools.values():
            pool.close()
    for name in GOOD:
        assert came[name] == ["fine"] * (PAGES * CUSTOMERS)
    assert came["reviews"] == ["instead"] * (PAGES * CUSTOMERS)
    assert took < 60  # a page that waits for it once would take 120 s


@pytest.mark.parametrize("guarded", ["bulkhead", "adaptive", "system"])
def test_tasks(guarded: str) -> None:
    """On one loop: calls to the others go on while those to the one that hangs are under way."""

    async def main() -> None:
        with services() as ports:
            bulkheads = {name: Bulkhead(4) for name in ports}
            policies = {
                name: Policy(name, bulkhead=bulkheads[name], time_limit=30, fallback="instead")
                for name in ports
            }
            around: Any = {
                "bulkhead": Bulkhead(50),
                "adaptive": AdaptiveLimiter(),
                "system": SystemGuard(in_flight=50),
            }[guarded]
            hanging = [
                asyncio.create_task(policies["reviews"].call_async(fetch_soon, ports["reviews"]))
                for _ in range(20)
            ]
            for _ in range(PAGES):
                async with around:
                    for name in GOOD:
                        assert await policies[name].call_async(fetch_soon, ports[name]) == "fine"
            assert sum(task.done() for task in hanging) == 16  # those were refused at once
            for task in hanging:
                task.cancel()
            came = await asyncio.gather(*hanging, return_exceptions=True)
            assert came.count("instead") == 16
            assert all(bulkhead.in_flight == 0 for bulkhead in bulkheads.values())

    asyncio.run(main())
