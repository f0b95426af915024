"""`/readyz` says of the store what is so, from the first call on, and asks no more than it must."""

from __future__ import annotations

import contextlib
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from service_tools import Answer, Running, eventually, serving

from servers import Server, free_port

RULES = """
version: 1
defaults: {on_error: deny}
rules:
  - {name: api, match: {resource: api}, key: [user], limit: 1000/30d fixed-window}
"""


def ready(running: Running) -> Answer:
    with contextlib.closing(running.client()) as client:
        return client.get("/readyz")


def store(running: Running) -> str:
    answer = ready(running)
    assert answer.status == 200
    assert answer.json["ready"] is True  # it decides without its store, as on_error says
    found: str = answer.json["store"]
    return found


def test_a_redis_that_was_never_there() -> None:
    """Nobody but those who ask for it has called; then it comes, and is found."""
    port = free_port()
    with serving(RULES, "--store", f"redis://127.0.0.1:{port}/0?budget=10s") as running:
        assert store(running) == "away"
        assert store(running) == "away"
        with Server(port=port):
            eventually(lambda: store(running) == "there")
        eventually(lambda: store(running) == "away")


def test_a_redis_that_hangs() -> None:
    with (
        Server() as server,
        serving(RULES, "--store", f"{server.url}?budget=10s") as running,
    ):
        assert store(running) == "there"
        server.stop()
        try:
            with ThreadPoolExecutor(8) as threads:
                eventually(lambda: set(threads.map(lambda _: store(running), range(8))) == {"away"})
        finally:
            server.go_on()
        eventually(lambda: store(running) == "there")


def test_many_who_ask_are_one_question() -> None:
    with (
        Server() as server,
        serving(RULES, "--store", f"{server.url}?budget=10s") as running,
        server.client(decode_responses=True) as redis,
    ):
        assert store(running) == "there"

        def scripts() -> int:
            found = redis.info("commandstats")
            return sum(found.get(f"cmdstat_{name}", {"calls": 0})["calls"]
                       for name in ("eval", "evalsha"))  # fmt: skip

        before, began = scripts(), time.monotonic()
        with ThreadPoolExecutor(8) as threads:
            assert set(threads.map(lambda _: store(running), range(200))) == {"there"}
        seconds = time.monotonic() - began
        assert scripts() - before <= seconds + 2
        assert redis.dbsize() <= 1  # nothing is counted for it


@pytest.mark.parametrize("where", ["memory://", ""])
def test_a_store_within_reach(where: str) -> None:
    flags = ("--store", where) if where else ()
    with serving(RULES, *flags) as running:
        assert store(running) == "there"
