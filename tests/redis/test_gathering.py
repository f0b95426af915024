"""Takes that travel together: each gets what it would have got alone."""

from __future__ import annotations

import asyncio
from random import Random
from struct import Struct

import pytest
from traces import Wire, instants, limit_text

from headgate import AsyncLimiter, Limit
from headgate.algorithms import rule_of
from headgate.stores.redis import codec
from headgate.stores.redis.answers import outcome_of
from headgate.stores.redis.link.gathering import MOST, SIZE
from headgate.stores.redis.scripts import script
from servers import Server

WORDS = ("gcra", "bucket", "meter", "debt", "queue", "fixed", "first", "sliding", "even", "warm")
ROOM = 1_000_000_000


def text_of(kind: str, random: Random) -> str:
    if kind == "cells":
        return f"{random.randint(1, 20)}/second cells {random.choice((2, 7, 60))}"
    if kind == "log":
        return f"{random.randint(1, 20)}/second sliding-log"
    return limit_text(kind, random)


@pytest.mark.parametrize("kind", [*WORDS, "cells", "log"])
def test_many_keys_in_one_call(kind: str, server: Server) -> None:
    """The same takes one by one, on keys of their own, bring the same answers and states."""
    random = Random(f"gathered {kind}")
    client = server.client()
    client.flushall()
    wire, apart = Wire(client), Wire(client)
    for number in range(60):
        rule = rule_of(Limit.parse(text_of(kind, random)))
        made = script("take", (codec.kind_of(rule),))
        keys = [b"%d %d" % (number, key) for key in range(4)]
        for at in instants(random, rule.limit.window, 6):
            how = codec.take_blob(codec.blob(rule, at), 1, 0, at, 1000)
            asked = random.sample(keys, random.randint(1, 4))
            counts = [random.choice((1, 1, 2, 5)) for _ in asked]
            wire.call(
                made,
                [b"all " + key for key in asked],
                (how, Struct(f"<{len(counts)}I").pack(*counts)),
            )
            for key, count in zip(asked, counts, strict=True):
                for _ in range(count):
                    apart.call(made, [b"one " + key], (how,))
            [together] = wire.send()
            answers = [together[at : at + SIZE] for at in range(0, len(together), SIZE)]
            alone = apart.send()
            assert [outcome_of(x) for x in answers] == [outcome_of(x) for x in alone], rule.limit
        for key in keys:
            assert client.get(b"all " + key) == client.get(b"one " + key), rule.limit
    wire.close()
    apart.close()
    client.close()


def test_more_keys_than_one_call_may_have(server: Server) -> None:
    async def work() -> None:
        async with AsyncLimiter("2/30d fixed-window", store=f"{server.url}?budget=10s") as limiter:
            await limiter.reset("0")
            keys = [str(number) for number in range(MOST + 40)] * 3
            decisions = await asyncio.gather(*(limiter.hit(key) for key in keys))
            for place in range(MOST + 40):
                mine = [bool(d) for d in decisions[place :: MOST + 40]]
                assert sorted(mine) == [False, True, True]  # whoever is the first

    server.client().flushall()
    asyncio.run(work())


def test_whoever_is_cancelled_before_leaving_has_asked_nothing(server: Server) -> None:
    async def work() -> None:
        async with AsyncLimiter(
            f"{ROOM}/30d fixed-window", store=f"{server.url}?budget=10s"
        ) as limiter:
            await limiter.hit("other")
            tasks = [asyncio.create_task(limiter.hit("k")) for _ in range(10)]
            await asyncio.sleep(0)  # they have asked, and nothing has left yet
            for task in tasks[::2]:
                task.cancel()
            found = await asyncio.gather(*tasks, return_exceptions=True)
            assert sum(isinstance(each, asyncio.CancelledError) for each in found) == 5
            used = ROOM - (await limiter.peek("k")).remaining
            assert used == 5
            assert [bool(each) for each in found[1::2]] == [True] * 5

    server.client().flushall()
    asyncio.run(work())


def test_all_of_a_gathering_cancelled(server: Server) -> None:
    async def work() -> None:
        async with AsyncLimiter("5/hour", store=f"{server.url}?budget=10s") as limiter:
            await limiter.hit("other")
            tasks = [asyncio.create_task(limiter.hit("k")) for _ in range(3)]
            await asyncio.sleep(0)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            assert bool(await limiter.hit("k"))

    server.client().flushall()
    asyncio.run(work())


def test_a_server_that_stops_is_late_for_each(server: Server) -> None:
    async def work() -> None:
        url = f"{server.url}?budget=100ms&on_error=deny"
        async with AsyncLimiter("1000/hour", store=url) as limiter:
            await limiter.hit("k")
            server.stop()
            try:
                found = await asyncio.gather(*(limiter.hit(str(n % 7)) for n in range(100)))
            finally:
                server.go_on()
            assert all(each.degraded and not each for each in found)

    asyncio.run(work())
