"""A store behind headgate://: addresses, tokens, TLS, and a service that does not answer."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from client_store_tools import EVER, LONG, url

from client_tools import Decider, Service
from headgate import AsyncLimiter, Limit, Limiter, StoreError
from headgate.decision import Ask
from headgate.stores import open_store
from headgate.stores.client.address import Options, read_address
from servers import free_port


@pytest.fixture
def service() -> Iterator[Service]:
    with Service() as started:
        yield started


# -- the service is not what it should be


@pytest.mark.parametrize("on_error", ["allow", "deny", "local"])
def test_nobody_listens(on_error: str) -> None:
    address = f"headgate://127.0.0.1:{free_port()}?on_error={on_error}"
    with Limiter(f"2/hour {EVER}", store=address) as limiter:
        found = [limiter.hit("k") for _ in range(3)]
        assert all(one.degraded for one in found)
        expected = {"allow": [True] * 3, "deny": [False] * 3, "local": [True, True, False]}
        assert [bool(one) for one in found] == expected[on_error]

    async def work() -> None:
        async with AsyncLimiter(f"2/hour {EVER}", store=address) as limiter:
            assert (await limiter.hit("k")).degraded

    asyncio.run(work())


@pytest.mark.parametrize(
    ("status", "body"),
    [(200, b"<html>hello</html>"), (200, b'{"groups": [[]]}'), (404, b""), (500, b""), (503, b"")],
)
def test_answers_of_somebody_else(status: int, body: bytes, service: Service) -> None:
    with Limiter(f"2/hour {EVER}", store=url(service)) as limiter:
        assert not limiter.hit("k").degraded
        service.app.before = lambda path: (status, body)
        assert limiter.hit("k").degraded


def test_a_token_is_wanted(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    with Service(Decider(token="s3cret")) as service:
        with Limiter("5/minute", store=url(service, "token=s3cret")) as limiter:
            assert not limiter.hit("k").degraded
            assert "s3cret" not in repr(limiter.store)
        (tmp_path / "token").write_text("s3cret\n")
        with Limiter("5/minute", store=url(service, f"token_file={tmp_path}/token")) as limiter:
            assert not limiter.hit("k").degraded
        with Limiter("5/minute", store=url(service, "token=wrong")) as limiter:
            assert all(limiter.hit("k").degraded for _ in range(5))
        (tmp_path / "token").unlink()
        with Limiter("5/minute", store=url(service, f"token_file={tmp_path}/token")) as limiter:
            assert limiter.hit("k").degraded


def test_an_answer_that_trickles_in_ends_with_the_budget() -> None:
    """Each byte comes in time, and the answer does not."""
    import socket

    listener = socket.create_server(("127.0.0.1", 0))
    listener.settimeout(60)
    ended = threading.Event()

    def serve() -> None:
        taken, _ = listener.accept()
        with taken:
            greeting = b'{"groups":[]}'
            taken.recv(65536)
            head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n"
            taken.sendall(head % len(greeting) + greeting)
            taken.recv(65536)
            for byte in head * 150:
                try:
                    taken.sendall(bytes([byte]))
                except OSError:
                    return
                if ended.wait(0.01):
                    return

    thread = threading.Thread(target=serve)
    thread.start()
    store = open_store(f"headgate://127.0.0.1:{listener.getsockname()[1]}?budget=100ms")
    begin = time.monotonic()
    [decision] = store.decide([Ask("take", Limit.parse("5/minute"), "k")])
    took = time.monotonic() - begin
    ended.set()
    thread.join()
    listener.close()
    store.close()
    assert decision.degraded
    assert took < 20  # and not the minute that all of it takes


# -- addresses


def test_places() -> None:
    assert str(read_address("headgate://limits.example")[0]) == "headgate://limits.example:8080"
    place, options = read_address("headgates://[::1]:99/deep/?token=a%26b&budget=0.5&nodes=3")
    assert place == ("::1", 99, True, "", "/deep")
    assert options == Options(token="a&b", budget=0.5, nodes=3)
    assert read_address("headgate://h?tls=yes")[0].tls
    assert read_address("headgate+unix:///run/x%20y.sock")[0].socket == "/run/x y.sock"


@pytest.mark.parametrize(
    ("address", "problem"),
    [
        ("headgate://", "a host is written as"),
        ("headgate://h:0", "a host is written as"),
        ("headgate://h:99999", "a host is written as"),
        ("headgate://a:b@h", "there is no login"),
        ("headgate://h?what=1", "no option 'what'"),
        ("headgate://h?budget=x", "budget"),
        ("headgate://h?budget=0", "budget is a time above 0"),
        ("headgate://h?budget=1s&budget=2s", "given twice"),
        ("headgate://h?nodes=0", "nodes is a whole number"),
        ("headgate://h?on_error=x", "on_error is allow, deny or local"),
        ("headgate://h?token=a%20b", "visible ASCII"),
        ("headgate://h?token=a&token_file=b", "exclude each other"),
        ("headgates://h?tls=no", "always by TLS"),
        ("headgate://h#x", "%23"),
        ("headgate+unix://h/x", "a third slash"),
        ("headgate://h\r\n", "visible characters"),
        ("headgate://h\u00e4", "visible characters"),
    ],
)
def test_bad_addresses(address: str, problem: str) -> None:
    with pytest.raises(StoreError, match=problem):
        open_store(address)


def test_a_token_is_never_shown() -> None:
    with pytest.raises(StoreError) as caught:
        open_store("headgate://h:x?token=s3cret")
    assert "s3cret" not in str(caught.value)


def test_a_socket_of_the_machine(tmp_path: Path) -> None:
    path = str(tmp_path / "headgate.sock")
    address = f"headgate+unix://{path}?{LONG}"
    with Service(uds=path), Limiter("5/minute", store=address) as limiter:
        assert limiter.hit("k").remaining == 4
        assert not limiter.hit("k").degraded


def test_tls(tmp_path: Path) -> None:
    key, certificate = tmp_path / "key", tmp_path / "certificate"
    make = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    make += ["-keyout", str(key), "-out", str(certificate), "-subj", "/CN=localhost"]
    make += ["-addext", "subjectAltName=DNS:localhost"]
    subprocess.run(make, check=True, capture_output=True)
    with Service(ssl_keyfile=str(key), ssl_certfile=str(certificate)) as service:
        address = f"headgates://localhost:{service.port}?{LONG}&ssl_ca_certs={certificate}"
        with Limiter("5/minute", store=address) as limiter:
            assert limiter.hit("k").remaining == 4
            assert not limiter.hit("k").degraded
        with Limiter("5/minute", store=f"headgates://localhost:{service.port}?{LONG}") as limiter:
            assert limiter.hit("k").degraded  # a certificate that nobody vouches for


def test_nothing_else_is_needed() -> None:
    """The client runs without any package but headgate, and imports none."""
    code = (
        "import sys\n"
        "for name in ('redis', 'hiredis', 'valkey', 'msgspec', 'httpx'): sys.modules[name] = None\n"
        "import headgate, headgate.stores, threading\n"
        "assert 'headgate.stores.client' not in sys.modules\n"
        "store = headgate.stores.open_store('headgate://127.0.0.1:1')\n"
        "assert threading.active_count() == 1\n"
        "store.close()\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
