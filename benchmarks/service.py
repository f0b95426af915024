"""The service over HTTP: checks against the same server answering a constant.

    python -m benchmarks.service [seconds] [rounds]

`headgate serve` with one worker on a zone, and the same server (the same class, limits and event
loop) with an application that sends a constant of the same size and does not even read the
request. One client for both, in turns. Then both at half of the rate that checks can reach, for
the latency; and checks at 1,000 a second, for the processor time and memory they take.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["main"]

CONNECTIONS = 16
USERS = 1000
STRANGERS = 200_000
"""So many more, of whom nobody asks twice in a run: nothing is remembered of them."""
THROUGHPUT, LATENCY = 0.6, 1.5
"""At least so much of the constant's throughput; at most so many times its p99."""
RULES = """
version: 1
rules:
  - {name: api, match: {path: /api/*}, key: [user], limit: 1000000/minute}
  - {name: login, match: {path: /login}, key: [ip], limit: 10/minute}
"""
CONSTANT = (
    b'{"allowed":true,"rule":"","status":200,"retry_after":0.0,"remaining":999999,"decisions":'
    b'[{"rule":"api","limit":"1000000/minute","allowed":true,"remaining":999999,"retry_after":0.0,'
    b'"reset_after":119.9}],"degraded":false,"shadowed":[]}'
)


def requests(users: int = USERS) -> list[bytes]:
    """Checks of many users."""
    found = []
    for user in range(users):
        call = b'{"method":"GET","path":"/api/orders","user":"user-%d","ip":"192.0.2.7"}' % user
        found.append(
            b"POST /v1/check HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
            b"content-length: %d\r\n\r\n%b" % (len(call), call)
        )
    return found


