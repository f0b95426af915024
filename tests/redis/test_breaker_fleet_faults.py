"""Fleets on a bad day: an emptied or restarted Redis, one that hangs, forks, odd clocks."""

from __future__ import annotations

import asyncio
import itertools
import os
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis.asyncio
from redis.backoff import NoBackoff
from redis.retry import Retry

from headgate import ManualClock
from headgate.resilience.breaker import AsyncFleet, Breaker, Fleet, Quorum, Standing
from headgate.resilience.notices import Notice
from servers import Server, until

Make = Callable[..., Fleet]
NAMES = (f"bad-day-{number}" for number in itertools.count())


@pytest.fixture
def make(server: Server, manual_clock: ManualClock) -> Iterator[Make]:
    """Nodes of one fleet, which report when they are told to."""
    made: list[Fleet] = []
    name = next(NAMES)

    def node(own: Server | None = None, clock: ManualClock = manual_clock, **options: Any) -> Fleet:
        breaker = Breaker(
            name, minimum=4, window=4, wait=5, probes=1, clock=clock, ramp=options.pop("ramp", 0.0)
        )
        client = (own or server).client(retry=Retry(NoBackoff(), 0))  # who is gone stays gone
        found = Fleet(breaker, client, **{"ttl": 60.0, **options})
        assert found.report()
        made.append(found)
        return found

    yield node
    for node_made in made:
        node_made.stop()


def sicken(*nodes: Fleet) -> None:
    for node in nodes:
        for _ in range(4):
            with pytest.raises(ZeroDivisionError):
                node.breaker.call(lambda: 1 / 0)


def all_report(nodes: list[Fleet], turns: int = 2) -> list[str]:
    for _ in range(turns):
        for node in nodes:
            node.report()
    return [node.breaker.state for node in nodes]


def forget(server: Server, name: str) -> None:
    """Empty a fleet's Redis, as a flush does and a restart without a file."""
    with server.client() as client:
        client.delete(*client.keys(f"headgate:breaker:{{{name}}}:*"))


# -- a Redis that forgets


def test_the_first_to_come_back_are_no_quorum(
    make: Make, server: Server, manual_clock: ManualClock
) -> None:
    nodes = [make() for _ in range(8)]
    sicken(*nodes[:2])
    expected = ["open"] * 2 + ["closed"] * 6
    assert all_report(nodes) == expected  # 2 of 8
    forget(server, nodes[0].breaker.name)
    for node in nodes[:3]:
        node.report()
    assert nodes[2].standing == Standing(3, 2, open=True, switch="")  # of the few that are known
    assert all_report(nodes)[2:] == expected[2:]
    assert nodes[2].standing == Standing(8, 2, open=False, switch="")
    manual_clock.advance(61)
    assert all_report(nodes)[2:] == expected[2:]
    sicken(*nodes[2:4])
    assert all_report(nodes)[4:] == ["open"] * 4  # a real quorum opens all, as ever


def test_nobody_is_opened_twice_by_the_same_quorum(
    make: Make, server: Server, manual_clock: ManualClock
) -> None:
    nodes = [make() for _ in range(4)]
    sicken(*nodes[:2])
    assert all_report(nodes) == ["open"] * 4
    manual_clock.advance(6)
    for node in nodes[2:]:
        assert node.breaker.call(int) == 0
    assert all_report(nodes)[2:] == ["closed"] * 2
    forget(server, nodes[0].breaker.name)
    assert all_report(nodes)[2:] == ["closed"] * 2
    manual_clock.advance(61)
    assert all_report(nodes)[2:] == ["closed"] * 2


def test_a_server_that_was_restarted(make: Make, manual_clock: ManualClock) -> None:
    with Server() as own:
        nodes = [make(own) for _ in range(6)]
        sicken(*nodes[:2])
        nodes[5].switch("metrics_only")
        assert all_report(nodes) == ["metrics_only"] * 6
        own.kill()
        assert not nodes[0].report()
        own.start()
        until(nodes[0].report)
        # It has no file, so the switch is forgotten too, and nodes begin anew.
        assert all_report(nodes) == ["closed"] * 6
        sicken(*nodes[:2])
        assert all_report(nodes) == ["open"] * 2 + ["closed"] * 4


