"""A consumer of a Redis stream, as a process of its own: reads one message after another."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import redis
from headgate import LimitExceeded
from headgate.integrations.consumer import paced

STREAM, GROUP = "orders", "workers"


def messages_of(client: Any, name: str) -> Iterator[tuple[bytes, dict[bytes, bytes]]]:
    """What the group has for this consumer, one at a time, until there is nothing left."""
    while found := client.xreadgroup(GROUP, name, {STREAM: ">"}, count=1):
        yield found[0][1][0]


def main(url: str, name: str, limit: str, wait: float | None) -> int:
    client = redis.Redis.from_url(url)
    handled = 0
    messages = messages_of(client, name)
    with paced(messages, limit, store=f"{url}?budget=10s", wait=wait) as orders:
        try:
            for number, _ in orders:
                client.rpush("inside", client.incr("now"))
                handled += 1
                client.decr("now")
                client.xack(STREAM, GROUP, number)
        except LimitExceeded:
            pass
    return handled


if __name__ == "__main__":
    url, name, limit, wait = sys.argv[1:]
    sys.stdout.write(f"{main(url, name, limit, float(wait) if wait else None)}\n")
