"""The store contract for a user who may do no more than the store needs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headgate import Limit, Limiter, ManualClock
from headgate.errors import StoreError
from headgate.stores.redis import RedisStore
from headgate.testing import StoreContract
from servers import Server

RIGHTS = ["evalsha", "script|load", "get", "set", "del", "time", "hset", "hget"]
"""All that is needed; scripts call time, get, set and del."""
QUIET = ["ping", "info"]
"""What is asked too, and done without if it is refused: a new connection is greeted, and the
server's settings are looked at once."""
PREFIX = "t"


def grant(server: Server, name: str, rights: list[str], keys: str = f"~{PREFIX}*") -> str:
    """The URL of a new user with these rights only."""
    with server.client() as client:
        client.execute_command(
            "ACL", "SETUSER", name, "reset", "on", ">secret", keys, "-@all",
            *(f"+{right}" for right in rights),
        )  # fmt: skip
    return server.url.replace("redis://", f"redis://{name}:secret@")


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server() as started:
        yield started


class TestRedisStoreOfAPoorUser(StoreContract):
    @pytest.fixture(autouse=True)
    def place(self, server: Server) -> Iterator[None]:
        self.url = grant(server, "limiter", RIGHTS)
        self.made: list[RedisStore] = []
        yield
        for store in self.made:
            store.close()

    def make_store(self, clock: ManualClock) -> RedisStore:
        # A prefix of its own: a new store is an empty one.
        prefix = f"{PREFIX}{id(self)}x{len(self.made)}n"
        store = RedisStore(self.url, clock=clock, prefix=prefix, budget=5)
        self.made.append(store)
        return store


def use(url: str, prefix: str) -> None:
    """Everything that needs a right of its own."""
    store = RedisStore(url, prefix=prefix, budget=5)
    try:
        limiter = Limiter("5/hour", store=store)
        for _ in range(2):
            assert limiter.hit("k")
        limiter.set_limit("k", "9/hour gcra")
        assert limiter.get_limit("k")[0].amount == 9
        limiter.reset("k")
        limiter.set_limit("k", None)
        # Another process, after a deployment: the state of an unknown limit is looked up.
        assert Limiter("5/hour gcra name moved", store=store).hit("k")
        later = RedisStore(url, prefix=prefix, budget=5)
        assert Limiter("7/hour name moved", store=later).hit("k")
        later.close()
        slots = Limiter("2 concurrent", store=store)
        with slots.hold("k"):
            assert slots.peek("k").remaining == 1
    finally:
        store.close()


def test_what_is_needed_is_enough(server: Server) -> None:
    use(grant(server, "enough", RIGHTS), f"{PREFIX}enough")


@pytest.mark.parametrize("right", [right for right in RIGHTS if right != "hset"])
def test_each_right_is_needed_and_missed(right: str, server: Server) -> None:
    with server.client() as client:
        client.script_flush()
    name = f"without {right}".replace(" ", "-").replace("|", "-")
    url = grant(server, name, [other for other in RIGHTS if other != right])
    with pytest.raises(StoreError, match="lacks a right"):
        use(url, f"{PREFIX}{name}")


def test_without_a_register_a_changed_limit_starts_anew(server: Server) -> None:
    url = grant(server, "forgetful", [right for right in RIGHTS if right != "hset"])
    store = RedisStore(url, prefix=f"{PREFIX}forgetful", budget=5)
    assert Limiter("5/hour gcra name a", store=store).hit("k", cost=5)
    assert not Limiter("5/hour gcra name a", store=store).hit("k")
    assert Limiter("6/hour name a", store=store).hit("k").remaining == 5
    store.close()


def test_keys_of_others_are_out_of_reach(server: Server) -> None:
    url = grant(server, "stranger", RIGHTS, "~other*")
    store = RedisStore(url, prefix=PREFIX, budget=5)
    with pytest.raises(StoreError, match=r"lacks a right.*keys"):
        Limiter(Limit.parse("5/hour"), store=store).hit("k")
    store.close()


def test_nothing_else_is_asked_of_the_server(server: Server) -> None:
    with server.client() as client:
        client.execute_command("ACL", "LOG", "RESET")
        use(grant(server, "watched", [*RIGHTS, *QUIET]), f"{PREFIX}watched")
        assert client.execute_command("ACL", "LOG") == []
