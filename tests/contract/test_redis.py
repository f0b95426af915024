"""The store contract on a real server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headgate import ManualClock
from headgate.stores.redis import RedisStore
from headgate.testing import StoreContract
from servers import Server


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server() as started:
        yield started


class TestRedisStore(StoreContract):
    @pytest.fixture(autouse=True)
    def place(self, server: Server) -> Iterator[None]:
        self.url = server.url
        self.made: list[RedisStore] = []
        yield
        for store in self.made:
            store.close()

    def make_store(self, clock: ManualClock) -> RedisStore:
        # A prefix of its own: a new store is an empty one.
        store = RedisStore(self.url, clock=clock, prefix=f"t{id(self)}x{len(self.made)}n", budget=5)
        self.made.append(store)
        return store
