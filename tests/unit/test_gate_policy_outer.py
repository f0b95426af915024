"""Policies around functions: results that are kept, calls that become one."""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import Any

import pytest
from gate_tools import START, until

from headgate import AsyncGate, Gate, ManualClock, Refused

LONG = 30.0


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(START)


def gate_of(policies: str, clock: ManualClock | None = None, rules: str = "") -> Gate:
    return Gate(text_of(policies, rules), clock=clock)


def text_of(policies: str, rules: str = "") -> str:
    return f"version: 1\nrules: [{rules}]\npolicies: [{policies}]\n"


class Service:
    """What is called: it answers with a number, or fails."""

    def __init__(self) -> None:
        self.calls = 0
        self.fails = False
        self.seen: list[Any] = []

    def __call__(self, *args: Any, **kwargs: Any) -> int:
        self.calls += 1
        self.seen.append(args)
        if self.fails:
            raise ConnectionError
        return self.calls

    async def soon(self, *args: Any) -> int:
        await asyncio.sleep(0)
        return self(*args)


# -- last good


def test_the_last_good_result_stands_in_until_it_is_too_old(clock: ManualClock) -> None:
    gate, service = gate_of("{name: p, last_good: 1min, fallback: {data: none}}", clock), Service()
    kinds: list[str] = []
    gate.on_notice.append(lambda notice: kinds.append(notice.kind))
    get: Any = gate.limited("p")(service)
    assert (get("a"), get("b")) == (1, 2)
    service.fails = True
    assert (get("a"), get("b"), get("c")) == (1, 2, "none")
    assert kinds == ["last_good", "last_good", "fallback"]
    assert gate.policies()["p"]["last_good"] == 2
    gate.reload(text_of("{name: p, last_good: 1min, status: 500, match: {resource: p}}"))
    clock.advance(60)
    assert get("a") == 1  # what was kept is kept over a reload
    clock.advance(1)
    with pytest.raises(ConnectionError):
        get("a")


def test_it_stands_in_for_refused_calls_and_keeps_no_otherwise(clock: ManualClock) -> None:
    rule = "{name: few, limit: 2/hourMORE}"
    gate = gate_of("{name: p, last_good: 1min}", clock, rule.replace("MORE", ""))
    get: Any = gate.limited("p")(Service())
    assert [get("a"), get("b"), get("a")] == [1, 2, 1]
    with pytest.raises(Refused):
        get("c")
    gate.reload(
        text_of("{name: p, last_good: 1min}", rule.replace("MORE", ", otherwise: {data: busy}"))
    )
    assert [get("c"), get("a")] == ["busy", "busy"]  # as the rule says
    gate.reload(text_of("{name: p, last_good: 1min}", rule.replace("MORE", "")))
    assert get("a") == 1
    with pytest.raises(Refused):
        get("c")


def test_results_of_users_are_kept_apart(clock: ManualClock) -> None:
    """By default all that is known of a call tells it from others: nobody gets another's."""
    gate, service, user = gate_of("{name: p, last_good: 1min}", clock), Service(), "ann"
    get = gate.limited("p", user=lambda: user, attributes=lambda: {"roles": [user]})(service)
    assert get() == 1
    user = "bob"
    assert get() == 2
    service.fails = True
    assert get() == 2
    user = "ann"
    assert get() == 1
    user = "eve"
    with pytest.raises(ConnectionError):
        get()


def test_a_key_says_by_what(clock: ManualClock) -> None:
    text = '{name: p, last_good: {age: 1min, size: 2, key: ["arg:sku"]}}'
    gate, service = gate_of(text, clock), Service()

    @gate.limited("p")
    def price(sku: str, trace: object = None) -> int:
        return service(sku)

    assert [price("a", []), price("b", {}), price("a", [1])] == [1, 2, 3]
    service.fails = True
    assert price("a", {}) == 3
    with pytest.raises(ConnectionError):
        price("")  # lacks the key: nothing is kept
    service.fails = False
    price("c")
    service.fails = True
    with pytest.raises(ConnectionError):
        price("b")  # two results are kept
    gate.reload(text_of('{name: p, last_good: {age: 1min, size: 2, key: ["arg:trace"]}}'))
    with pytest.raises(ConnectionError):
        price("c", "c")  # under another key nothing of the old one is found


