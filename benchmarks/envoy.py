"""Envoy's rate limit service: calls a second, ours with rules against grpcio's empty handler.

    python -m benchmarks.envoy [seconds] [rounds]

One process each, one connection, all in the same run and in turns. The client speaks just enough
HTTP/2 to keep a number of calls under way, so that it is not what is measured.
"""

from __future__ import annotations

import contextlib
import socket
import statistics
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import NamedTuple

__all__ = ["main"]

PATH = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"
FLIGHT = 64
"""Calls under way at a time."""
USERS = 1000
WANTED = 3.0
HEADERS, RESET, SETTINGS, PING, GOAWAY = 1, 3, 4, 6, 7


def _field(name: int, data: bytes) -> bytes:
    return bytes((name << 3 | 2, len(data))) + data


def _entry(key: str, value: str) -> bytes:
    return _field(2, _field(1, _field(1, key.encode()) + _field(2, value.encode())))


ONE = [_field(1, b"shop") + _entry("user", f"user-{n}") for n in range(USERS)]
TWO = [each + _entry("path", "/cart") for each in ONE]


class Served(NamedTuple):
    """What is asked, and for what."""

    name: str
    what: str
    requests: list[bytes]


SERVED = (
    Served("grpcio asyncio, empty handler", "grpcio", ONE),
    Served("pyvoy, empty handler", "constant", ONE),
    Served("headgate, Envoy's rules", "tree", ONE),
    Served("headgate, Envoy's rules, two descriptors", "tree", TWO),
    Served("headgate, own rules with headers", "own", ONE),
)


class Client:
    """A client of HTTP/2 that knows one kind of request."""

    def __init__(self, port: int, requests: list[bytes]) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        window = struct.pack(">HI", 4, 2**31 - 1)
        more = struct.pack(">I", 2**31 - 1 - 65_535)
        start = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
        self._socket.sendall(start + _frame(SETTINGS, 0, 0, window) + _frame(8, 0, 0, more))
        pairs = [
            (":path", PATH), (":authority", "localhost"), ("te", "trailers"),
            ("content-type", "application/grpc"),
        ]  # fmt: skip
        self._head = b"\x83\x86" + b"".join(_header(*pair) for pair in pairs)
        self._requests = [b"\0" + struct.pack(">I", len(each)) + each for each in requests]
        self._next = 1
        self._begun: list[float] = []
        """When each call began, by its number."""
        self.times: list[float] = []
        self.bytes = 0

    def run(self, seconds: float) -> float:
        """Calls a second."""
        self._send(FLIGHT)
        began, done, data = time.perf_counter(), 0, b""
        while time.perf_counter() - began < seconds:
            data, ended = self._ended(data + self._socket.recv(1 << 18))
            done += ended
            self._send(ended)
        rate = done / (time.perf_counter() - began)
        self._socket.close()
        return rate

    def _send(self, count: int) -> None:
        out: list[bytes] = []
        now = time.perf_counter()
        for _ in range(count):
            body = self._requests[self._next // 2 % len(self._requests)]
            out += (_frame(HEADERS, 4, self._next, self._head), _frame(0, 1, self._next, body))
            self._next += 2
        self._begun += [now] * count
        if out:
            self._socket.sendall(b"".join(out))

    def _ended(self, data: bytes) -> tuple[bytes, int]:
        at, end, ended, now = 0, len(data), 0, time.perf_counter()
        while at + 9 <= end:
            size = data[at] << 16 | data[at + 1] << 8 | data[at + 2]
            if at + 9 + size > end:
                break
            kind, flags = data[at + 3], data[at + 4]
            if kind == HEADERS and flags & 1:
                ended += 1
                stream = int.from_bytes(data[at + 5 : at + 9], "big")
                self.times.append(now - self._begun[stream // 2])
            elif kind in (RESET, GOAWAY):
                raise RuntimeError(f"the server gave up: {data[at : at + 60]!r}")
            elif kind in (SETTINGS, PING) and not flags & 1:
                rest = data[at + 9 : at + 9 + size] if kind == PING else b""
                self._socket.sendall(_frame(kind, 1, 0, rest))
            elif kind == 0:
                self.bytes += size
            at += 9 + size
        return data[at:], ended


def _frame(kind: int, flags: int, stream: int, data: bytes) -> bytes:
    size = len(data)
    return struct.pack(">BHBBI", size >> 16, size & 65_535, kind, flags, stream) + data


def _header(name: str, value: str) -> bytes:
    return b"\0" + bytes((len(name),)) + name.encode() + bytes((len(value),)) + value.encode()


@contextlib.contextmanager
def _serving(what: str) -> Iterator[int]:
    command = [sys.executable, "-m", "benchmarks.envoy_apps", what]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        try:
            yield int(process.stdout.readline())
        finally:
            process.stdin.close()


def main(seconds: float = 2.0, rounds: int = 3) -> float:
    """Print a table; the ratio of ours, with Envoy's rules, to grpcio's."""
    rates: dict[str, list[float]] = {each.name: [] for each in SERVED}
    late: dict[str, list[float]] = {each.name: [] for each in SERVED}
    with contextlib.ExitStack() as stack:
        kinds = dict.fromkeys(each.what for each in SERVED)
        ports = {what: stack.enter_context(_serving(what)) for what in kinds}
        for each in SERVED:
            Client(ports[each.what], each.requests).run(0.5)
        for _ in range(rounds):
            for each in SERVED:
                client = Client(ports[each.what], each.requests)
                rates[each.name].append(client.run(seconds))
                late[each.name].append(statistics.quantiles(client.times, n=100)[98])
    base = statistics.median(rates[SERVED[0].name])
    print(f"{'':42}{'calls/s':>10}{'ratio':>8}{'p99 ms':>9}   ({FLIGHT} calls under way)")
    for name, found in rates.items():
        rate, p99 = statistics.median(found), statistics.median(late[name])
        print(f"{name:42}{rate:>10,.0f}{rate / base:>8.2f}{p99 * 1000:>9.1f}")
    ratio = statistics.median(rates[SERVED[2].name]) / base
    verdict = "reached" if ratio >= WANTED else "missed"
    print(
        f"with rules applied: {ratio:.2f} x grpcio's empty handler; wanted {WANTED:g} x: {verdict}"
    )
    return ratio


if __name__ == "__main__":
    given = [float(word) for word in sys.argv[1:]]
    main(given[0] if given else 2.0, int(given[1]) if len(given) > 1 else 3)
