"""The async link: gathered calls, cancelled tasks, several loops, servers that fail."""

from __future__ import annotations

import asyncio
import gc
import os
import random
import threading
import time
import warnings
from collections.abc import Coroutine
from typing import Any

import pytest
from link_tools import EACH, HANG, INCR, LONG, asking, client_id, counting, echo, incr, merged

from headgate.errors import StoreError, StoreUnavailable
from headgate.stores.redis.link import AsyncLink, Call, Command, Target, read_address
from servers import Server, free_port


def link_to(server: Server, budget: float = LONG, **more: Any) -> AsyncLink:
    return AsyncLink(read_address(server.url)[0], budget=budget, **more)


async def eventually(link: AsyncLink, call: Call, seconds: float = 60.0) -> Any:
    end = time.monotonic() + seconds
    while True:
        try:
            [reply] = await link.ask([call])
        except StoreUnavailable as error:  # not connected at all yet
            reply = error
        if not isinstance(reply, StoreUnavailable):
            return reply
        assert time.monotonic() < end, reply
        await asyncio.sleep(0.005)


def test_replies(server: Server) -> None:
    server.client().flushall()

    async def work() -> None:
        link = link_to(server)
        assert await link.run(counting(b"a", 3)) == 3
        calls = (Call(INCR, [b"a"]), Command((b"NONSENSE",)), Call(INCR, [b"a"]))
        first, bad, last = await link.run(asking(*calls))
        assert (first, last) == (4, 5)
        assert isinstance(bad, StoreError)
        assert await link.one(incr(b"a")) == 6
        assert await link.run(asking()) == []
        text = b"x" * 3_000_000
        assert await link.ask([echo(text), echo(b"small")]) == [text, b"small"]
        server.client().script_flush()
        assert await link.one(incr(b"a")) == 7
        with pytest.raises(StoreError, match="unknown command"):
            await link.one(b"*1\r\n$8\r\nNONSENSE\r\n")
        await link.close()
        with pytest.raises(StoreError, match="closed"):
            await link.one(incr(b"a"))

    asyncio.run(work())


def test_calls_are_gathered(server: Server) -> None:
    """Tasks that ask at the same time share a connection, and where they can, a call."""
    client = server.client()
    client.flushall()

    def calls() -> int:
        return int(client.info("commandstats").get("cmdstat_evalsha", {}).get("calls", 0))

    async def work(link: AsyncLink) -> list[int]:
        await link.ask([Call(EACH, [b"warm"])])

        async def task() -> list[int]:
            return [(await link.ask([Call(EACH, [b"hot"])]))[0][0] for _ in range(10)]

        lists = await asyncio.gather(*[task() for _ in range(50)])
        assert all(values == sorted(values) for values in lists)
        ids = await asyncio.gather(*[link.ask([client_id()]) for _ in range(5)]) if not link.merge \
            else [[0]]  # fmt: skip
        assert len({found[0] for found in ids}) == 1
        return [value for values in lists for value in values]

    assert sorted(asyncio.run(work(link_to(server)))) == list(range(1, 501))
    client.delete("hot")
    before = calls()
    assert sorted(asyncio.run(work(link_to(server, merge=merged)))) == list(range(1, 501))
    assert calls() - before < 150


def test_cancellations(server: Server) -> None:
    """10,000 cancelled tasks: nobody ever sees a reply to another's call."""
    done = [0, 0]

    async def task(link: AsyncLink, number: int) -> None:
        try:
            text = b"%d" % number
            assert await link.ask([echo(text), echo(text + b"!")]) == [text, text + b"!"]
            done[0] += 1
        except asyncio.CancelledError:
            done[1] += 1
            raise

    async def work() -> None:
        link = link_to(server, 30.0)
        assert await link.ask([echo(b"warm")]) == [b"warm"]
        [mine] = await link.ask([client_id()])
        chance = random.Random(7)
        number = 0
        while done[1] < 10_000:
            tasks = []
            for _ in range(200):
                number += 1
                tasks.append(asyncio.create_task(task(link, number)))
            for _ in range(chance.randrange(6)):
                await asyncio.sleep(0)
            chance.shuffle(tasks)
            for one in tasks[:150]:
                one.cancel()
                if chance.random() < 0.01:
                    await asyncio.sleep(0)
            results = await asyncio.gather(*tasks, return_exceptions=True)
            assert not [r for r in results if isinstance(r, Exception)]
        assert await link.ask([client_id()]) == [mine]  # nothing had to be closed

    asyncio.run(work())
    assert done[0] > 1000


