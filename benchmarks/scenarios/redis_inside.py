"""What a decision costs the server: its own time for each call, and the memory of a key."""

import socket
import threading
from statistics import median
from time import monotonic, sleep
from typing import Any

from benchmarks import redis_server
from benchmarks.far import Factory
from benchmarks.far.headgate_ import PLAIN, text
from benchmarks.rivals import Rival

KEY = "user:1234567"  # of twelve characters
_PLENTY = 1_000_000_000
_CALLS = 2_000
_LOG = 500
_CELLS = 60
_HOUR = 3600
_COUNT = """
local n = redis.call('INCR', KEYS[1])
redis.call('EXPIRE', KEYS[1], ARGV[1])
return n
"""


def work(rival: Rival, make: object, algorithm: str, quick: bool) -> dict[str, float]:
    """The server's own time for a decision, beside that for a script of INCR and EXPIRE.

    Both are sent pipelined, in turns of 2,000 calls on one key, at least 20,000 of each.
    """
    from headgate import Limiter
    from headgate.stores.redis import RedisStore

    with redis_server.started() as port, redis_server.client(port) as client:
        store = RedisStore(redis_server.url(port) + PLAIN)
        limiter = Limiter(text(algorithm, _PLENTY, 1 if algorithm == "even" else 3600), store=store)
        right = bool(limiter.hit(KEY))
        way = store.quick(limiter.name, limiter.limits)
        assert way is not None
        ours = way.pack(1)(way.call(KEY, 1).keys[0])
        sha = client.script_load(_COUNT).encode()
        theirs = _packed(b"EVALSHA", sha, b"1", b"counter:1234", b"3600")
        turns = 10 if quick else 20
        spent: list[tuple[float, float]] = []
        with socket.create_connection(("127.0.0.1", port)) as sock:
            for turn in range(turns):
                if algorithm == "sliding-log" and turn % 2 == 0:
                    limiter.reset(KEY)  # else it would remember them all
                spent.append((_timed(client, sock, ours), _timed(client, sock, theirs)))
        right = right and bool(limiter.hit(KEY))
        limiter.close()
    ns, yardstick = (min(times) * 1000 for times in zip(*spent, strict=True))
    return {"ns": ns, "yardstick_ns": yardstick, "right": right}


def _packed(*words: bytes) -> bytes:
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in words)


def _timed(client: Any, sock: socket.socket, call: bytes) -> float:
    """Microseconds that the server spent on each of many calls, as it counts them itself."""
    from hiredis import Reader

    client.config_resetstat()
    # Somebody has to read while this is written: the pipe between is shorter.
    writer = threading.Thread(target=sock.sendall, args=(call * _CALLS,))
    writer.start()
    reader, answered = Reader(), 0
    while answered < _CALLS:
        reader.feed(sock.recv(1 << 18))
        while reader.gets() is not False:
            answered += 1
    writer.join()
    found = client.info("commandstats")["cmdstat_evalsha"]
    return float(found["usec"] / found["calls"])


def memory(rival: Rival, make: Factory | None, algorithm: str, quick: bool) -> dict[str, float]:
    """Bytes that the server needs for all keys of one user, by MEMORY USAGE.

    The median of a few users where their states are small: an allocator gives 16 bytes more to
    some, when a rest would be too small.
    """
    large = algorithm in ("sliding-log", "concurrency") or (make and algorithm == "sliding-window")
    users = [KEY] if large else [f"user:{number}" for number in range(1234567, 1234588)]
    with redis_server.started() as port, redis_server.client(port) as client:
        url = redis_server.url(port)
        right = True
        for user in users:
            if make is None:
                right &= _fill(url, algorithm, user)
            else:
                right &= _hit(make, url, algorithm, client, user)
        found = median(_usage(client, user) for user in users)
    return {"bytes": found, "keys": 1, "seconds": 0.0, "right": right and found > 0}


def _usage(client: Any, user: str) -> float:
    keys = [key for key in client.scan_iter() if user.encode() in key]
    return float(sum(client.memory_usage(key, samples=0) for key in keys))


def _hit(make: Factory, url: str, algorithm: str, client: Any, user: str) -> bool:
    """A rival's key, hit once; a full log of 500; windows that slide, in their second one."""
    if algorithm == "sliding-log":
        way = make(url, _LOG, _HOUR)
        return all(way.allowed(way.hit(user)) for _ in range(_LOG))
    slides = algorithm == "sliding-window"
    way = make(url, _LOG, 1 if slides else _HOUR)
    right = way.allowed(way.hit(user))
    end = monotonic() + 1.5
    while slides and monotonic() < end:
        before = _usage(client, user)
        way.hit(user)
        if _usage(client, user) > before > 0:
            break  # the key of the window before is there too
        sleep(0.05)
    return right


def _fill(url: str, algorithm: str, user: str) -> bool:
    """headgate's key in the state that takes most: every cell, every entry, every word in use."""
    from headgate import Limiter, ManualClock

    if algorithm == "concurrency":
        with Limiter("100 concurrent", store=url + PLAIN) as limiter:
            for _ in range(100):
                limiter.hold(user, ttl=60).__enter__()
            return True
    clock = ManualClock(1_000_000)
    times = {"sliding-cells": _CELLS, "sliding-log": _LOG, "sliding-window": 2}.get(algorithm, 1)
    limit = text(algorithm, _LOG, _HOUR).replace("cells 10", f"cells {_CELLS}")
    limiter = Limiter(limit, store=url + PLAIN, clock=clock)
    right = True
    for number in range(times):
        if number:
            clock.advance(_HOUR / (1 if algorithm == "sliding-window" else times))
        right &= bool(limiter.hit(user))
    limiter.close()
    return right
