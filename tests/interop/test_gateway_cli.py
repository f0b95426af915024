"""`headgate gateway` as a command: what it says, how it ends, several workers, TLS."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import shutil
import signal
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from gateway_tools import Raw, Upstream, answering, gateway, head_of, until

from headgate.cli import main
from headgate.gateway.settings import GatewaySettings, seconds_of, size_of
from headgate.service.settings import SettingsError

GET = b"GET / HTTP/1.1\r\nHost: shop\r\nConnection: close\r\n\r\n"


@pytest.fixture(scope="module")
def upstream() -> Iterator[Upstream]:
    made = Upstream()
    yield made
    made.close()


class Command:
    """The command under way."""

    def __init__(self, *arguments: str, env: dict[str, str] | None = None) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "headgate", "gateway", *arguments],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env={**os.environ, **(env or {})},
        )  # fmt: skip
        assert self.process.stdout is not None
        self.hello = self.process.stdout.readline()
        if not self.hello:
            assert self.process.stderr is not None
            raise AssertionError(self.process.stderr.read())
        self.url = self.hello.split()[3].rstrip(",")

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def end(self) -> str:
        """Ask it to stop; what it wrote as errors."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.communicate(timeout=60)[1]


@contextlib.contextmanager
def command(*arguments: str, **words: Any) -> Iterator[Command]:
    running = Command(*arguments, "--listen", "127.0.0.1:0", **words)
    try:
        yield running
    finally:
        running.end()


@pytest.fixture
def logging_restored() -> Iterator[None]:
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    yield
    root.handlers[:] = before
    root.setLevel(level)


def test_five_words_are_enough(upstream: Upstream) -> None:
    upstream.app = answering()
    with command("--upstream", upstream.url, "2/minute sliding-log") as running:
        assert f"upstream {upstream.url}" in running.hello
        told = [httpx.get(running.url).status_code for _ in range(3)]
        assert told == [200, 200, 429]
        assert "refused by rule gateway, key '127.0.0.1'" in running.end()
        assert running.process.returncode == 0


def test_what_it_is_told_otherwise(upstream: Upstream, tmp_path: Path) -> None:
    upstream.app = answering(bytes(4096))
    socket = str(tmp_path / "front.sock")
    env = {"HEADGATE_UPSTREAM": upstream.url, "HEADGATE_HEALTH": "/up"}
    running = Command(
        "1/hour", "--key", "header:X-Tenant", "--listen", f"unix:{socket}", "--limit-rate",
        "1MiB/second", "--download", "1MiB/second", "--upload", "1MiB/second", "--heed", "all",
        "--host", "upstream", "--max-body", "1KiB", "--log", "json", env=env,
    )  # fmt: skip
    try:
        with httpx.Client(
            transport=httpx.HTTPTransport(uds=socket), base_url="http://shop"
        ) as client:
            for tenant, status in (("a", 200), ("a", 429), ("b", 200)):
                assert client.get("/", headers={"X-Tenant": tenant}).status_code == status
            assert upstream.last("host") == [f"127.0.0.1:{upstream.port}"]
            assert upstream.last("x-forwarded-for") == []  # a Unix socket has no address
            assert client.get("/up").text == "ok\n"
            assert client.post("/", content=bytes(1025)).status_code == 413
    finally:
        running.end()
    assert not os.path.exists(socket)


def test_rules_are_followed_and_read_again(upstream: Upstream, tmp_path: Path) -> None:
    upstream.app = answering()
    path = tmp_path / "rules.json"
    rule = {"name": "api", "key": ["api_key"], "limit": "1/hour"}
    path.write_text(json.dumps({"version": 1, "rules": [rule]}))
    headers = {"X-API-Key": "secret"}
    arguments = ("--upstream", upstream.url, "--rules", str(path), "--api-key", "X-API-Key")
    with command(*arguments) as running:
        assert httpx.get(running.url, headers=headers).status_code == 200
        assert httpx.get(running.url, headers=headers).status_code == 429
        path.write_text(json.dumps({"version": 1, "rules": [{**rule, "limit": "2/hour"}]}))
        running.process.send_signal(signal.SIGHUP)
        until(lambda: httpx.get(running.url, headers=headers).status_code == 200, 60)


def test_calls_under_way_may_end(upstream: Upstream) -> None:
    free = threading.Event()
    begun = threading.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"first", "more_body": True})
        begun.set()
        await asyncio.to_thread(free.wait, 10)
        await send({"type": "http.response.body", "body": b"last"})

    upstream.app = app
    with command("--upstream", upstream.url) as running:
        with Raw(running.port) as raw:
            raw.send(GET)
            assert begun.wait(60)
            running.process.send_signal(signal.SIGTERM)

            def refused() -> bool:
                try:
                    Raw(running.port).socket.close()
                except OSError:
                    return True
                return False

            until(refused)
            free.set()
            assert b"last" in raw.until(b"last")
        running.process.wait(60)
        assert running.process.returncode == 0


