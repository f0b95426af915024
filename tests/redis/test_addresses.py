"""Addresses of servers, and clients in place of addresses."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis.asyncio
import valkey
import valkey.asyncio
from link_tools import LONG, client_id, counting, sentinel

import redis
from headgate.errors import StoreError
from headgate.stores.redis.link import (
    AsyncLink,
    Command,
    Options,
    SyncLink,
    Target,
    read_address,
    target_of,
)
from servers import Server


def test_plain_address() -> None:
    target, options = read_address("redis://example.org:7000/3")
    assert (target.kind, target.places, target.tls) == ("single", (("example.org", 7000),), False)
    assert target.arguments == {"db": 3}
    assert options == Options()
    assert options.budget == 0.020
    assert read_address("redis://")[0].places == (("localhost", 6379),)


@pytest.mark.parametrize("name", ["redis", "valkey"])
def test_kinds(name: str) -> None:
    assert read_address(f"{name}://h")[0].kind == "single"
    assert read_address(f"{name}s://h")[0].tls
    unix, _ = read_address(f"{name}+unix:///run/a%20b.sock?db=2")
    assert (unix.kind, unix.arguments) == ("unix", {"path": "/run/a b.sock", "db": 2})
    watched, _ = read_address(f"{name}+sentinel://a:1,b,[::1]:3/mymaster/4")
    assert watched.places == (("a", 1), ("b", 26379), ("::1", 3))
    assert (watched.kind, watched.service, watched.arguments) == ("sentinel", "mymaster", {"db": 4})
    cluster, _ = read_address(f"{name}+cluster://a,b:7001")
    assert (cluster.kind, cluster.places) == ("cluster", (("a", 6379), ("b", 7001)))
    assert read_address(f"{name}s+cluster://a")[0].tls
    assert read_address(f"{name}s+sentinel://a/x")[0].tls


def test_login() -> None:
    target, _ = read_address("redis://ann:p%40ss%3A@h")
    assert target.arguments == {"username": "ann", "password": "p@ss:"}
    assert read_address("redis://:secret@h")[0].arguments == {"password": "secret"}
    more = read_address("redis+sentinel://:a@h/x?sentinel_password=b")[0]
    assert (more.arguments, more.sentinel) == ({"password": "a"}, {"password": "b"})


def test_options() -> None:
    _, options = read_address(
        "redis://h?budget=50ms&connect_timeout=2&prefix=app&tag=t&on_error=deny&nodes=4&cache=no"
    )
    assert options == Options(0.05, 2.0, "app", "t", "deny", 4, cache=False)
    assert options.changed(nodes=5, tag=None) == Options(
        0.05, 2.0, "app", "t", "deny", 5, cache=False
    )


def test_tls_options() -> None:
    target, _ = read_address("rediss://h?ssl_ca_certs=/ca.pem&ssl_check_hostname=no")
    assert target.arguments == {"ssl_ca_certs": "/ca.pem", "ssl_check_hostname": False}
    assert target.connection(target.places[0], 1.0).port == 6379


@pytest.mark.parametrize(
    ("address", "says"),
    [
        ("redis", "begins with"),
        ("rediss+unix:///x", "begins with"),
        ("http://h", "begins with"),
        ("unix:///x", "begins with"),
        ("redis://h?bugdet=1", "no option 'bugdet'; known are budget, connect_timeout"),
        ("redis://h?ssl_ca_certs=x", "no option 'ssl_ca_certs'"),
        ("redis://h?budget=1&budget=2", "given twice"),
        ("redis://h?budget=fast", "budget is a time such as 20ms"),
        ("redis://h?budget=0", "budget is a time above 0"),
        ("redis://h?budget", "bad query field"),
        ("redis://h?on_error=panic", "on_error is allow, deny or local"),
        ("redis://h?nodes=0", "nodes is a whole number from 1"),
        ("redis://h?nodes=-1", "nodes is a whole number"),
        ("redis://h?cache=maybe", "cache is yes or no"),
        ("redis://h?prefix=a{b", "prefix is a word without braces"),
        ("redis://h/zero", "a database is a number"),
        ("redis://h/1/2", "a database is a number"),
        ("redis://h/1?db=2", "given twice"),
        ("redis://h#f", "%23"),
        ("redis://h:99999", "a host is written as"),
        ("redis://h:x", "a host is written as"),
        ("redis://a,b", "redis+cluster:// or a redis+sentinel://"),
        ("redis+unix://run/redis.sock", "third slash"),
        ("redis+unix://", "third slash"),
        ("redis+sentinel://h", "after the sentinels comes the service"),
        ("redis+cluster://h/1", "only database 0"),
    ],
)
def test_bad_addresses(address: str, says: str) -> None:
    with pytest.raises(StoreError) as caught:
        read_address(address)
    assert says in str(caught.value)


def test_passwords_are_not_shown() -> None:
    for address in (
        "redis://u:hush@h?x=1",
        "redis+sentinel://:hush@h/m?sentinel_password=hush&x=1",
    ):
        with pytest.raises(StoreError) as caught:
            read_address(address)
        assert "hush" not in str(caught.value)
    assert "hush" not in read_address("redis://u:hush@h")[0].shown


# -- with real servers


def ask_both(target: Target) -> list[int]:
    """What a counter says to the sync link and to the async one."""
    link = SyncLink(target, budget=LONG)
    try:
        first = link.run(counting(b"both", 2))
    finally:
        link.close()

    async def other() -> int:
        return await AsyncLink(target, budget=LONG).run(counting(b"both", 2))

    return [first, asyncio.run(other())]


@pytest.fixture(scope="module")
def locked() -> Iterator[Server]:
    """A server with a password."""
    with Server() as server:
        server.client().config_set("requirepass", "let:me@in")
        yield server


def test_tcp_and_socket(server: Server) -> None:
    server.client().delete("both")
    assert ask_both(read_address(f"redis://127.0.0.1:{server.port}")[0]) == [2, 4]
    assert ask_both(read_address(f"redis+unix://{server.socket}")[0]) == [6, 8]
    assert ask_both(read_address(f"valkey://127.0.0.1:{server.port}")[0]) == [10, 12]


def test_database_and_name(server: Server) -> None:
    target, _ = read_address(f"redis://127.0.0.1:{server.port}/5?client_name=gate")
    server.client(db=5).delete("both")
    assert ask_both(target) == [2, 4]
    assert server.client(db=5).get("both") == b"4"
    link = SyncLink(target, budget=LONG)
    assert link.ask([Command((b"CLIENT", b"GETNAME"))]) == [b"gate"]
    link.close()


def test_password(locked: Server) -> None:
    right, _ = read_address(f"redis://:let%3Ame%40in@127.0.0.1:{locked.port}")
    assert ask_both(right) == [2, 4]
    wrong, _ = read_address(f"redis://:no@127.0.0.1:{locked.port}")
    link = SyncLink(wrong)
    with pytest.raises(StoreError, match=r"(?i)password"):
        link.run(counting(b"both", 1))
    link.close()
    none, _ = read_address(f"redis://127.0.0.1:{locked.port}")
    link = SyncLink(none)
    with pytest.raises(StoreError, match="wants a user and a password"):
        link.run(counting(b"both", 1))
    link.close()


MAKERS: list[Callable[..., Any]] = [
    redis.Redis, redis.asyncio.Redis, valkey.Valkey, valkey.asyncio.Valkey,
]  # fmt: skip


@pytest.mark.parametrize("maker", MAKERS, ids=lambda m: f"{m.__module__}.{m.__name__}")
def test_clients(server: Server, maker: Callable[..., Any]) -> None:
    server.client(db=3).delete("both")
    client = maker(port=server.port, db=3, decode_responses=True, client_name="mine")
    assert ask_both(target_of(client)) == [2, 4]
    over_socket = maker(unix_socket_path=server.socket, db=3)
    assert target_of(over_socket).kind == "unix"
    assert ask_both(target_of(over_socket)) == [6, 8]


def test_client_of_a_locked_server(locked: Server) -> None:
    locked.client(password="let:me@in").delete("both")
    assert ask_both(target_of(redis.Redis(port=locked.port, password="let:me@in"))) == [2, 4]


def test_a_client_keeps_its_connections(server: Server) -> None:
    client = server.client()
    mine = client.client_id()
    link = SyncLink(target_of(client), budget=LONG)
    assert link.ask([client_id()]) != [mine]
    link.close()
    assert client.client_id() == mine


def test_what_is_no_client() -> None:
    for thing in (object(), redis, "redis://h"):
        with pytest.raises(TypeError, match="a client of redis-py"):
            target_of(thing)


def test_sentinel() -> None:
    with Server() as master, sentinel(master) as port:
        target, _ = read_address(f"redis+sentinel://127.0.0.1:1,127.0.0.1:{port}/mymaster")
        assert ask_both(target) == [2, 4]
        make: Any = importlib.import_module("redis.sentinel").Sentinel
        watched = make([("127.0.0.1", port)]).master_for("mymaster")
        assert target_of(watched).kind == "sentinel"
        assert ask_both(target_of(watched)) == [6, 8]
        unknown, _ = read_address(f"redis+sentinel://127.0.0.1:{port}/other")
        link = SyncLink(unknown)
        with pytest.raises(StoreError, match="other"):
            link.run(counting(b"both", 1))
        link.close()
