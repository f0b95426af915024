"""What calls hold, wait for, and give back; and rules that depend on another resource."""

from __future__ import annotations

import gc
import threading
import time
from typing import Any

import pytest
from far_store import FarStore
from gate_tools import START, CountingStore, NoShortcuts, gate_of, rule, until

from headgate import Facts, Gate, ManualClock, MemoryStore, Verdict
from headgate.rules.model import Match

ANNA = Facts(path="/a", ip="192.0.2.1", user="anna")


@pytest.fixture(params=[MemoryStore, NoShortcuts, FarStore])
def store(request: pytest.FixtureRequest) -> Any:
    return request.param(clock=ManualClock(START))


class TestFailures:
    def test_one_is_reserved_for_each_call_under_way(self, store: Any) -> None:
        gate = gate_of(rule("guess", "3/minute", key="user", count="failures"), store=store)
        under_way = [gate.check(ANNA) for _ in range(100)]
        passed = [verdict for verdict in under_way if verdict]
        assert len(passed) == 3
        passed[0].permit.release("success")
        passed[1].permit.release("failure")
        assert not passed[1].permit.release("success")  # it has been said
        passed[2].permit.release("ignored")
        assert [bool(gate.check(ANNA)) for _ in range(2)] == [True, False]

    def test_abandoned_it_stays_counted(self, store: Any) -> None:
        gate = gate_of(rule("guess", "1/minute", count="failures"), store=store)
        assert gate.check(ANNA)
        gc.collect()
        assert not gate.check(ANNA)

    def test_an_unknown_outcome_is_told(self) -> None:
        verdict = gate_of(rule("guess", "1/minute", count="failures")).check(ANNA)
        with pytest.raises(
            ValueError, match="an outcome is one of success, failure, mistake, ignored"
        ):
            verdict.permit.release("ok")
        assert verdict.permit.release("success")


class TestConcurrency:
    @pytest.mark.parametrize("outcome", ["success", "failure", "ignored"])
    def test_comes_back_however_a_call_ends(self, store: Any, outcome: str) -> None:
        gate = gate_of(rule("db", "2 concurrent"), rule("rate", "100/minute"), store=store)
        for _ in range(3):
            first, second, third = (gate.check(ANNA) for _ in range(3))
            assert [bool(each) for each in (first, second, third)] == [True, True, False]
            assert second.permit.token >= first.permit.token > 0
            assert first.permit.release(outcome)
            assert not first.permit.release(outcome)
            assert second.permit.release(outcome)
        rate = dict(gate.check(ANNA).decisions)["rate"]
        assert rate.remaining == 100 - 7

    def test_a_verdict_that_is_dropped_gives_back_what_it_held(self) -> None:
        gate = gate_of(rule("db", "1 concurrent"))
        for _ in range(3):
            assert gate.check(ANNA)
            gc.collect()

    def test_a_lease_is_renewed_while_held_and_ends_when_forgotten(self) -> None:
        clock = ManualClock(START)
        gate = gate_of(rule("db", "1 concurrent"), store=FarStore(clock))
        verdict = gate.check(ANNA)
        for _ in range(12):
            until(lambda: (clock.next_wakeup() or 0) > clock.now())
            clock.advance(max(0.0, (clock.next_wakeup() or 0) - clock.now()))
        until(lambda: (clock.next_wakeup() or 0) > clock.now())
        assert clock.now() > START + 30
        assert not verdict.permit.lost
        assert not gate.check(ANNA)
        del verdict
        gc.collect()
        clock.advance(10.1)
        assert gate.check(ANNA).permit.release()

    def test_a_release_that_fails_can_be_made_again(self) -> None:
        store = FarStore(ManualClock(START))
        gate = gate_of(rule("db", "1 concurrent"), store=store)
        verdict = gate.check(ANNA)
        store.broken = OSError("away")
        with pytest.raises(OSError, match="away"):
            verdict.permit.release()
        store.broken = None
        assert verdict.permit.release()
        assert gate.check(ANNA).permit.release()

    def test_an_interrupt_in_the_middle_leaves_nothing_held(self) -> None:
        class Interrupted(NoShortcuts):
            at = -1

            def decide(self, asks: Any) -> Any:
                answers = super().decide(asks)
                self.at -= 1
                if self.at == -1:
                    raise KeyboardInterrupt
                return answers

        store = Interrupted(clock=ManualClock(START))
        gate = gate_of(rule("db", "1 concurrent"), store=store)
        for at in (0, 1):  # on the way in, on the way out
            store.at = at
            with pytest.raises(KeyboardInterrupt):
                gate.check(ANNA).permit.release()
            assert gate.check(ANNA).permit.release()