def test_what_cannot_be_compared_is_called_all_the_same(
    clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    gate, service = gate_of("{name: p, last_good: 1min, collapse: true}", clock), Service()
    get = gate.limited("p")(service)
    with caplog.at_level(logging.WARNING, "headgate"):
        assert [get([1]), get([1])] == [1, 2]
    assert len(caplog.records) == 1
    assert "neither collapsed nor kept" in caplog.text
    service.fails = True
    with pytest.raises(ConnectionError):
        get([1])


def test_tasks_have_a_last_good_result(clock: ManualClock) -> None:
    gate, service = AsyncGate(text_of("{name: p, last_good: 1min}"), clock=clock), Service()
    get = gate.limited("p")(service.soon)

    async def main() -> None:
        assert await get("a") == 1
        service.fails = True
        assert await get("a") == 1
        with pytest.raises(ConnectionError):
            await get("b")

    asyncio.run(main())


# -- collapse


def test_tasks_become_one_and_pay_once(clock: ManualClock) -> None:
    rules = "{name: few, limit: 2/hour}"
    gate, service = AsyncGate(text_of("{name: p, collapse: true}", rules), clock=clock), Service()
    get = gate.limited("p")(service.soon)

    async def main() -> None:
        assert await asyncio.gather(*(get("a") for _ in range(50))) == [1] * 50
        assert await get("a") == 2  # not at the same time: another call
        with pytest.raises(Refused):
            await get("a")

    asyncio.run(main())


def test_a_cancelled_leader_hands_over(clock: ManualClock) -> None:
    text = "{name: p, collapse: true, bulkhead: 1, breaker: {errors: 1}}"
    gate = AsyncGate(text_of(text), clock=clock)
    go, calls = asyncio.Event(), 0

    @gate.limited("p")
    async def get() -> int:
        nonlocal calls
        calls += 1
        await go.wait()
        return calls

    async def main() -> None:
        first, second = asyncio.create_task(get()), asyncio.create_task(get())
        while calls == 0 or gate.policies()["p"]["collapse_waiting"] == 0:
            await asyncio.sleep(0)
        first.cancel()
        await asyncio.wait([first])
        go.set()
        assert await second == 2
        assert gate.policies()["p"]["in_flight"] == 0

    asyncio.run(main())


def test_threads_become_one_over_a_reload() -> None:
    text = "{name: p, collapse: true, retry: {attempts: 2, safe: true, pause: 1ms}}"
    gate, service = gate_of(text), Service()
    go = threading.Event()

    @gate.limited("p", user=lambda user: user)
    def get(user: str) -> int:
        assert go.wait(LONG)
        found = service(user)
        if found == 1:
            raise ConnectionError
        return found

    found: list[int] = []
    callers = [threading.Thread(target=lambda: found.append(get("ann"))) for _ in range(8)]
    for caller in callers[:4]:
        caller.start()
    until(lambda: gate.policies()["p"]["collapse_waiting"] == 3)
    gate.reload(text_of(text.replace("name: p", "name: p, status: 500")))
    for caller in callers[4:]:
        caller.start()
    until(lambda: gate.policies()["p"]["collapse_waiting"] == 7)
    go.set()
    for caller in callers:
        caller.join(LONG)
    assert found == [2] * 8
    assert service.calls == 2  # tried again once, for all


def test_calls_of_others_are_not_collapsed(clock: ManualClock) -> None:
    gate, service = AsyncGate(text_of("{name: p, collapse: true}"), clock=clock), Service()
    mine = [gate.limited("p", user=user)(service.soon) for user in "ab"]
    other = gate.limited("p", user="a")(Service().soon)
    keyed = AsyncGate(text_of("{name: p, collapse: {key: [user]}}"), clock=clock)
    once = keyed.limited("p", user=lambda user, _: user)(service.soon)

    async def main() -> None:
        await asyncio.gather(*(get("x") for get in mine), mine[0]("x"), other("x"))
        assert service.calls == 2
        await asyncio.gather(once("ann", 1), once("ann", 2), once("bob", 3), once("", 4))
        assert service.calls == 5

    asyncio.run(main())


def test_the_first_policy_has_the_say(clock: ManualClock) -> None:
    text = """{name: other, match: {resource: q}, last_good: 1h},
      {name: first, match: {resource: p}, last_good: 1min}, {name: second, last_good: 1h}"""
    gate, service = gate_of(text, clock), Service()
    get = gate.limited("p")(service)
    get()
    assert [gate.policies()[name]["last_good"] for name in ("other", "first", "second")] == [
        0, 1, 0,
    ]  # fmt: skip