def test_several_loops(server: Server) -> None:
    link = link_to(server)
    ids: list[int] = []

    async def work() -> None:
        for number in range(100):
            text = b"%d %d" % (threading.get_ident(), number)
            assert await link.ask([echo(text)]) == [text]
        ids.extend(await link.ask([client_id()]))

    threads = [threading.Thread(target=lambda: asyncio.run(work())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    asyncio.run(work())
    assert len(set(ids)) == 5


def test_loops_that_end_leave_nothing_open(server: Server) -> None:
    link = link_to(server)

    async def work() -> None:
        assert await link.ask([echo(b"a")]) == [b"a"]

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(3):
            asyncio.run(work())
        gc.collect()


async def first_error(link: AsyncLink) -> tuple[Any, float]:
    start = time.monotonic()
    try:
        [reply] = await link.ask([Call(INCR, [b"a"])])
    except StoreUnavailable as error:
        reply = error
    return reply, time.monotonic() - start


def test_silent_server() -> None:
    async def work(server: Server) -> None:
        link = link_to(server, 0.5)
        first = await eventually(link, Call(INCR, [b"a"]))
        server.stop()
        for reply, seconds in await asyncio.gather(*[first_error(link) for _ in range(20)]):
            assert isinstance(reply, StoreUnavailable)
            assert reply.sent
            assert 0.4 < seconds < HANG
        replies = [await first_error(link) for _ in range(50)]
        assert all(isinstance(reply, StoreUnavailable) for reply, _ in replies)
        assert not any(reply.sent for reply, _ in replies[10:])  # nobody waits any more
        assert max(seconds for _, seconds in replies) < HANG
        server.go_on()
        while isinstance((last := await first_error(link))[0], StoreUnavailable):
            replies.append(last)
            assert len(replies) < 10_000
            await asyncio.sleep(0.005)
        sent = 20 + sum(reply.sent for reply, _ in replies) + 1
        assert last[0] <= first + sent  # calls that timed out may count, once each

    with Server() as server:
        asyncio.run(work(server))


def test_killed_while_calls_run() -> None:
    async def work(server: Server) -> None:
        link = link_to(server, 0.2)
        await eventually(link, echo(b"warm"))
        good, stop, slowest, odd = [0], [False], [0.0], []

        async def task(number: int) -> None:
            while not stop[0]:
                text = b"%d:%d" % (number, good[0])
                start = time.monotonic()
                try:
                    [reply] = await link.run(asking(echo(text)))
                except StoreUnavailable as error:
                    reply = error
                slowest[0] = max(slowest[0], time.monotonic() - start)
                if reply == text:
                    good[0] += 1
                elif not isinstance(reply, StoreUnavailable):
                    odd.append(reply)
                else:
                    await asyncio.sleep(0.002)

        tasks = [asyncio.create_task(task(n)) for n in range(8)]
        for _ in range(4):
            wanted, end = good[0] + 50, time.monotonic() + 60
            while good[0] < wanted:
                assert time.monotonic() < end, "no calls get through"
                await asyncio.sleep(0.01)
            server.kill()
            await asyncio.sleep(0.1)
            await asyncio.to_thread(server.start)
        stop[0] = True
        await asyncio.gather(*tasks)
        assert not odd
        assert slowest[0] < HANG

    with Server() as server:
        asyncio.run(work(server))


def test_nobody_there() -> None:
    target = Target("single", (("127.0.0.1", free_port()),), shown="there")

    async def work() -> None:
        link = AsyncLink(target)
        for _ in range(3):
            with pytest.raises(StoreUnavailable, match="there") as caught:
                await link.one(incr(b"a"))
            assert not caught.value.sent

    asyncio.run(work())


def test_bytes_that_trickle() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.read(1000)
            writer.write(b"+PONG\r\n-NOPERM no\r\n")
            await reader.read(1000)
            writer.write(b"$100000\r\n")
            while not reader.at_eof():
                writer.write(b"x")
                await writer.drain()
                await asyncio.sleep(0.005)
        except ConnectionError:
            pass
        finally:
            writer.close()

    async def work() -> None:
        listener = await asyncio.start_server(serve, "127.0.0.1", 0)
        place = ("127.0.0.1", listener.sockets[0].getsockname()[1])
        link = AsyncLink(Target("single", (place,), shown="slow"), budget=1.0)
        reply, seconds = await first_error(link)
        assert isinstance(reply, StoreUnavailable)
        assert reply.sent
        assert seconds < HANG
        await link.close()
        listener.close()

    asyncio.run(work())


def test_a_task_cancelled_while_connecting(server: Server) -> None:
    async def work() -> None:
        link = link_to(server)
        for _ in range(20):
            task = asyncio.create_task(link.ask([echo(b"a")]))
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert await link.ask([echo(b"b")]) == [b"b"]

    asyncio.run(work())


def test_cancelling_every_task_of_the_loop(server: Server) -> None:
    """The link's own tasks are cancelled too, and it goes on."""

    async def work() -> None:
        link = link_to(server)
        for number in range(20):
            asks = [asyncio.create_task(link.ask([echo(b"%d" % n)])) for n in range(5)]
            for _ in range(number % 7):
                await asyncio.sleep(0)
            for task in asyncio.all_tasks() - {asyncio.current_task()}:
                task.cancel()
            await asyncio.gather(*asks, return_exceptions=True)
        assert await link.ask([echo(b"b")]) == [b"b"]

    asyncio.run(work())


def test_fork(server: Server) -> None:
    link = link_to(server)

    async def id_of() -> int:
        [found] = await link.ask([client_id()])
        assert isinstance(found, int)
        return found

    def in_child(ask: Coroutine[Any, Any, int]) -> None:
        failed = 1
        try:
            asyncio.run(ask)
            failed = 0
        finally:
            os._exit(failed)

    async def work() -> None:
        mine = await id_of()
        child = os.fork()
        if child == 0:
            # A child of a coroutine: its parent's loop is not its own to run.
            asyncio.events._set_running_loop(None)
            in_child(id_of())
        assert (await asyncio.to_thread(os.waitpid, child, 0))[1] == 0
        assert await id_of() == mine

    asyncio.run(work())


def test_a_loop_ends_soon_though_nobody_answers() -> None:
    """`wait_for` may swallow a cancellation; dialling must end all the same."""

    async def work(turn: int) -> None:
        place = ("127.0.0.1", free_port())
        links = [AsyncLink(Target("single", (place,), shown="nobody")) for _ in range(3)]
        for link in links:
            for _ in range(3):
                [reply] = await link.ask([echo(b"a")])
                assert isinstance(reply, StoreUnavailable)
        await asyncio.sleep(0.01 * (turn % 10))

    for turn in range(40):
        start = time.monotonic()
        asyncio.run(work(turn))
        assert time.monotonic() - start < HANG  # one that is not cancelled dials for 30 s
