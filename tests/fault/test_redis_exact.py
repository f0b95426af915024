"""Processes of threads and of tasks on one server: exactly what the limit allows is admitted."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from servers import Server

from .support import run_helper
from .support_redis import SCALE
from .support_redis_exact import COLOURS, EACH, KEYS, MORE, PERMITS, SETS, WAYS, workers_of

CALLS = {
    "threads": {"one": 30, "keys": 50, "many": 10, "opened": 50},
    "tasks": {"one": 8, "keys": 10, "many": 4, "opened": 10},
}
"""How often each thread or task calls."""


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server() as started:
        yield started


@pytest.fixture(autouse=True)
def empty(server: Server) -> None:
    with server.client() as client:
        client.flushall()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("colour", COLOURS)
def test_exactly_the_limit(colour: str, way: str, server: Server) -> None:
    calls = CALLS[colour][way] * SCALE
    found = json.loads(run_helper("support_redis_exact", server.url, colour, way, calls))
    for name, (amount, counts, left) in found.items():
        if way == "one":
            assert counts == {"one": amount}, name
        else:
            assert len(counts) == KEYS, name
            assert set(counts.values()) == {EACH}, name
        # Refusals were charged to none of the limits.
        rest = [MORE * number for number in range(len(SETS[name]))]
        assert all(parts == rest for parts in left.values()), name


@pytest.mark.parametrize("colour", COLOURS)
def test_never_too_many_inside(colour: str, server: Server) -> None:
    calls = 3 if colour == "threads" else 1
    found = json.loads(run_helper("support_redis_exact", server.url, colour, "permits", calls))
    assert found["held"] == workers_of(colour) * calls
    assert set(found) <= {"held", *(f"saw {number + 1}" for number in range(PERMITS))}
