"""The sync link: with a real server, and with one that is stopped, killed, or hostile."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from link_tools import (
    EACH,
    HANG,
    INCR,
    LONG,
    asking,
    client_id,
    counting,
    echo,
    eventually,
    incr,
    takes,
)

from headgate.errors import StoreError, StoreUnavailable
from headgate.stores.redis.link import Call, Command, SyncLink, Target, read_address
from headgate.stores.redis.link.replies import PENDING, PlainReader, ReplyError, reader
from servers import Server, free_port, until


def link_to(server: Server, budget: float = LONG, **more: Any) -> SyncLink:
    return SyncLink(read_address(server.url)[0], budget=budget, **more)


@pytest.fixture
def link(server: Server) -> Iterator[SyncLink]:
    server.client().flushall()
    made = link_to(server)
    yield made
    made.close()


@pytest.fixture
def other() -> Iterator[Server]:
    """A server of the test's own, to be mistreated."""
    with Server() as server:
        yield server


def test_replies_in_order(link: SyncLink) -> None:
    assert link.run(counting(b"a", 3)) == 3
    calls = (Call(INCR, [b"a"]), Command((b"GET", b"a")), Call(INCR, [b"a"]))
    assert link.run(asking(*calls)) == [4, b"4", 5]
    assert link.one(incr(b"a")) == 6
    assert link.run(asking()) == []
    assert link.slot(b"a") == 0


def test_errors_are_values_in_a_flow(link: SyncLink) -> None:
    first, bad, last = link.run(
        asking(Call(INCR, [b"a"]), Command((b"NONSENSE",)), Call(INCR, [b"a"]))
    )
    assert (first, last) == (1, 2)
    assert isinstance(bad, StoreError)
    assert "unknown command" in str(bad)
    with pytest.raises(StoreError, match="not an integer"):
        link.one(incr(b"text") if link.ask([Command((b"SET", b"text", b"x"))]) else b"")


def test_lost_scripts_are_loaded_again(server: Server, link: SyncLink) -> None:
    client = server.client()
    link.one(incr(b"a"))
    for _ in range(3):
        client.script_flush()
        assert link.one(incr(b"b")) == 1
        client.script_flush()
        both = asking(Call(INCR, [b"b"]), Command((b"INCR", b"a")), Call(EACH, [b"b"]))
        assert link.run(both)[::2] == [2, [3]]
        client.delete("b")
    assert client.get("a") == b"4"  # what was carried out is not sent again


def test_large_calls_and_replies(link: SyncLink) -> None:
    text = b"x" * 3_000_000
    assert link.run(asking(echo(text), echo(b"small"))) == [text, b"small"]
    keys = [b"k%d" % number for number in range(3000)]
    assert link.run(asking(Call(EACH, keys))) == [[1] * 3000]


def test_full_memory_is_unavailability(other: Server) -> None:
    link = link_to(other)
    assert link.one(incr(b"a")) == 1
    other.client().config_set("maxmemory", "1")
    with pytest.raises(StoreUnavailable, match="maxmemory") as caught:
        link.one(incr(b"a"))
    assert not caught.value.sent
    other.client().config_set("maxmemory", "0")
    assert link.one(incr(b"a")) == 2
    link.close()


def test_missing_rights_are_named(other: Server) -> None:
    other.client().execute_command("ACL SETUSER ann on >pw ~hg* +ping")
    target, _ = read_address(f"redis://ann:pw@127.0.0.1:{other.port}")
    link = SyncLink(target, budget=LONG)
    with pytest.raises(StoreError, match=r"\+evalsha") as caught:
        link.one(incr(b"hg"))
    assert not isinstance(caught.value, StoreUnavailable)
    other.client().execute_command("ACL SETUSER ann +evalsha")
    with pytest.raises(StoreError, match=r"\+script"):
        link.one(incr(b"hg"))
    other.client().execute_command("ACL SETUSER ann +script +incr")
    assert link.one(incr(b"hg")) == 1
    with pytest.raises(StoreError, match="lacks a right"):
        link.one(incr(b"elsewhere"))
    link.close()


def test_a_replica_is_not_written_to(other: Server) -> None:
    link = link_to(other, 1.0)
    eventually(lambda: link.one(incr(b"a")))
    with Server() as master:
        other.client().replicaof("127.0.0.1", master.port)
        with pytest.raises(StoreUnavailable) as caught:
            link.one(incr(b"a"))
        assert not caught.value.sent
        other.client().replicaof("NO", "ONE")
        assert isinstance(eventually(lambda: link.one(incr(b"a"))), int)
    link.close()


def test_nobody_there() -> None:
    target = Target("single", (("127.0.0.1", free_port()),), shown="there")
    link = SyncLink(target)
    for _ in range(5):
        error, seconds = takes(lambda: link.one(incr(b"a")))
        assert isinstance(error, StoreUnavailable)
        assert "there" in str(error)
        assert not error.sent
        assert seconds < HANG
    link.close()


def test_silent_server(other: Server) -> None:
    link = link_to(other, 0.5)
    sent = 0

    def ask() -> Any:
        nonlocal sent
        reply, seconds = takes(lambda: link.one(incr(b"a")))
        sent += getattr(reply, "sent", True)
        return reply, seconds

    def answered() -> int:
        return until(lambda: isinstance(found := ask()[0], int) and found)  # type: ignore[no-any-return] # what it found

    first, sent = answered(), 0
    other.stop()
    error, seconds = ask()
    assert isinstance(error, StoreUnavailable)
    assert error.sent
    assert 0.4 < seconds < HANG
    for _ in range(100):  # nobody waits for a server that did not answer
        error, seconds = ask()
        assert isinstance(error, StoreUnavailable)
        assert not error.sent
        assert seconds < HANG
    other.go_on()
    assert answered() <= first + sent  # calls that timed out may count, once each
    link.close()


