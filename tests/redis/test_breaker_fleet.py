"""Breakers of a fleet: a quorum opens all, one node does not, one switch forces all."""

from __future__ import annotations

import asyncio
import itertools
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis.asyncio
from redis.backoff import NoBackoff
from redis.retry import Retry

import redis
from headgate import ManualClock
from headgate.resilience.breaker import AsyncFleet, Breaker, Fleet, Standing
from headgate.resilience.breaker.shared import switch_command
from servers import Server, until

Make = Callable[..., Fleet]
NAMES = (f"db{number}" for number in itertools.count())


def impatient(server: Server) -> Any:
    """A client that tries once, and does not wait for ever."""
    return server.client(socket_timeout=20, retry=Retry(NoBackoff(), 0))


def sicken(node: Fleet | AsyncFleet) -> None:
    for _ in range(4):
        with pytest.raises(ZeroDivisionError):
            node.breaker.call(lambda: 1 / 0)


@pytest.fixture
def make(server: Server, manual_clock: ManualClock) -> Iterator[Make]:
    """Nodes of one fleet, which report when they are told to."""
    made: list[Fleet] = []
    name = next(NAMES)

    def node(client: Any = None, **options: Any) -> Fleet:
        breaker = Breaker(name, minimum=4, window=4, wait=5, probes=1, clock=manual_clock)
        found = Fleet(breaker, client or server.client(), **options)
        assert found.report()
        made.append(found)
        return found

    yield node
    for node_made in made:
        node_made.stop()


def all_report(nodes: list[Fleet], turns: int = 2) -> list[str]:
    for _ in range(turns):
        for node in nodes:
            node.report()
    return [node.breaker.state for node in nodes]


def test_one_sick_node_opens_nobody_elses(make: Make) -> None:
    nodes = [make() for _ in range(4)]
    sicken(nodes[0])
    assert all_report(nodes) == ["open", "closed", "closed", "closed"]
    assert nodes[1].standing == Standing(4, 1, open=False, switch="")


def test_a_quorum_opens_all(make: Make) -> None:
    nodes = [make() for _ in range(4)]
    sicken(nodes[0])
    sicken(nodes[1])
    assert all_report(nodes) == ["open"] * 4
    assert nodes[3].standing == Standing(4, 2, open=True, switch="")
    late = make()
    assert late.breaker.state == "closed"  # 2 of 5 are no longer half
    assert late.breaker.metrics().opened == 0


def test_who_joins_while_the_quorum_is_sick_is_opened_too(make: Make) -> None:
    nodes = [make(quorum=(2, 0.0)) for _ in range(2)]
    for node in nodes:
        sicken(node)
    all_report(nodes)
    assert make(quorum=(2, 0.0)).breaker.state == "open"


def test_each_comes_back_by_its_own_probes(make: Make, manual_clock: ManualClock) -> None:
    nodes = [make() for _ in range(4)]
    for node in nodes[:2]:
        sicken(node)
    assert all_report(nodes) == ["open"] * 4
    manual_clock.advance(6)
    assert nodes[3].breaker.call(int) == 0
    # The two are sick still, but nobody is opened twice by the same quorum.
    assert all_report(nodes) == ["half_open"] * 3 + ["closed"]
    for node in nodes[:3]:
        node.breaker.call(int)
    assert all_report(nodes) == ["closed"] * 4
    assert nodes[0].standing == Standing(4, 0, open=False, switch="")
    for node in nodes[2:]:
        sicken(node)
    assert all_report(nodes) == ["open"] * 4  # a new quorum


def test_who_was_opened_by_the_fleet_and_fails_its_probe_is_sick_itself(
    make: Make, manual_clock: ManualClock
) -> None:
    nodes = [make() for _ in range(4)]
    for node in nodes[:2]:
        sicken(node)
    all_report(nodes)
    manual_clock.advance(6)
    with pytest.raises(ZeroDivisionError):
        nodes[3].breaker.call(lambda: 1 / 0)
    all_report(nodes)
    assert nodes[0].standing == Standing(4, 3, open=True, switch="")


@pytest.mark.parametrize(
    ("quorum", "needed"), [((1, 0.0), 1), ((3, 0.0), 3), ((1, 0.75), 3), ((2, 1.0), 4)]
)
def test_quorums(make: Make, quorum: tuple[int, float], needed: int) -> None:
    nodes = [make(quorum=quorum) for _ in range(4)]
    for number in range(needed):
        assert all_report(nodes) == ["open"] * number + ["closed"] * (4 - number)
        sicken(nodes[number])
    assert all_report(nodes) == ["open"] * 4


def test_dead_nodes_do_not_count(make: Make, manual_clock: ManualClock) -> None:
    dead = [make(ttl=0.05, interval=0.01) for _ in range(6)]
    sicken(dead[0])
    dead[0].report()
    nodes = [make() for _ in range(2)]
    sicken(nodes[0])
    until(lambda: all_report(nodes) and nodes[0].standing == Standing(2, 1, open=False, switch=""))
    nodes[1].stop()
    nodes[0].report()
    assert nodes[0].standing == Standing(1, 1, open=False, switch="")


