"""A crowd: a thousand connections held open, each of which asks now and then.

HEADGATE_SOAK says for how many seconds; `make soak-service` holds them for a minute.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import random
import time
from pathlib import Path

import pytest
from service_tools import Running, serving

from headgate.service.servers import raise_file_limit

CROWD = 1000
SECONDS = float(os.environ.get("HEADGATE_SOAK", "3"))
ALL = 1500
"""What the crowd as a whole may have."""
RULES = f"""
version: 1
rules:
  - {{name: each, match: {{resource: crowd}}, key: [user], limit: 5/second burst 10}}
  - {{name: all, match: {{resource: crowd}}, key: [origin], limit: {ALL}/day fixed-window}}
"""


class Caller(asyncio.Protocol):
    """One kept connection, which asks one thing at a time."""

    def __init__(self, number: int) -> None:
        told = {"resource": "crowd", "user": f"user-{number}", "origin": "crowd"}
        body = json.dumps(told).encode()
        head = "POST /v1/check HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
        self._request = head.encode() + b"content-length: %d\r\n\r\n" % len(body) + body
        self._data = b""
        self._answer: asyncio.Future[bytes] | None = None
        self.dropped = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._data += data
        head, blank, body = self._data.partition(b"\r\n\r\n")
        if not blank:
            return
        length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
        if len(body) >= length:
            found, self._data = self._data, b""
            if self._answer is not None and not self._answer.done():
                self._answer.set_result(found)

    def connection_lost(self, error: Exception | None) -> None:
        self.dropped = True
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(ConnectionResetError("dropped"))

    async def ask(self) -> bytes:
        """The answer, head and body together."""
        if self.dropped:
            raise ConnectionResetError("dropped between two requests")
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(self._request)
        return await asyncio.wait_for(self._answer, 60)

    def close(self) -> None:
        self._transport.close()


class Crowd:
    """All of them, and what came of it."""

    def __init__(self, where: str) -> None:
        host, _, port = where.rpartition(":")
        self._host, self._port = host, int(port)
        self._callers: list[Caller] = []
        self.took: list[float] = []
        """Seconds of each answer, but for the rush of all at the beginning and at the end."""
        self.statuses: dict[int, int] = {}
        self.passed = 0
        self.dropped: list[str] = []

    async def run(self) -> None:
        """Come, stay, and ask once more before leaving."""
        rnd = random.Random(6)
        loop = asyncio.get_running_loop()
        entering = asyncio.Semaphore(100)

        async def come(number: int) -> None:
            async with entering:
                _, caller = await loop.create_connection(
                    lambda: Caller(number), self._host, self._port
                )
                self._callers.append(caller)
                await self._ask(caller, rush=True)

        await asyncio.gather(*(come(number) for number in range(CROWD)))
        end = loop.time() + SECONDS
        # Most ask every second or two; some are silent for longer than a request may take.
        pauses = [rnd.uniform(1, 2.5) if n % 10 else rnd.uniform(6, 20) for n in range(CROWD)]
        await asyncio.gather(*map(self._stay, self._callers, pauses, [end] * CROWD))
        for caller in self._callers:
            caller.close()

    async def _stay(self, caller: Caller, pause: float, end: float) -> None:
        loop = asyncio.get_running_loop()
        await asyncio.sleep(min(pause * random.random(), end - loop.time()))
        while loop.time() < end and not caller.dropped:
            await self._ask(caller)
            await asyncio.sleep(max(0.0, min(pause, end - loop.time())))
        await self._ask(caller, rush=True)

    async def _ask(self, caller: Caller, *, rush: bool = False) -> None:
        began = time.perf_counter()
        try:
            answer = await caller.ask()
        except (OSError, TimeoutError) as error:
            self.dropped.append(repr(error))
            return
        if not rush:
            self.took.append(time.perf_counter() - began)
        status = int(answer[9:12])
        self.statuses[status] = self.statuses.get(status, 0) + 1
        self.passed += b'\r\n\r\n{"allowed":true' in answer

    def told(self, running: Running) -> str:
        """The numbers, for a human."""
        took = sorted(self.took)
        at = [took[min(len(took) - 1, math.ceil(len(took) * q) - 1)] for q in (0.5, 0.99, 1)]
        mib = [_resident(worker["pid"]) >> 20 for worker in running.status()["workers"]]
        return (
            f"{CROWD} connections for {SECONDS:g} s: answers {self.statuses}, "
            f"{len(self.dropped)} dropped; p50 {at[0] * 1e3:.1f} ms, p99 {at[1] * 1e3:.1f} ms, "
            f"longest {at[2] * 1e3:.1f} ms; workers of {mib} MiB"
        )


def _resident(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def test_a_crowd_is_held() -> None:
    """Nobody is dropped, nobody sees an error of ours, and the count stays exact."""
    resource = pytest.importorskip("resource")
    raise_file_limit()
    if resource.getrlimit(resource.RLIMIT_NOFILE)[0] < CROWD + 200:
        pytest.skip("this system does not let us open so many connections")
    with serving(RULES, "--workers", "2") as running:
        crowd = Crowd(running.where["http"])
        asyncio.run(crowd.run())
        print(crowd.told(running))  # noqa: T201 # the numbers are what a soak is run for
        assert crowd.dropped == []
        assert set(crowd.statuses) == {200}
        assert crowd.statuses[200] >= 2 * CROWD
        assert crowd.passed == ALL
        assert [worker["starts"] for worker in running.status()["workers"]] == [1, 1]
        assert not [line for line in running.lines() if line["level"] == "error"]