class TestBusy:
    def gate(self, store: Any) -> Gate:
        return gate_of(
            rule("calm", "2/minute", match=Match(resources=("write",)),
                 busy={"resource": "read", "limit": "2/minute"}),
            rule("all", "100/minute", match=Match(resources=("write",))),
            store=store,
        )  # fmt: skip

    def test_a_rule_applies_only_while_another_resource_is_busy(self, store: Any) -> None:
        gate = self.gate(store)
        write, read = Facts(resource="write"), Facts(resource="read")
        assert all(gate.check(write) for _ in range(5))  # counted, but nobody is in the way
        assert [part.name for part in gate.check(write).decisions] == ["all"]
        assert gate.check(read)
        assert gate.check(write)
        assert gate.check(read)
        refused = gate.check(write)
        assert not refused
        assert refused.rule == "calm"
        assert not gate.check(write)
        assert gate.check(read)  # which is only counted
        store.clock.advance(121)
        passed = gate.check(write)
        assert passed
        assert dict(passed.decisions)["all"].remaining == 99

    def test_one_call_once_it_is_known_who_is_busy(self) -> None:
        store = CountingStore()
        gate = self.gate(store)
        write, read = Facts(resource="write"), Facts(resource="read")
        for _ in range(2):
            gate.check(read)
            gate.check(write)
        calls = []
        for _ in range(4):
            store.asked.clear()
            assert not gate.check(write)
            calls.append(len(store.asked))
        assert calls == [1, 1, 1, 1]
        store.clock.advance(200)  # type: ignore[attr-defined] # a manual one
        for _ in range(2):
            gate.check(write)
        gate.check(read)
        store.clock.advance(1)  # type: ignore[attr-defined] # a manual one
        store.asked.clear()
        assert gate.check(write)
        assert len(store.asked) == 1

    def test_what_was_taken_before_it_was_known_goes_back(self, store: Any) -> None:
        gate = self.gate(store)
        other = self.gate(store)
        write, read = Facts(resource="write"), Facts(resource="read")
        assert all(gate.check(write) for _ in range(2))
        assert all(other.check(read) for _ in range(2))  # the first gate has not heard of it
        before = 98
        for _ in range(3):
            refused = gate.check(write)
            assert refused.rule == "calm"
            assert dict(refused.decisions)["all"].remaining in (before, before - 1)
        store.clock.advance(121)


class TestWaiting:
    def test_a_thread_waits_as_long_as_the_rule_allows(self, store: Any) -> None:
        clock: ManualClock = store.clock
        gate = gate_of(rule("a", "1/second burst 1", wait=2.0), rule("b", "100/minute"),
                       store=store)  # fmt: skip
        assert gate.check(ANNA)
        done: list[Verdict] = []
        thread = threading.Thread(target=lambda: done.append(gate.check(ANNA)))
        thread.start()
        until(lambda: clock.next_wakeup() is not None)
        assert not done
        while thread.is_alive():
            wakeup = clock.next_wakeup()
            if wakeup is not None:
                clock.advance(max(0.0, min(wakeup, START + 1) - clock.now()))
            time.sleep(0.001)
        assert done[0]
        assert clock.now() == START + 1
        assert dict(done[0].decisions)["b"].remaining == 98

    def test_too_long_is_told_at_once(self, store: Any) -> None:
        gate = gate_of(rule("a", "1/hour", wait=2.0), store=store)
        assert gate.check(ANNA)
        assert gate.check(ANNA).rule == "a"
        assert store.clock.now() == START

    def test_a_rule_without_wait_refuses_at_once(self, store: Any) -> None:
        gate = gate_of(rule("a", "1/second burst 1", wait=5.0), rule("b", "1/second burst 1"),
                       store=store)  # fmt: skip
        assert gate.check(ANNA)
        assert not gate.check(ANNA)
        assert store.clock.now() == START

    def test_an_allowed_call_costs_one_question_with_wait_too(self) -> None:
        for given in (
            [rule("a", "9/second", wait=1.0)],
            [rule("a", "9/second", wait=1.0), rule("b", "9/second")],
            [rule("a", "9/second", wait=1.0), rule("b", "9/second", shadow=True)],
        ):
            store = CountingStore()
            assert gate_of(*given, store=store).check(ANNA)
            assert len(store.asked) == 1
