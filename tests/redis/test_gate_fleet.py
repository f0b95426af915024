"""Fleets of a rules file: breakers of many gates on one Redis, with a quorum and one switch."""

from __future__ import annotations

import asyncio
import gc
import itertools
import os
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from headgate import AsyncGate, Facts, Gate
from servers import Server, until

NAMES = (f"shop{{{number}}}" for number in itertools.count())
RULES = """
version: 1
policies:
  - name: pay
    breaker: {failures: 50%, window: 4 calls, open: 600sMORE}
"""
FLEET = ", fleet: {quorum: 2, share: 50%, every: 20ms, ttl: 20s}"
Make = Callable[..., Any]


def rules(more: str = FLEET) -> str:
    return RULES.replace("MORE", more)


@pytest.fixture
def make(server: Server) -> Iterator[Make]:
    made: list[Gate] = []
    name = next(NAMES)

    def gate(more: str = FLEET) -> Gate:
        made.append(Gate(rules(more), server.url, name=name))
        return made[-1]

    yield gate
    for each in made:
        each.close()


def call(gate: Gate, outcome: str = "success") -> bool:
    verdict = gate.check(Facts(resource="pay"))
    if verdict:
        verdict.permit.release(outcome)
    return bool(verdict)


def sicken(gate: Gate) -> None:
    for _ in range(4):
        call(gate, "failure")
    assert gate.breaker("pay").state == "open"


def states(gates: list[Gate]) -> list[str]:
    return [gate.breaker("pay").state for gate in gates]


def alive(gate: Gate, count: int) -> None:
    until(lambda: (gate.policies()["pay"].get("fleet") or {"alive": 0})["alive"] == count)


def fleets() -> int:
    return sum(thread.name == "headgate fleet pay" for thread in threading.enumerate())


def test_a_quorum_opens_all_and_one_does_not(make: Make) -> None:
    gates = [make() for _ in range(4)]
    assert all(call(gate) for gate in gates)  # from the first call on they are in it
    alive(gates[0], 4)
    sicken(gates[0])
    until(lambda: gates[3].policies()["pay"]["fleet"]["sick"] == 1)
    assert states(gates) == ["open", "closed", "closed", "closed"]
    sicken(gates[1])
    until(lambda: states(gates) == ["open"] * 4)
    assert not call(gates[3])
    assert gates[3].policies()["pay"]["fleet"] == {
        "alive": 4, "sick": 2, "open": True, "switch": "",
    }  # fmt: skip


def test_one_switch_forces_all(make: Make) -> None:
    gates = [make() for _ in range(3)]
    assert all(call(gate) for gate in gates)
    gates[0].fleet("pay").switch("forced_open")
    until(lambda: states(gates) == ["forced_open"] * 3)
    assert not call(gates[2])
    gates[1].fleet("pay").switch(None)
    until(lambda: states(gates) == ["closed"] * 3)
    with pytest.raises(LookupError, match="no fleet in Redis; those that have: pay"):
        gates[0].fleet("play")


def test_tasks_have_the_same_fleet(make: Make, server: Server) -> None:
    plain = make()
    assert call(plain)

    async def main() -> None:
        gate = AsyncGate(rules(), server.url, name=plain.name)
        async with gate:
            assert await gate.check(Facts(resource="pay"))
            await asyncio.to_thread(gate.fleet("pay").switch, "disabled")
            while gate.breaker("pay").state != "disabled":
                await asyncio.sleep(0.005)
        await asyncio.to_thread(until, lambda: plain.breaker("pay").state == "disabled")
        await asyncio.to_thread(alive, plain, 1)  # who closes its gate has left

    asyncio.run(main())
    plain.fleet("pay").switch(None)


def test_a_reload_stays_in_the_fleet_or_leaves_it(make: Make) -> None:
    one, two = make(), make()
    assert call(one)
    assert call(two)
    alive(two, 2)
    sicken(one)
    fleet, breaker = one.fleet("pay"), one.breaker("pay")
    one.reload(rules().replace("- name: pay", "- name: pay\n    status: 500"))
    assert one.fleet("pay") is fleet
    assert one.check(Facts(resource="pay")).status == 500
    one.reload(rules(FLEET.replace("quorum: 2", "quorum: 5")))
    assert one.fleet("pay") is fleet  # another quorum, and the same breaker
    assert fleet.quorum == (5, 0.5)
    assert (one.breaker("pay") is breaker, breaker.state) == (True, "open")
    one.reload(rules(""))
    alive(two, 1)
    assert not call(one)
    assert "fleet" not in one.policies()["pay"]
    one.reload("version: 1\nrules: []\n")
    one.reload(rules())
    assert call(one)
    alive(two, 2)


def test_who_leaves_a_fleet_is_no_longer_forced(make: Make) -> None:
    gate = make()
    assert call(gate)
    fleet = gate.fleet("pay")
    fleet.switch("forced_open")
    assert not call(gate)
    gate.reload(rules(""))
    until(lambda: call(gate))
    fleet.switch(None)


def test_a_user_needs_these_rights(server: Server, make: Make) -> None:
    rights = ["evalsha", "script|load", "get", "set", "del", "time", "hset", "hget"]  # of the store
    rights += ["zadd", "zrem", "zremrangebyscore", "zscore", "zcard", "pexpire"]
    with server.client() as client:
        client.execute_command(
            "ACL", "SETUSER", "fleet", "reset", "on", ">secret", "~hg1:*", "-@all",
            *(f"+{right}" for right in rights),
        )  # fmt: skip
    url = server.url.replace("redis://", "redis://fleet:secret@")
    with Gate(rules(), url, name=make().name) as gate:
        assert call(gate)
        alive(gate, 1)
        gate.fleet("pay").switch("disabled")
        assert gate.breaker("pay").state == "disabled"
        gate.fleet("pay").switch(None)


def test_keys_are_those_of_the_store(make: Make, server: Server) -> None:
    gate = make()
    assert call(gate)
    alive(gate, 1)
    with server.client() as client:
        names = [key.decode() for key in client.keys("*breaker*") if b"%7B" in key]
    assert names
    assert all(name.startswith("hg1:breaker:shop%7B") for name in names)
    assert all("%7D:{pay}:" in name for name in names)


def test_without_redis_each_has_its_own() -> None:
    with Server() as own, Gate(rules(), own.url, name="lost") as gate:
        assert call(gate)
        alive(gate, 1)
        own.kill()
        assert call(gate)
        sicken(gate)
        assert not call(gate)
        until(lambda: gate.fleet("pay").error is not None)


def test_nothing_is_started_before_a_call_or_kept_after_the_gate(make: Make) -> None:
    before = fleets()
    gate = Gate(rules(), make().store, name="gone")
    assert fleets() == before
    assert call(gate)
    assert fleets() == before + 1
    known = weakref.ref(gate)
    del gate
    until(lambda: gc.collect() >= 0 and known() is None)  # not while it reports
    until(lambda: fleets() == before)


def test_a_fork_is_a_node_of_its_own(make: Make) -> None:
    gate = make()
    assert call(gate)
    alive(gate, 1)
    reader, writer = os.pipe()
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:  # pragma: no cover # in the child
        try:
            call(gate)
            alive(gate, 2)
            os.write(writer, b"2")
            os.read(ours, 1)
        finally:
            os._exit(0)
    try:
        assert os.read(reader, 1) == b"2"
        alive(gate, 2)
    finally:
        os.write(theirs, b"x")
        os.waitpid(child, 0)
        for end in (reader, writer, ours, theirs):
            os.close(end)