class Line:
    """A kept connection, with one request under way at most."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.settimeout(0)
        self.due = 0.0
        self._data = b""

    def answered(self) -> bool:
        """Whether a response is there as a whole."""
        part = self.socket.recv(1 << 16)
        if not part:
            raise RuntimeError("the server hung up")
        data = self._data = self._data + part
        head = data.find(b"\r\n\r\n")
        if head < 0:
            return False
        at = data.find(b"content-length: ")
        if len(data) < head + 4 + int(data[at + 16 : data.index(b"\r\n", at)]):
            return False
        if not data.startswith(b"HTTP/1.1 2"):
            raise RuntimeError(f"refused: {data[:200]!r}")
        self._data = b""
        return True


class Load(NamedTuple):
    """What a run gave."""

    rate: float
    p50: float
    p99: float


def loaded(port: int, asked: list[bytes], seconds: float, rate: float = 0.0) -> Load:
    """As many requests as possible, or so many a second; times are from when each was due."""
    lines = [Line(port) for _ in range(CONNECTIONS)]
    selector = selectors.EpollSelector()
    for line in lines:
        selector.register(line.socket, selectors.EVENT_READ, line)
    idle = list(lines)
    times: list[float] = []
    clock, sent = time.perf_counter, 0
    began = clock()
    end = began + seconds
    due = began
    while True:
        now = clock()
        if now >= end:
            break
        while idle and (not rate or due <= now):
            line = idle.pop()
            line.due = due if rate else now
            line.socket.send(asked[sent % len(asked)])
            sent += 1
            if rate:
                due += 1 / rate
        # For throughput it never sleeps: to wake a client costs a server more than all else, and
        # would be charged to the slower of the two alone. At a given rate both have to.
        pause = max(0.0, due - clock()) if rate and idle else 0.05 if rate else 0.0
        for key, _ in selector.select(pause if pause > 0.0005 else 0.0):
            if key.data.answered():
                times.append(clock() - key.data.due)
                idle.append(key.data)
    took = clock() - began
    for line in lines:
        line.socket.close()
    times.sort()
    return Load(len(times) / took, times[len(times) // 2], times[int(len(times) * 0.99)])


# -- what is served


@contextlib.contextmanager
def constant() -> Iterator[tuple[int, int]]:
    """The same server with a constant: its port and process."""
    command = [sys.executable, "-m", "benchmarks.service", "--constant"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield int(process.stdout.readline()), process.pid
    finally:
        process.kill()
        process.wait()


def _serve_constant() -> None:
    import asyncio

    from headgate.service.servers import bound, loop_factory, serve_with
    from headgate.service.settings import Listen, Settings

    size = str(len(CONSTANT)).encode()
    pairs = [
        (b"content-type", b"application/json"),
        (b"ratelimit-policy", b'"api";q=1000000;w=60'), (b"ratelimit", b'"api";r=999999;t=60'),
        (b"content-length", size),
    ]  # fmt: skip
    start = {"type": "http.response.start", "status": 200, "headers": pairs}
    body = {"type": "http.response.body", "body": CONSTANT}

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send(start)
        await send(body)

    async def serve() -> None:
        listener = bound(Listen("127.0.0.1", 0))
        print(listener.getsockname()[1], flush=True)
        await serve_with(app, Settings()).serve(sockets=[listener])

    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(serve())


@contextlib.contextmanager
def checks() -> Iterator[tuple[int, int]]:
    """Our service: the port, and the process of its worker."""
    with tempfile.TemporaryDirectory() as folder:
        rules = Path(folder, "rules.yaml")
        rules.write_text(RULES)
        process = subprocess.Popen(
            [
                sys.executable, "-m", "headgate", "serve", "--rules", str(rules),
                "--store", f"zone://{folder}/zone?size=16MiB", "--listen", "127.0.0.1:0",
                "--grpc", "off", "--admin", "off", "--log-level", "error",
            ],
            stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        try:
            assert process.stdout is not None
            for line in process.stdout:
                if line.startswith("  http"):
                    port = int(line.rpartition(":")[2])
                    break
            children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
            yield port, int(children.split()[0])
        finally:
            process.terminate()
            process.wait()


def used(pid: int) -> tuple[float, float]:
    """Seconds of the processor, and MiB of memory of its own, that a process has used."""
    import os

    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    ticks = os.sysconf("SC_CLK_TCK")
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    own = sum(int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Private_"))
    return (int(fields[11]) + int(fields[12])) / ticks, own / 1024


def main(seconds: float = 2.0, rounds: int = 5) -> dict[str, float]:
    """Run it, print it, and say what came out."""
    asked, strangers = requests(), requests(STRANGERS)
    with constant() as (one, _), checks() as (other, worker):
        rates: dict[int, list[float]] = {one: [], other: []}
        for port in (one, other):
            loaded(port, asked, seconds / 2)  # warm
        for _ in range(rounds):
            for port in (one, other):
                rates[port].append(loaded(port, asked, seconds).rate)
        ratio = statistics.median(b / a for a, b in zip(rates[one], rates[other], strict=True))
        new = []
        for _ in range(rounds):
            rate = loaded(one, strangers, seconds).rate
            new.append(loaded(other, strangers, seconds).rate / rate)
        half = statistics.median(rates[other]) / 2
        tails: dict[int, list[float]] = {one: [], other: []}
        middles: dict[int, list[float]] = {one: [], other: []}
        # Many short turns: whatever else stops this machine for some milliseconds spoils few.
        for _ in range(rounds * 4):
            for port in (one, other):
                load = loaded(port, asked, seconds / 4, half)
                tails[port].append(load.p99)
                middles[port].append(load.p50)
        tail = statistics.median(b / a for a, b in zip(tails[one], tails[other], strict=True))
        before, _ = used(worker)
        took = max(2.0, seconds)
        load = loaded(other, asked, took, 1000.0)
        after, memory = used(worker)
    found = {
        "constant_per_second": statistics.median(rates[one]),
        "checks_per_second": statistics.median(rates[other]),
        "throughput_ratio": ratio,
        "throughput_ratio_strangers": statistics.median(new),
        "half_load_per_second": half,
        "constant_p50_ms": statistics.median(middles[one]) * 1e3,
        "checks_p50_ms": statistics.median(middles[other]) * 1e3,
        "constant_p99_ms": statistics.median(tails[one]) * 1e3,
        "checks_p99_ms": statistics.median(tails[other]) * 1e3,
        "p99_ratio": tail,
        "cpu_percent_per_1000_checks": (after - before) / took * 100 * 1000 / load.rate,
        "worker_memory_mib": memory,
    }
    for name, value in found.items():
        print(f"{name:<30}{value:>12,.2f}")
    good = ratio >= THROUGHPUT and tail <= LATENCY
    verdict = "reached" if good else "NOT reached"
    print(f"throughput {ratio:.2f} of the constant's, at least {THROUGHPUT}; p99 {tail:.2f} times "
          f"the constant's, at most {LATENCY}: {verdict}")  # fmt: skip
    return found


if __name__ == "__main__":
    if sys.argv[1:] == ["--constant"]:
        _serve_constant()
    else:
        given = dict(zip(("seconds", "rounds"), map(float, sys.argv[1:]), strict=False))
        main(given.get("seconds", 2.0), int(given.get("rounds", 5)))