@pytest.mark.parametrize("state", ["forced_open", "disabled", "metrics_only"])
def test_one_switch_forces_all(make: Make, state: str) -> None:
    nodes = [make() for _ in range(3)]
    nodes[0].switch(state)
    assert all_report(nodes) == [state] * 3
    assert make().breaker.state == state
    nodes[1].breaker.close()  # by hand, here alone
    assert all_report(nodes) == [state, "closed", state]
    nodes[0].switch(None)
    assert all_report(nodes) == ["closed"] * 3


def test_a_mistaken_switch(make: Make) -> None:
    with pytest.raises(ValueError, match="switched to one of 'forced_open', 'disabled'"):
        make().switch("ajar")
    assert switch_command("db", None) == ("DEL", "headgate:breaker:{db}:switch")


@pytest.mark.parametrize("keep", [False, True])
def test_a_lost_redis_leaves_each_node_with_its_own(
    make: Make, keep: bool, manual_clock: ManualClock
) -> None:
    with Server() as own:
        nodes = [make(impatient(own), ttl=20.0, keep_switch=keep) for _ in range(3)]
        nodes[0].switch("forced_open")
        assert all_report(nodes) == ["forced_open"] * 3
        own.kill()
        assert not nodes[0].report()
        assert isinstance(nodes[0].error, redis.RedisError)
        assert all_report(nodes) == ["forced_open"] * 3  # for a while nothing changes
        manual_clock.advance(21)
        assert all_report(nodes) == ["forced_open" if keep else "closed"] * 3
        if not keep:
            assert nodes[0].standing is None
            sicken(nodes[0])
            assert all_report(nodes) == ["open", "closed", "closed"]
            manual_clock.advance(6)
            assert nodes[0].breaker.call(int) == 0
            assert nodes[0].breaker.state == "closed"


def test_a_stopped_redis_holds_up_no_call(make: Make) -> None:
    with Server() as own:
        client = impatient(own)
        node = make(client)
        with Fleet(Breaker(node.breaker.name), client, interval=0.05):
            own.stop()
            start = time.monotonic()
            for _ in range(1000):
                node.breaker.call(int)
            assert time.monotonic() - start < 10  # not even once for the server
            own.go_on()


def test_an_async_fleet(server: Server) -> None:
    name = next(NAMES)

    async def main() -> None:
        async with redis.asyncio.Redis(port=server.port) as client:
            made = [Breaker(name, minimum=4, window=4, wait=600) for _ in range(3)]
            nodes = [AsyncFleet(breaker, client, interval=5.0, ttl=20.0) for breaker in made]
            for node in nodes:
                await node.start()
            for node in nodes[:2]:
                sicken(node)  # reported at once, though the interval is long
            for _ in range(6000):
                await asyncio.sleep(0.01)
                if nodes[0].standing and nodes[0].standing.open:
                    break
            await nodes[2].report()
            assert [breaker.state for breaker in made] == ["open"] * 3
            await nodes[0].switch("disabled")
            await nodes[1].report()
            assert made[1].state == "disabled"
            await nodes[0].switch(None)
            for node in nodes:
                await node.stop()
            assert await client.zcard(f"headgate:breaker:{{{name}}}:alive") == 0

    asyncio.run(main())


def test_every_key_ends_by_itself_but_the_switch(server: Server, make: Make) -> None:
    nodes = [make() for _ in range(2)]
    for node in nodes:
        sicken(node)
    all_report(nodes)
    with server.client() as client:
        keys = client.keys(f"headgate:breaker:{{{nodes[0].breaker.name}}}:*")
        assert len(keys) == 3
        assert all(0 < client.pttl(key) <= 60_000 for key in keys)


def test_processes(server: Server) -> None:
    """Nodes that share nothing but the server."""
    name = next(NAMES)
    worker = [sys.executable, str(Path(__file__).with_name("fleet_worker.py"))]
    nodes = [
        subprocess.Popen(
            [*worker, str(server.port), name],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        for _ in range(4)
    ]  # fmt: skip

    def say(node: subprocess.Popen[str], word: str) -> str:
        assert node.stdin is not None
        assert node.stdout is not None
        node.stdin.write(f"{word}\n")
        node.stdin.flush()
        return node.stdout.readline().strip()

    def states() -> list[str]:
        return [say(node, "call") for node in nodes]

    try:
        for node in nodes:
            assert node.stdout is not None
            assert node.stdout.readline() == "ready\n"
        with server.client() as client:
            until(lambda: client.zcard(f"headgate:breaker:{{{name}}}:alive") == 4)
        assert say(nodes[0], "fail") == "open"
        time.sleep(0.2)  # several reports of everybody
        assert states() == ["open", "closed", "closed", "closed"]
        say(nodes[1], "fail")
        until(lambda: states() == ["open"] * 4)
        say(nodes[2], "switch metrics_only")
        until(lambda: states() == ["metrics_only"] * 4)
        say(nodes[2], "switch")
        until(lambda: states() == ["closed"] * 4)
    finally:
        for node in nodes:
            node.communicate("quit\n", timeout=60)
    assert [node.returncode for node in nodes] == [0] * 4


def test_mistakes(server: Server) -> None:
    client = server.client()
    with pytest.raises(ValueError, match="needs a name"):
        Fleet(Breaker(), client)
    with pytest.raises(ValueError, match="between 0 and the ttl"):
        Fleet(Breaker("db"), client, interval=9.0)
    with pytest.raises(ValueError, match="a share up to 1"):
        Fleet(Breaker("db"), client, quorum=(2, 50))
