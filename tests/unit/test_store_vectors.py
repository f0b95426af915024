"""The published numbers of other systems once more, on a server."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
import test_vectors
from test_vectors import *  # noqa: F403 # every test of that file is a test of this one

from headgate import Ask, Limit, ManualClock, front
from headgate.stores.redis import RedisStore
from servers import Server

_serial = itertools.count()
# Those two let time pass between the turns of an event loop, in which a server has no time.
del test_nginx_limit_req, test_sentinel_pacing  # noqa: F821 # by the star above


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server() as started:
        yield started


@pytest.fixture(autouse=True)
def on_the_server(server: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every limiter and store of a test lies on the server, apart from those of others."""
    made: list[RedisStore] = []

    def make(store: Any = None, clock: Any = None) -> Any:
        if store is None:
            prefix = f"vector{next(_serial)}x"
            made.append(RedisStore(server.url, clock=clock, prefix=prefix, budget=5))
            return made[-1]
        return store

    monkeypatch.setattr(front, "open_store", make)
    monkeypatch.setattr(test_vectors, "MemoryStore", lambda clock: make(None, clock))
    yield
    for store in made:
        store.close()


@pytest.mark.parametrize(
    ("limit", "at", "answers", "patience"),
    [
        *(
            (*case, 60 if "queue" in case[0] and "nodelay" not in case[0] else 0)
            for case in test_vectors.NGINX
        ),
        (*test_vectors.PACING, 0.5),
    ],
)
def test_delays(
    limit: str, at: list[float], answers: list[Any], patience: float, server: Server
) -> None:
    clock = ManualClock(1_000_000)
    store = vars(front)["open_store"](None, clock)
    found: list[Any] = []
    for when in at:
        clock.advance(1_000_000 + when - clock.now())
        ask = Ask("take", Limit.parse(limit), "k", max_wait=int(patience * 1_000_000))
        (decision,) = store.decide([ask])
        found.append(round(decision.delay, 6) if decision else "refuse")
    assert found == answers