def test_a_server_that_hangs_does_not_hold_up_who_leaves() -> None:
    with Server() as own:
        fleet = Fleet(Breaker("hangs"), own.client(), interval=0.05, ttl=0.5).start()
        until(lambda: fleet.standing)
        own.stop()
        start = time.monotonic()
        fleet.stop()  # the client has no time-out
        assert time.monotonic() - start < 30
        own.go_on()

    async def main(own: Server) -> None:
        async with redis.asyncio.Redis(port=own.port) as client:
            fleet = await AsyncFleet(Breaker("hangs"), client, interval=0.05, ttl=0.5).start()
            while fleet.standing is None:
                await asyncio.sleep(0.01)
            own.stop()
            async with asyncio.timeout(30):
                await fleet.stop()
            own.go_on()

    with Server() as own:
        asyncio.run(main(own))


# -- nodes that come and go


def test_a_fleet_that_is_stopped_and_started(server: Server) -> None:
    breaker = Breaker(next(NAMES), minimum=4, window=4)
    fleet = Fleet(breaker, server.client(), interval=0.5, ttl=60.0)
    other = Fleet(Breaker(breaker.name), server.client(), ttl=60.0)
    for _ in range(2):
        with fleet:
            until(lambda: other.report() and other.standing and other.standing.alive == 2)
            sicken(fleet)
            until(lambda: other.report() and other.standing and other.standing.sick == 1)
        until(lambda: other.report() and other.standing and other.standing.alive == 1)
        breaker.close()
    assert breaker.listeners == []
    other.stop()


def test_an_async_fleet_in_one_loop_after_the_other(server: Server) -> None:
    breaker = Breaker(next(NAMES))
    other = Fleet(Breaker(breaker.name), server.client(), ttl=60.0)

    async def main() -> None:
        async with redis.asyncio.Redis(port=server.port) as client:
            fleet._client = client
            async with fleet:
                for _ in range(3):  # it reports again, and not only once
                    fleet.standing = None
                    async with asyncio.timeout(60):
                        while fleet.standing is None:
                            await asyncio.sleep(0.01)
        other.report()

    fleet = AsyncFleet(breaker, server.client(), interval=0.01, ttl=60.0)
    for _ in range(2):
        asyncio.run(main())
        assert other.standing == Standing(1, 0, open=False, switch="")
    other.stop()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_forked_workers_are_nodes_of_their_own(server: Server) -> None:
    name = next(NAMES)
    fleet = Fleet(Breaker(name), server.client(), interval=5.0, ttl=60.0).start()
    named = Fleet(Breaker(name), server.client(), node="one", ttl=60.0)
    until(lambda: fleet.standing)
    children = []
    for _ in range(3):
        child = os.fork()
        if not child:
            code = 1
            try:
                fleet.standing = None
                fleet.start()  # the parent's thread stayed with the parent
                until(lambda: fleet.standing)
                code = 0 if named.node == "one" else 2
            finally:
                os._exit(code)
        children.append(child)
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    assert codes == [0, 0, 0]
    fleet.report()
    assert fleet.standing is not None
    assert fleet.standing.alive == 4
    fleet.stop()
    named.stop()


def test_clocks_of_nodes_may_differ(make: Make) -> None:
    nodes = [make(clock=ManualClock(start)) for start in (1, 10**6, 10**9, 4 * 10**9)]
    sicken(*nodes[:2])
    assert all_report(nodes) == ["open"] * 4


# -- what counts


def test_two_of_three_are_two_thirds(make: Make) -> None:
    nodes = [make(quorum=(2, 2 / 3)) for _ in range(3)]
    sicken(nodes[0])
    assert all_report(nodes)[1:] == ["closed"] * 2
    sicken(nodes[1])
    assert all_report(nodes) == ["open"] * 3


def test_a_quorum_may_be_a_number(make: Make) -> None:
    assert make(quorum=3).quorum == Quorum(3, 0.5)


def test_a_node_that_recovers_is_opened_by_a_new_quorum(
    make: Make, manual_clock: ManualClock
) -> None:
    nodes = [make(ramp=100.0) for _ in range(4)]
    nodes[3].breaker.open()
    manual_clock.advance(6)
    nodes[3].breaker.call(int)
    assert nodes[3].breaker.state == "recovering"
    sicken(nodes[0])
    # It is sick itself until it is closed, so these two are a quorum already.
    assert all_report(nodes) == ["open"] * 4


def test_a_notice_that_comes_late_makes_nobody_sick(make: Make) -> None:
    nodes = [make() for _ in range(2)]
    late = Notice("breaker.state", "", 0.0, {"before": "closed", "state": "open", "why": "late"})
    nodes[0]._changed(late)  # of a thread that was held up; it was closed meanwhile
    all_report(nodes)
    assert nodes[1].standing == Standing(2, 0, open=False, switch="")
