"""A node of a fleet in a process of its own: it does what it reads, and prints its state."""

from __future__ import annotations

import contextlib
import sys

import redis
from headgate.resilience.breaker import Breaker, BreakerOpen, Fleet


def say(word: str) -> None:
    """One line, at once."""
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


def main(port: str, name: str) -> None:
    """Read words, one a line: fail, call, report, switch STATE, quit."""
    breaker = Breaker(name, minimum=4, window=4, wait=600)
    client = redis.Redis(port=int(port), socket_timeout=20, socket_connect_timeout=20)
    fleet = Fleet(breaker, client, interval=0.05, ttl=60.0).start()
    say("ready")
    for line in sys.stdin:
        word, _, more = line.strip().partition(" ")
        if word == "quit":
            break
        if word == "switch":
            fleet.switch(more or None)
        for _ in range(4 if word == "fail" else 1 if word == "call" else 0):
            with contextlib.suppress(ValueError, BreakerOpen):
                breaker.call(int, "one" if word == "fail" else "1")
        say(breaker.state)
    fleet.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