def test_killed_while_calls_run(other: Server) -> None:
    link = link_to(other, 0.1)
    stop = threading.Event()
    slowest, odd, good = [0.0], [], [0]

    def work(number: int) -> None:
        while not stop.is_set():
            text = b"%d:%d" % (number, good[0])
            reply, seconds = takes(partial(_first, link, text))
            slowest[0] = max(slowest[0], seconds)
            if reply == text:
                good[0] += 1
            elif not isinstance(reply, StoreUnavailable):
                odd.append(reply)
            else:
                time.sleep(0.001)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(4):
        wanted = good[0] + 50
        until(partial(_reached, good, wanted), 60, "no calls get through")
        other.kill()
        time.sleep(0.1)
        other.start()
    stop.set()
    for thread in threads:
        thread.join()
    link.close()
    assert not odd
    assert slowest[0] < HANG


def _first(link: SyncLink, text: bytes) -> Any:
    return link.ask([echo(text)])[0]


def _reached(count: list[int], wanted: int) -> bool:
    return count[0] >= wanted


def test_bytes_that_trickle() -> None:
    """A reply that is always about to arrive: each read succeeds, and the call still ends."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    peer, _ = listener.accept()
                except OSError:
                    return
                with peer:
                    try:
                        peer.recv(1000)
                        peer.sendall(b"+PONG\r\n-NOPERM no\r\n")
                        peer.recv(1000)
                        peer.sendall(b"$100000\r\n")
                        while True:
                            peer.sendall(b"x")
                            time.sleep(0.005)
                    except OSError:
                        continue

        threading.Thread(target=serve, daemon=True).start()
        target = Target("single", (("127.0.0.1", listener.getsockname()[1]),), shown="slow")
        for name in ("one", "ask"):
            link = SyncLink(target, budget=1.0)
            ask = partial(link.one, incr(b"a")) if name == "one" else partial(_first, link, b"a")
            error, seconds = takes(ask)
            assert isinstance(error, StoreUnavailable)
            assert error.sent
            assert seconds < HANG
            link.close()
        listener.shutdown(socket.SHUT_RDWR)


def test_connections_that_the_server_closed(server: Server, link: SyncLink) -> None:
    [mine] = link.ask([client_id()])
    server.client().client_kill_filter(_id=str(mine))
    time.sleep(0.3)  # idle for longer than a connection is trusted unseen
    assert link.one(incr(b"a")) == 1


def test_closed(link: SyncLink) -> None:
    link.one(incr(b"a"))
    link.close()
    link.close()
    for _ in range(2):
        with pytest.raises(StoreError, match="closed"):
            link.one(incr(b"a"))


def test_background_threads_end(other: Server) -> None:
    before = _dialing()  # of other tests, whose servers are gone
    link = link_to(other)
    link.one(incr(b"a"))
    until(lambda: _dialing() <= before, 60, "a thread with nothing to do stays")
    other.kill()
    with pytest.raises(StoreUnavailable):
        link.one(incr(b"a"))
    assert not _dialing() <= before
    link.close()
    until(lambda: _dialing() <= before, 60, "a thread outlives its link")


def _dialing() -> set[threading.Thread]:
    return {one for one in threading.enumerate() if one.name.startswith("headgate-dial")}


def test_nonsense_from_the_server() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with listener.accept()[0] as peer:
                for answer in (b"+PONG\r\n-NOPERM no\r\n", b"HTTP/1.1 400 Bad Request\r\n\r\n"):
                    peer.recv(1000)
                    peer.sendall(answer)

        threading.Thread(target=serve, daemon=True).start()
        target = Target("single", (("127.0.0.1", listener.getsockname()[1]),), shown="odd")
        link = SyncLink(target, budget=LONG)
        with pytest.raises(StoreUnavailable, match="odd was lost") as caught:
            link.one(incr(b"a"))
        assert caught.value.sent
        link.close()


def test_reading_without_hiredis() -> None:
    """The plain reader says what hiredis says, wherever the bytes are cut."""
    stream = (
        b"+OK\r\n:42\r\n$-1\r\n$3\r\na\r\n\r\n*-1\r\n*0\r\n*3\r\n:1\r\n*1\r\n$0\r\n\r\n$-1\r\n"
        b"-ERR Error running script: @user_script: 1: -READONLY no writes\r\n-NOSCRIPT gone\r\n"
    )
    feed, gets = reader()
    feed(stream)
    wanted = [_plain(gets()) for _ in range(9)]
    assert wanted[:3] == [b"OK", 42, None]
    assert wanted[-2:] == ["READONLY", "NOSCRIPT"]
    for size in (1, 2, 3, 7, len(stream)):
        plain = PlainReader()
        found = []
        for start in range(0, len(stream), size):
            plain.feed(stream[start : start + size])
            while (reply := plain.gets()) is not PENDING:
                found.append(_plain(reply))
        assert found == wanted


def _plain(reply: Any) -> Any:
    return reply.code if isinstance(reply, ReplyError) else reply
