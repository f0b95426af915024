"""What the service does against those who mean no good: slow, large, or from elsewhere."""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from service_tools import Running, eventually, serving

RULES = """
version: 1
rules:
  - {name: api, match: {resource: api}, key: [user], limit: 1000/30d fixed-window}
"""
TOKEN = "a-token-of-enough-letters"


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    with serving(RULES, "--timeout", "2s", "--max-body", "2KiB", "--connections", "40") as made:
        yield made


def ended(connection: socket.socket, seconds: float = 60.0) -> bytes:
    """What comes until the other end closes."""
    connection.settimeout(seconds)
    found = b""
    with contextlib.suppress(ConnectionResetError):
        while part := connection.recv(4096):
            found += part
    return found


def test_a_head_that_never_ends(running: Running) -> None:
    began = time.monotonic()
    with contextlib.closing(running.raw()) as slow:
        slow.sendall(b"POST /v1/check HTTP/1.1\r\nhost: x\r\n")
        assert ended(slow) == b""
    with contextlib.closing(running.raw()) as silent:
        assert ended(silent) == b""
    assert time.monotonic() - began < 60


def test_a_head_that_drips_between_requests(running: Running) -> None:
    with contextlib.closing(running.raw()) as slow:
        slow.sendall(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n")
        slow.settimeout(60)
        assert b"200 OK" in slow.recv(4096)
        end = time.monotonic() + 60
        with contextlib.suppress(OSError):
            while time.monotonic() < end:
                slow.sendall(b"G")
                time.sleep(0.2)
        assert time.monotonic() < end


def test_a_head_without_bounds(running: Running) -> None:
    with contextlib.closing(running.raw()) as large:
        with contextlib.suppress(OSError):
            large.sendall(b"GET /healthz HTTP/1.1\r\n")
            for _ in range(200):
                large.sendall(b"x-more: " + b"y" * 1000 + b"\r\n")
        assert b"200 OK" not in ended(large)


def test_a_body_that_never_ends(running: Running) -> None:
    head = b"POST /v1/check HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
    with contextlib.closing(running.raw()) as slow:
        slow.sendall(head + b"content-length: 50\r\n\r\n{")
        answer = ended(slow)
    assert answer.startswith(b"HTTP/1.1 408")
    assert b"application/problem+json" in answer
    with contextlib.closing(running.raw()) as slow:
        slow.sendall(head + b"content-length: 50\r\n\r\n")
        assert ended(slow).startswith(b"HTTP/1.1 408")


@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_that_is_too_large(running: Running, chunked: bool) -> None:
    head = b"POST /v1/check HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
    with contextlib.closing(running.raw()) as large:
        if chunked:
            large.sendall(head + b"transfer-encoding: chunked\r\n\r\n")
            with contextlib.suppress(OSError):
                for _ in range(10):
                    large.sendall(b"400\r\n" + b" " * 1024 + b"\r\n")
        else:
            large.sendall(head + b"content-length: 99999999999999999999\r\n\r\n")
        answer = ended(large)
    assert answer.startswith((b"HTTP/1.1 413", b"HTTP/1.1 400"))
    if chunked:
        assert answer.startswith(b"HTTP/1.1 413")


def test_many_connections(running: Running) -> None:
    """Those above the limit are told so, and those below are served."""

    def status() -> int:
        with contextlib.closing(running.client()) as client:
            return client.get("/healthz").status

    def crowded() -> bool:
        held = [running.raw() for _ in range(50)]
        try:
            return status() == 503
        finally:
            for each in held:
                each.close()

    eventually(crowded)  # who says nothing does not stay for long
    eventually(lambda: status() == 200)


def test_pages_of_other_sites(running: Running) -> None:
    with contextlib.closing(running.client("admin")) as admin:
        assert admin.post("/reload", {}, origin="http://evil.example").status == 403
        assert admin.get("/metrics", sec_fetch_site="cross-site").status == 403
        assert admin.get("/metrics", host="evil.example").status == 403  # a name that was bent
        assert admin.send("POST", "/reload", b"{}", content_type="text/plain").status == 415
        admin.close()
        host = running.where["admin"]
        assert admin.post("/reload", {}, origin=f"http://{host}").status == 200
        assert "access-control-allow-origin" not in admin.get("/status").headers
    audits = [line for line in running.lines() if line["logger"] == "headgate.audit"]
    assert {"403", "415", "done"} <= {line["outcome"] for line in audits}


def test_tokens(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(TOKEN + "\n")
    flags = ("--admin", "0.0.0.0:0", "--token-file", str(file), "--api-token-file", str(file))
    bearer = f"Bearer {TOKEN}"
    with serving(RULES, *flags) as running:
        running.where["admin"] = running.where["admin"].replace("0.0.0.0", "127.0.0.1")
        call = {"rule": "api", "key": "x"}
        with contextlib.closing(running.client()) as client:
            answer = client.post("/v1/check", call)
            assert answer.status == 401
            assert answer.headers["www-authenticate"].startswith("Bearer")
            client.close()
            assert client.post("/v1/check", call, authorization="Bearer wrong").status == 401
            client.close()
            assert client.post("/v1/check", call, authorization=bearer).status == 200
            assert client.get("/healthz").status == 200
        with contextlib.closing(running.client("admin")) as admin:
            for path in ("/metrics", "/status", "/events", "/v1/rules"):
                assert admin.get(path).status == 401
            assert admin.get("/metrics", authorization=bearer).status == 200
            assert admin.post("/v1/reset", call).status == 401
            admin.close()
            assert admin.post("/v1/reset", call, authorization=bearer).status == 200
        audits = [line for line in running.lines() if line["logger"] == "headgate.audit"]
        assert [line["outcome"] for line in audits if "reset" in line["action"]] == ["401", "done"]
        assert TOKEN not in running.log()


@pytest.mark.parametrize("text", ["short", "two words of enough letters"])
def test_poor_tokens(tmp_path: Path, text: str) -> None:
    (tmp_path / "token").write_text(text)
    running = Running(tmp_path, RULES, "--token-file", str(tmp_path / "token"), wait=False)
    assert running.process.wait(60) == 2
    assert "16 characters" in running.log()
    assert running.process.stdout is not None
    running.process.stdout.close()
    running.stop()


def test_tls_and_unix_sockets(tmp_path: Path) -> None:
    made = subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
         "-nodes", "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1",
         "-keyout", "key.pem", "-out", "cert.pem", "-days", "1"],
        cwd=tmp_path, capture_output=True, check=False,
    )  # fmt: skip
    if made.returncode:
        pytest.skip("there is no openssl to make a certificate with")
    cert, key = str(tmp_path / "cert.pem"), str(tmp_path / "key.pem")
    with serving(RULES, "--tls-cert", cert, "--tls-key", key, "--timeout", "2s") as running:
        context = ssl.create_default_context(cafile=cert)
        with urllib.request.urlopen(
            f"https://{running.where['http']}/healthz", context=context
        ) as answer:
            assert json.load(answer) == {"status": "ok"}
        with contextlib.closing(running.raw()) as silent:  # no handshake
            assert ended(silent) == b""
    path = tmp_path / "x.sock"
    with (
        serving(RULES, "--listen", f"unix:{path}"),
        contextlib.closing(socket.socket(socket.AF_UNIX)) as client,
    ):
        client.connect(str(path))
        client.sendall(b"GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        assert b'{"status":"ok"}' in ended(client)
    assert not path.exists()
