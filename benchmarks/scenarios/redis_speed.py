"""Decisions on a server: one limit, three at once, and 64 tasks, each beside what redis-py does.

The yardstick of threads is `evalsha` of a script that does nothing, by a client of redis-py as
one makes it; that of tasks is its asyncio client's INCR, with as many tasks.
"""

import asyncio
import gc
import socket
from collections.abc import Awaitable, Callable
from itertools import count, repeat
from time import perf_counter, perf_counter_ns
from typing import Any

from benchmarks import redis_server
from benchmarks.far import AsyncFactory, AsyncHit, AsyncWay, Factory, each
from benchmarks.keys import HOT_KEY
from benchmarks.rivals import Rival
from benchmarks.scenarios.speed import in_turn

TASKS = 64
_EACH = 10
_HITS = 100
_HOUR = 3600
_PLENTY = 1_000_000_000
_LEAST = 3


def _period(algorithm: str) -> int:
    # A thousand million an hour still spaces hits 3.6 us apart, which `even` would refuse.
    return 1 if algorithm == "even" else _HOUR


def evalsha(port: int, **options: Any) -> Callable[[str], object]:
    """The call of a script that does nothing, by redis-py."""
    client = redis_server.client(port, **options)
    sha = client.script_load("return 1")
    call = client.evalsha
    return lambda key: call(sha, 1, key)


def sync(rival: Rival, make: Factory, algorithm: str, quick: bool) -> dict[str, float]:
    """Time hits of one thread, with and without reading the numbers of each answer.

    A log remembers every hit, so each of its batches has a key of its own.
    """
    with redis_server.started() as port:
        way, beside = make(redis_server.url(port), _PLENTY, _period(algorithm)), evalsha(port)
        batches = count()

        def keys() -> Any:
            fresh = algorithm == "sliding-log"
            return repeat(f"{HOT_KEY}:{next(batches)}" if fresh else HOT_KEY, _HITS)

        told = way.told or (lambda hit, keys: 0)
        way.hit(HOT_KEY)
        ns, told_ns, yardstick = in_turn(
            lambda: way.loop(way.hit, keys()) / _HITS,
            lambda: told(way.hit, keys()) / _HITS,
            lambda: each(beside, repeat(HOT_KEY, _HITS)) / _HITS,
            seconds=0.4 if quick else 0.8,
        )
        right = way.allowed(way.hit(HOT_KEY))
    answer = {"ns": ns, "yardstick_ns": yardstick, "right": right}
    return answer | {"told_ns": told_ns} if way.told else answer


async def _together(call: Callable[[str], Awaitable[object]], keys: list[str]) -> float:
    """Nanoseconds for each of the calls that one task for each key makes, one after the other."""

    async def task(key: str) -> None:
        for _ in range(_EACH):
            if await call(key):
                pass

    start = perf_counter_ns()
    await asyncio.gather(*map(task, keys))
    return (perf_counter_ns() - start) / (_EACH * len(keys))


async def _tasks(make: AsyncFactory, algorithm: str, port: int, quick: bool) -> dict[str, float]:
    incr: AsyncHit = redis_server.async_client(port).incr
    way: AsyncWay = make(redis_server.url(port), _PLENTY, _period(algorithm))
    keys = [f"user:{number}" for number in range(TASKS)]
    best: dict[str, float] = {}
    end, runs = perf_counter() + (0.5 if quick else 0.8), 0
    while runs < _LEAST or perf_counter() < end:
        # A log that is hit again and again grows; its keys are new ones every time.
        fresh = f":{runs}" if algorithm == "sliding-log" else ""
        mine = [key + fresh for key in keys]
        for name, call, whose in (
            ("ns", way.hit, mine),
            ("yardstick_ns", incr, [f"counter:{key}" for key in keys]),
            ("hot_ns", way.hit, [HOT_KEY + fresh] * TASKS),
        ):
            gc.collect()
            best[name] = min(best.get(name, float("inf")), await _together(call, whose))
        runs += 1
    return best | {"right": way.allowed(await way.hit("last"))}


def tasks(rival: Rival, make: AsyncFactory, algorithm: str, quick: bool) -> dict[str, float]:
    """Time hits of 64 tasks, on a key for each and on one key for all."""
    with redis_server.started() as port:
        return asyncio.run(_tasks(make, algorithm, port, quick))


def raw_socket(port: int) -> Callable[[str], object]:
    """The bytes of the same call by a bare socket: what no client can be faster than."""
    sha = redis_server.client(port).script_load("return 1").encode()
    sock = socket.create_connection(("127.0.0.1", port))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def call(key: str) -> object:
        name = key.encode()
        sock.sendall(
            b"*4\r\n$7\r\nEVALSHA\r\n$40\r\n%s\r\n$1\r\n1\r\n$%d\r\n%s\r\n" % (sha, len(name), name)
        )
        return sock.recv(64)

    return call


def yardsticks() -> dict[str, float]:
    """Nanoseconds for a call of a script that does nothing, by ever less of a client."""
    with redis_server.started() as port:
        calls = {
            "redis-py evalsha": evalsha(port),
            "redis-py evalsha, single_connection_client": evalsha(
                port, single_connection_client=True
            ),
            "the same bytes by a socket": raw_socket(port),
        }

        def timed(call: Callable[[str], object]) -> Callable[[], float]:
            return lambda: each(call, repeat(HOT_KEY, _HITS)) / _HITS

        return dict(zip(calls, in_turn(*map(timed, calls.values()), seconds=0.5), strict=True))
