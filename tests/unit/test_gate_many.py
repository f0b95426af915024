"""Several calls at once: independent verdicts from one call to the store."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from far_store import FarStore
from gate_tools import START, CountingStore, gate_of, rule, rules

from headgate import Ask, AsyncGate, Decision, Facts, ManualClock, MemoryStore
from headgate.gate import Each
from headgate.rules.model import Lists, Match

ANNA, BERT = Facts(user="anna", resource="r"), Facts(user="bert", resource="r")
PER_USER = rule("each", "2/minute fixed-window", key="user")


class ManyStore(CountingStore):
    """A store that notes how often it is asked for several groups."""

    def __init__(self) -> None:
        super().__init__()
        self.groups: list[int] = []

    def decide_many(self, groups: Sequence[Sequence[Ask]]) -> list[list[Decision]]:
        self.groups.append(len(groups))
        return super().decide_many(groups)


def test_each_by_itself() -> None:
    gate = gate_of(PER_USER)
    for _ in range(2):  # the first time at length, then by the prepared way
        gate.check(Facts(user="other"))
        found = gate.check_many([ANNA, BERT, Facts(), ANNA, ANNA])
        assert [bool(verdict) for verdict in found] == [True, True, True, True, False]
        gate.store.close()
        gate = gate_of(PER_USER)


def test_one_call_to_the_store() -> None:
    store = ManyStore()
    gate = gate_of(PER_USER, rule("all", "3/minute fixed-window"), store=store)
    found = gate.check_many([ANNA, BERT, ANNA, BERT])
    assert [verdict.allowed for verdict in found] == [True, True, True, False]
    assert found[3].rule == "all"
    assert store.groups == [4]
    assert found[3].decisions[0].decision.remaining == 1  # a refusal takes nothing


def test_ops() -> None:
    gate = gate_of(rule("each", "10/minute fixed-window", key="user"))

    def ask(op: str, cost: int) -> tuple[bool, int]:
        (verdict,) = gate.check_many([Each(ANNA, None, cost, op)])
        return verdict.allowed, verdict.decisions[0].decision.remaining

    assert ask("take", 4) == (True, 6)
    assert ask("check", 6) == (True, 6)
    assert ask("check", 7) == (False, 6)
    assert ask("charge", 3) == (True, 3)
    assert ask("charge", 9) == (False, 3)  # counted all the same
    assert ask("check", 1) == (False, 0)
    assert ask("refund", 9) == (True, 3)
    assert ask("take", 4) == (False, 3)


def test_nobody_waits() -> None:
    gate = gate_of(rule("slow", "1/minute fixed-window", key="user", wait=30.0))
    assert [bool(verdict) for verdict in gate.check_many([ANNA, ANNA])] == [True, False]


def test_permits_and_failures() -> None:
    gate = gate_of(
        rule("inside", "2 concurrent"),
        rule("guess", "3/minute fixed-window", key="user", count="failures"),
    )
    first, second, third = gate.check_many([ANNA, ANNA, ANNA])
    assert (first.allowed, second.allowed, third.allowed) == (True, True, False)
    assert not gate.check_many([Each(BERT, op="check")])[0].allowed
    first.permit.release()
    second.permit.release("failure")
    again = gate.check_many([ANNA, BERT])
    assert all(again)
    assert again[0].decisions[1].decision.remaining == 1  # one failure, one under way
    for verdict in again:
        assert verdict.permit.release()


def test_rules_that_depend_on_others() -> None:
    busy = {"resource": "other", "limit": "1/minute fixed-window"}
    match = Match(resources=("r",))
    gate = gate_of(rule("when", "1/minute fixed-window", match=match, busy=busy))
    assert all(gate.check_many([ANNA, ANNA]))
    gate.check(Facts(resource="other"))
    assert [bool(verdict) for verdict in gate.check_many([ANNA, ANNA])] == [False, False]


def test_what_was_taken_comes_back_when_the_store_fails() -> None:
    class Failing(ManyStore):
        def decide_many(self, groups: Sequence[Sequence[Ask]]) -> list[list[Decision]]:
            self.decide(groups[0])
            raise RuntimeError("it broke")

    gate = gate_of(rule("inside", "1 concurrent", key="user"), store=Failing())
    with pytest.raises(RuntimeError, match="broke"):
        gate.check_many([ANNA, BERT])
    assert gate.check(ANNA).permit.release()


def test_hooks_hear_of_each() -> None:
    gate = gate_of(PER_USER)
    heard: list[Any] = []
    gate.on_verdict.append(lambda facts, verdict: heard.append((facts.user, verdict.allowed)))
    gate.check_many([ANNA, BERT, ANNA, ANNA])
    assert heard.count(("anna", True)) == 2
    assert sorted(heard) == [("anna", False), ("anna", True), ("anna", True), ("bert", True)]


@pytest.mark.parametrize("kind", [MemoryStore, FarStore])
def test_tasks(kind: Any) -> None:
    async def main() -> None:
        gate = AsyncGate(rules(PER_USER), kind(clock=ManualClock(START)))
        for _ in range(2):
            assert [bool(each) for each in await gate.check_many([ANNA])] == [True]
        found = await gate.check_many([ANNA, BERT, Each(BERT, None, 1, "charge"), BERT])
        assert [bool(each) for each in found] == [False, True, True, False]
        await gate.close()

    asyncio.run(main())


def test_tasks_give_permits_back() -> None:
    async def main() -> None:
        gate = AsyncGate(rules(rule("inside", "1 concurrent", key="user")), FarStore())
        found = await gate.check_many([ANNA, BERT, ANNA])
        assert [bool(each) for each in found] == [True, True, False]
        for each in found:
            await each.permit.release()
        assert all(await gate.check_many([ANNA, BERT]))
        await gate.close()

    asyncio.run(main())


def test_hooks_do_not_hear_of_looks_and_refunds() -> None:
    gate = gate_of(rule("api", "5/minute"))
    heard: list[bool] = []
    gate.on_verdict.append(lambda _, verdict: heard.append(verdict.allowed))
    gate.check_many([Each(Facts(), op="check"), Each(Facts(), op="refund")])
    assert heard == []
    gate.check_many([Each(Facts(), op="charge"), Each(Facts(), op="take")])
    assert heard == [True, True]


@pytest.mark.parametrize("op", ["take", "check", "charge", "refund"])
def test_whoever_merely_looks_is_not_heard_of(op: str, caplog: pytest.LogCaptureFixture) -> None:
    """Neither where a limit is asked, nor where a list or no rule decides."""
    gate = gate_of(
        rule("closed", match=Match(origins=("bad",)), deny=Lists(origins=("bad",))),
        rule("each", "1/minute", key="user"),
    )
    heard: list[str] = []
    gate.on_verdict.append(lambda facts, _: heard.append(facts.user or facts.origin))
    calls = [Facts(origin="bad"), Facts(origin="good"), ANNA]
    with caplog.at_level("DEBUG", logger="headgate"):
        found = gate.check_many([Each(facts, op=op) for facts in calls])
    assert [verdict.allowed for verdict in found] == [False, True, True]
    assert heard == (["bad", "good", "anna"] if op in ("take", "charge") else [])
    assert bool(caplog.messages) is (op in ("take", "charge"))
