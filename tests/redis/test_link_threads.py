"""The sync link in many threads: own connections, interruptions, forks, and threads together."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from link_tools import EACH, HANG, INCR, LONG, client_id, echo, eventually, incr, merged, takes

from headgate.errors import StoreUnavailable
from headgate.stores.redis.link import Call, SyncLink, packed, read_address
from servers import Server


def link_to(server: Server, budget: float = LONG, **more: Any) -> SyncLink:
    return SyncLink(read_address(server.url)[0], budget=budget, **more)


@pytest.fixture
def other() -> Iterator[Server]:
    """A server of the test's own, to be mistreated."""
    with Server() as server:
        yield server


@pytest.fixture
def link(server: Server) -> Iterator[SyncLink]:
    made = link_to(server)
    yield made
    made.close()


def test_threads_have_connections_of_their_own(server: Server, link: SyncLink) -> None:
    ids: list[int] = []
    together = threading.Barrier(8)

    def work() -> None:
        for _ in range(2):
            ids.extend(link.ask([client_id()]))
            together.wait()

    for _ in range(3):  # threads that come later take over what was left
        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(set(ids[:16])) == 8
    assert len(set(ids)) <= 16


def test_a_call_in_the_middle_of_a_call(link: SyncLink) -> None:
    """A signal's handler asks too; nobody gets another's reply."""
    wrong: list[Any] = []
    inner = [0]

    def handler(number: int, frame: Any) -> None:
        inner[0] += 1
        text = b"inner %d" % inner[0]
        [reply] = link.ask([echo(text)])
        if reply != text and "middle of connecting" not in str(reply):
            wrong.append(reply)
        signal.setitimer(signal.ITIMER_REAL, 0.001)

    before = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.001)
    try:
        for number in range(2000):
            text = b"outer %d" % number
            assert link.ask([echo(text)]) == [text]
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert inner[0]
    assert not wrong


def test_an_exception_in_the_middle_of_a_call(link: SyncLink) -> None:
    """What interrupts a call leaves no reply behind for the next one."""

    class Stop(Exception):
        pass

    def handler(number: int, frame: Any) -> None:
        raise Stop

    before = signal.signal(signal.SIGALRM, handler)
    stopped = 0
    try:
        for number in range(300):
            text = b"%d" % number
            assert link.ask([echo(text)]) == [text]  # connected again
            try:
                signal.setitimer(signal.ITIMER_REAL, 0.0001 + number % 10 * 0.00003)
                for _ in range(20):
                    assert link.ask([echo(text)]) == [text]
                    assert link.one(packed(echo(text))) == text
                signal.setitimer(signal.ITIMER_REAL, 0)
            except Stop:
                stopped += 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert stopped
    assert link.ask([echo(b"end")]) == [b"end"]


def test_fork(link: SyncLink) -> None:
    [mine] = link.ask([client_id()])
    busy = threading.Event()
    stop = threading.Event()

    def work() -> None:  # so that locks are held and connections in use at the fork
        while not stop.is_set():
            link.ask([echo(b"busy")])
            busy.set()

    thread = threading.Thread(target=work)
    thread.start()
    busy.wait()
    try:
        for _ in range(5):
            out, into = os.pipe()
            child = os.fork()
            if child == 0:
                try:
                    [theirs] = link.ask([client_id()])
                    os.write(into, b"%d" % theirs)
                finally:
                    os._exit(0)
            os.close(into)
            os.waitpid(child, 0)
            theirs = int(os.read(out, 100))
            os.close(out)
            assert theirs != mine
            assert link.ask([client_id()]) == [mine]  # still connected, and the same
    finally:
        stop.set()
        thread.join()


@pytest.mark.parametrize("merge", [None, merged])
def test_threads_together(server: Server, merge: Any) -> None:
    """Every call is carried once, whoever carries it."""
    server.client().delete("hot")
    link = link_to(server, together=1, merge=merge)
    seen: list[int] = []

    def work() -> None:
        for _ in range(200):
            [[value]] = link.ask([Call(EACH, [b"hot"])])
            seen.append(value)

    threads = [threading.Thread(target=work) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    link.close()
    assert sorted(seen) == list(range(1, 2401))


def test_threads_together_at_a_silent_server(other: Server) -> None:
    link = link_to(other, 0.2, together=2)
    eventually(lambda: link.one(incr(b"a")))
    other.stop()
    slowest: list[float] = []

    def work() -> None:
        for _ in range(3):
            [reply], seconds = takes(lambda: link.ask([Call(INCR, [b"a"])]))
            assert isinstance(reply, StoreUnavailable)
            slowest.append(seconds)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(slowest) == 24
    assert max(slowest) < HANG
    other.go_on()
    eventually(lambda: link.one(incr(b"a")))
    link.close()
    other.close()
