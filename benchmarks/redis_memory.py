"""What keys take in a Redis server, row by row as in docs/redis.md.

python -m benchmarks.redis_memory
"""

from statistics import median
from typing import Any

from benchmarks import redis_server
from headgate import Limiter, ManualClock

USERS = [f"user:{number}" for number in range(1_000_000, 1_000_021)]
CROWD = 200_000
PATIENT = "?budget=10s"


def main() -> None:
    """Print a line for each."""
    rows = {
        "100/minute": one("100/minute"),
        "500/hour cells 60, all in use": spread("500/hour cells 60", 60, 60.0),
        "500/hour sliding-log, 500 calls apart": spread("500/hour sliding-log", 500, 7.0),
        "500/hour sliding-log, 500 calls at one instant": spread("500/hour sliding-log", 500, 0.0),
        "20 concurrent, 20 held": held(),
        "100/minute, and a limit of its own": one("100/minute", own="200/minute"),
        "100/minute, and an open reservation": reserved(),
    }
    for name, size in rows.items():
        print(f"{name:50} {size:8,.0f} bytes by MEMORY USAGE, the median of {len(USERS)} users")
    print(
        f"{'100/day fixed-window, all in all':50} {crowd():8,.0f} bytes by used_memory, {CROWD:,}"
    )


def one(text: str, own: str | None = None) -> float:
    """A user who has called once."""
    with redis_server.started() as port, redis_server.client(port) as client:
        with Limiter(text, store=redis_server.url(port) + PATIENT) as limiter:
            for user in USERS:
                limiter.hit(user)
                if own is not None:
                    limiter.set_limit(user, own)
        return usage(client)


def spread(text: str, times: int, apart: float) -> float:
    """A user who has called many times, so many seconds apart."""
    clock = ManualClock(1_000_000)
    with redis_server.started() as port, redis_server.client(port) as client:
        url = redis_server.url(port) + PATIENT
        with Limiter(text, store=url, clock=clock) as limiter:
            for _ in range(times):
                for user in USERS:
                    assert limiter.hit(user).granted
                clock.advance(apart)
        return usage(client)


def held() -> float:
    """A user with twenty permits."""
    with redis_server.started() as port, redis_server.client(port) as client:
        with Limiter("20 concurrent", store=redis_server.url(port) + PATIENT) as limiter:
            for user in USERS:
                for _ in range(20):
                    limiter.hold(user, ttl=60).__enter__()
        return usage(client)


def reserved() -> float:
    """A user who has reserved something and not settled it yet."""
    with redis_server.started() as port, redis_server.client(port) as client:
        with Limiter("100/minute", store=redis_server.url(port) + PATIENT) as limiter:
            for user in USERS:
                limiter.reserve(user, cost=3, ttl=60).__enter__()
        return usage(client)


def usage(client: Any) -> float:
    """Of one user's key."""
    keys = [key for key in client.scan_iter() if b"user:" in key]
    assert len(keys) == len(USERS)
    return float(median(client.memory_usage(key, samples=0) for key in keys))


def crowd() -> float:
    """Of one user, with the tables in which a server finds keys and their ends."""
    with redis_server.started() as port, redis_server.client(port) as client:
        with Limiter("100/day fixed-window", store=redis_server.url(port) + PATIENT) as limiter:
            limiter.hit("one")
            before = int(client.info("memory")["used_memory"])
            for start in range(0, CROWD, 1000):
                limiter.hit_many([f"user:{n}" for n in range(start, start + 1000)])
        used = int(client.info("memory")["used_memory"])
        return (used - before) / CROWD


if __name__ == "__main__":
    main()