def children(pid: int) -> set[int]:
    return set(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="no /proc here")
def test_several_workers_count_together(upstream: Upstream, tmp_path: Path) -> None:
    upstream.app = answering()
    store = f"zone://{tmp_path}/gateway.zone?size=1MiB"
    arguments = ("--upstream", upstream.url, "--workers", "2", "--store", store)
    with command(*arguments, "40/30d fixed-window") as running:
        workers = children(running.process.pid)
        assert len(workers) == 2
        # A connection each, so that both have some.
        with ThreadPoolExecutor(8) as pool:
            told = list(pool.map(lambda _: httpx.get(running.url).status_code, range(60)))
        assert (told.count(200), told.count(429)) == (40, 20)
        os.kill(min(workers), signal.SIGKILL)
        until(lambda: len(children(running.process.pid) - workers) == 1)
        assert httpx.get(running.url).status_code == 429
        workers |= children(running.process.pid)
    assert not any(Path(f"/proc/{each}").exists() for each in workers)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl here")
def test_tls_on_both_sides(upstream: Upstream, tmp_path: Path) -> None:
    upstream.app = answering()
    key, certificate = str(tmp_path / "key"), str(tmp_path / "certificate")
    make = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    make += ["-keyout", key, "-out", certificate, "-subj", "/CN=localhost"]
    make += ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    subprocess.run(make, check=True, capture_output=True)
    tls = ("--tls-cert", certificate, "--tls-key", key)
    known = ssl.create_default_context(cafile=certificate)
    with command("--upstream", upstream.url, *tls) as inner:
        assert inner.url.startswith("https://")
        assert httpx.get(inner.url, verify=known).text == "hello"
        assert upstream.last("x-forwarded-proto") == ["https"]
        with gateway(inner.url) as front:  # nobody vouches for that certificate
            assert httpx.get(front.url).status_code == 502
        with command("--upstream", inner.url, "--upstream-ca", certificate) as outer:
            assert httpx.get(outer.url).text == "hello"
            assert upstream.last("via") == ["1.1 headgate, 1.1 headgate"]
            assert upstream.last("host") == [inner.url.removeprefix("https://")]


def test_a_head_that_does_not_arrive_in_time(upstream: Upstream) -> None:
    upstream.app = answering()
    with (
        gateway(upstream.url, head=0.2) as front,
        Raw(front.port) as silent,
        Raw(front.port) as slow,
        Raw(front.port) as second,
    ):
        slow.send(b"GET / HTTP/1.1\r\n")
        second.send(b"GET / HTTP/1.1\r\nHost: shop\r\n\r\n")
        assert head_of(second.until(b"hello"))[0] == 200
        second.send(b"GET")
        assert [each.rest() for each in (silent, slow)] == [b"", b""]
        assert second.rest().strip(b"0\r\n") == b""


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "--upstream"),
        (("--upstream", "shop"), "http://host:port"),
        (("--upstream", "http://shop", "5/foo"), "foo"),
        (("--upstream", "http://shop", "--idle-timeout", "x"), "'x'"),
        (("--upstream", "http://shop", "--trusted", "*"), "trusts everybody"),
        (
            ("--upstream", "http://shop", "--listen", "127.0.0.1:0", "--rules", "/nowhere.json"),
            "/nowhere.json",
        ),
        (("--upstream", "http://shop", "--workers", "two"), "workers"),
        (("--upstream", "http://shop", "--listen", "nowhere"), "127.0.0.1:8080"),
    ],
)
@pytest.mark.usefixtures("logging_restored")
def test_what_is_wrong_is_said(
    arguments: tuple[str, ...], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["gateway", *arguments]) == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        {"limits": ("1/hour",), "rules": ("x",)},
        {"workers": 0},
        {"tls_cert": "x"},
        {"workers": 2, "store": "memory://"},
        {"listen": "off"},
        {"max_body": "much"},
        {"upstream_ca": "/nowhere"},
        {"log": "xml"},
        {"log_level": "loud"},
    ],
)
def test_settings_that_cannot_be(words: dict[str, Any]) -> None:
    with pytest.raises((SettingsError, ValueError)):
        GatewaySettings("http://shop", **words)


def test_bandwidths_that_cannot_be() -> None:
    wrongs: list[dict[str, Any]] = [
        {"download": "5 concurrent"},
        {"heed": "nobody"},
        {"upload": "1MiB/second", "bandwidth_key": "x:y"},
    ]
    for words in wrongs:
        with pytest.raises(SettingsError):
            GatewaySettings("http://shop", **words).gateway()


def test_settings_travel() -> None:
    made = GatewaySettings("http://shop", limits=("1/hour",), trusted=("loopback",), workers=3)
    assert GatewaySettings.from_json(made.as_json()) == made
    assert (seconds_of("500ms"), seconds_of("0"), size_of("64KiB"), size_of("0")) == (
        0.5, 0.0, 65536, 0,
    )  # fmt: skip
