"""Links over TLS, through a proxy that adds it: not every server is built with TLS."""

from __future__ import annotations

import asyncio
import shutil
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from link_tools import HANG, LONG, counting, echo, eventually, incr, takes

from headgate.errors import StoreError, StoreUnavailable
from headgate.stores.redis.link import AsyncLink, SyncLink, read_address
from servers import Server

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl here")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("tls")
    make = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    make += ["-keyout", str(made / "key"), "-out", str(made / "certificate")]
    make += ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    subprocess.run(make, check=True, capture_output=True)
    return made


@pytest.fixture(scope="module")
def behind() -> Iterator[Server]:
    with Server() as running:
        yield running


@pytest.fixture(scope="module")
def port(behind: Server, folder: Path) -> Iterator[int]:
    """The port of a proxy that speaks TLS in front of a server."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "certificate", folder / "key")
    listener = socket.create_server(("127.0.0.1", 0))
    loop = asyncio.new_event_loop()

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        finally:
            writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner, outer = await asyncio.open_connection("127.0.0.1", behind.port)
        await asyncio.gather(pump(reader, outer), pump(inner, writer))

    async def main() -> asyncio.Server:
        return await asyncio.start_server(serve, sock=listener, ssl=context)

    async def end() -> None:
        proxy.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    proxy = loop.run_until_complete(main())
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    yield listener.getsockname()[1]
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.run_until_complete(end())
    loop.close()


def test_both_links(port: int, folder: Path) -> None:
    address = f"rediss://localhost:{port}?ssl_ca_certs={folder / 'certificate'}"
    link = SyncLink(read_address(address)[0], budget=LONG)
    assert link.run(counting(b"a", 3)) == 3
    assert link.one(incr(b"a")) == 4
    text = b"x" * 1_000_000
    assert link.ask([echo(text), echo(b"small")]) == [text, b"small"]
    time.sleep(0.3)  # idle for longer than a connection is trusted unseen
    assert link.one(incr(b"a")) == 5
    link.close()

    async def work() -> None:
        other = AsyncLink(read_address(address)[0], budget=LONG)
        assert await other.run(counting(b"a", 3)) == 8
        assert await other.ask([echo(text), echo(b"small")]) == [text, b"small"]

    asyncio.run(work())


def test_silent_server(port: int, folder: Path, behind: Server) -> None:
    address = f"rediss://localhost:{port}?ssl_ca_certs={folder / 'certificate'}&connect_timeout=5"
    link = SyncLink(read_address(address)[0], budget=1.0, connect_timeout=LONG)
    eventually(lambda: link.one(incr(b"b")))
    behind.stop()
    error, seconds = takes(lambda: link.one(incr(b"b")))
    behind.go_on()
    link.close()
    assert isinstance(error, StoreUnavailable)
    assert error.sent
    assert seconds < HANG


def test_strangers_are_refused(port: int) -> None:
    link = SyncLink(read_address(f"rediss://localhost:{port}")[0], connect_timeout=LONG)
    with pytest.raises(StoreError, match="certificate"):
        link.one(incr(b"a"))
    link.close()
