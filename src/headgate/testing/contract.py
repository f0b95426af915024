"""The store contract as tests: a store that passes means what every other store means.

    class TestMyStore(StoreContract):
        def make_store(self, clock):
            return MyStore(clock=clock)

Every test makes its own store on a ManualClock, which the store must take its time from.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import pytest

from ..clock import ManualClock
from ..decision import Ask, Decision
from ..errors import StoreError
from ..keys import Key
from ..limit import Limit
from ..stores.base import Store
from .cases import ALGORITHMS, PLAIN, RAISED, Case

__all__ = ["StoreContract"]


class StoreContract:
    """What holds for every store; subclass it and say how to make one."""

    def make_store(self, clock: ManualClock) -> Store:
        raise NotImplementedError("make_store(clock) returns a new, empty store on this clock")

    @pytest.fixture
    def clock(self) -> ManualClock:
        return ManualClock(1_000_000.0)

    @pytest.fixture
    def store(self, clock: ManualClock) -> Store:
        return self.make_store(clock)

    # -- every algorithm, step by step

    @pytest.mark.parametrize("case", ALGORITHMS, ids=lambda case: case.limit)
    def test_algorithm(self, case: Case, clock: ManualClock, store: Store) -> None:
        limit = Limit.parse(case.limit)
        for number, step in enumerate(case.steps):
            clock.advance(step.after)
            decision = take(store, limit, "k", step.cost)
            assert (number, *_numbers(decision)) == (number, *step.numbers), step

    @pytest.mark.parametrize("case", ALGORITHMS, ids=lambda case: case.limit)
    def test_cost_zero_looks_and_always_passes(
        self, case: Case, clock: ManualClock, store: Store
    ) -> None:
        limit = Limit.parse(case.limit)
        for step in case.steps:
            clock.advance(step.after)
            before = take(store, limit, "k", 0)
            assert before.allowed
            assert take(store, limit, "k", 0).remaining == before.remaining
            take(store, limit, "k", step.cost)

    @pytest.mark.parametrize("case", ALGORITHMS, ids=lambda case: case.limit)
    def test_check_takes_nothing_and_tells_what_take_will_say(
        self, case: Case, clock: ManualClock, store: Store
    ) -> None:
        limit = Limit.parse(case.limit)
        for step in case.steps:
            clock.advance(step.after)
            looks = [ask_one(store, "check", limit, "k", step.cost) for _ in range(3)]
            decision = take(store, limit, "k", step.cost)
            assert [look.allowed for look in looks] == [decision.allowed] * 3
            assert {look.retry_after for look in looks} == {decision.retry_after}

    @pytest.mark.parametrize("case", ALGORITHMS, ids=lambda case: case.limit)
    def test_retry_after_is_exact(self, case: Case, clock: ManualClock) -> None:
        limit = Limit.parse(case.limit)
        tick = limit.tick / 1_000_000
        for early in (True, False):
            store = self.make_store(clock)
            decision = _until_refused(store, limit)
            clock.advance(decision.retry_after - (tick if early else 0))
            assert take(store, limit, "k").allowed is not early

    @pytest.mark.parametrize("case", PLAIN, ids=lambda case: case.limit)
    def test_after_reset_after_a_key_is_as_if_never_used(
        self, case: Case, clock: ManualClock
    ) -> None:
        limit = Limit.parse(case.limit)
        store = self.make_store(clock)
        clock.advance(_until_refused(store, limit).reset_after)
        look = ask_one(store, "check", limit, "k")
        assert look.reset_after == 0
        assert look.remaining == ask_one(store, "check", limit, "other").remaining

    @pytest.mark.parametrize("case", ALGORITHMS, ids=lambda case: case.limit)
    def test_remaining_is_how_many_more_pass(
        self, case: Case, clock: ManualClock, store: Store
    ) -> None:
        limit = Limit.parse(case.limit)
        take(store, limit, "k")
        remaining = ask_one(store, "check", limit, "k").remaining
        passed = sum(take(store, limit, "k").allowed for _ in range(remaining + 3))
        assert passed == remaining

    @pytest.mark.parametrize("case", ALGORITHMS, ids=lambda case: case.limit)
    def test_a_refused_call_changes_nothing(
        self, case: Case, clock: ManualClock, store: Store
    ) -> None:
        limit = Limit.parse(case.limit)
        first = _until_refused(store, limit)
        for _ in range(50):
            again = take(store, limit, "k")
            assert _numbers(again) == _numbers(first)

    @pytest.mark.parametrize("case", PLAIN, ids=lambda case: case.limit)
    def test_refund_gives_back_what_was_just_taken(
        self, case: Case, clock: ManualClock, store: Store
    ) -> None:
        limit = Limit.parse(case.limit)
        before = ask_one(store, "check", limit, "k").remaining
        taken = take(store, limit, "k")
        store.decide([Ask("refund", limit, "k", 1, at=taken.at)])
        assert ask_one(store, "check", limit, "k").remaining == before

    @pytest.mark.parametrize("case", ALGORITHMS, ids=lambda case: case.limit)
    def test_reset_forgets(self, case: Case, clock: ManualClock, store: Store) -> None:
        limit = Limit.parse(case.limit)
        fresh = _numbers(take(store, limit, "other"))
        _until_refused(store, limit)
        store.decide([Ask("reset", limit, "k")])
        assert _numbers(take(store, limit, "k")) == fresh

    # -- identity

    def test_keys_and_namespaces_are_apart(self, store: Store) -> None:
        limit = Limit.parse("1/minute")
        keys: list[Key] = ["a", "b", ("a",), ("a", "b/c"), ("a/b", "c"), b"\xff\x01", ""]
        for key in keys:
            assert take(store, limit, key).allowed, key
            assert not take(store, limit, key).allowed, key
        assert ask_one(store, "take", limit, "a", space="other").allowed

    def test_text_and_its_bytes_are_one_key(self, store: Store) -> None:
        limit = Limit.parse("1/minute")
        assert take(store, limit, "naïve").allowed
        assert not take(store, limit, "naïve".encode()).allowed

    def test_a_limit_of_the_same_name_shares_state(self, store: Store) -> None:
        small = Limit.parse("5/minute token-bucket name api")
        large = Limit.parse("9/minute token-bucket name api")
        take(store, small, "k", 5)
        assert take(store, large, "k", 4).remaining == 0

    @pytest.mark.parametrize(("old", "new", "left"), RAISED)
    def test_a_changed_limit_forgets_nobody(
        self, old: str, new: str, left: int, store: Store
    ) -> None:
        before = Limit.parse(old)
        take(store, before, "k", 4)
        after = Limit.parse(new).named(before.id)
        assert ask_one(store, "check", after, "k").remaining == left
        take(store, after, "k", 1)
        assert ask_one(store, "check", after, "k").remaining == max(0, left - 1)

    def test_an_assigned_limit_holds_for_its_key_alone(self, store: Store) -> None:
        limit, own = Limit.parse("2/minute"), Limit.parse("5/minute")
        take(store, limit, "k", 2)
        store.assign("", limit.id, "k", own)
        assert take(store, limit, "k").remaining == 2
        assert take(store, limit, "other").remaining == 1
        assert store.assigned("", limit.id, "k") == own.named(limit.id)
        store.assign("", limit.id, "k", None)
        assert store.assigned("", limit.id, "k") is None
        assert not take(store, limit, "k").allowed

    # -- several limits

    def test_all_or_nothing(self, store: Store) -> None:
        limits = [Limit.parse(text) for text in ("5/second", "9/minute gcra", "7/hour sliding-log")]
        asks = [Ask("take", limit, "k") for limit in limits]
        for _ in range(5):
            assert all(store.decide(asks))
        before = [ask_one(store, "check", limit, "k").remaining for limit in limits]
        for _ in range(50):
            decisions = store.decide(asks)
            assert [decision.allowed for decision in decisions] == [False, True, True]
        assert [ask_one(store, "check", limit, "k").remaining for limit in limits] == before

    def test_a_refusal_by_the_last_undoes_the_first(self, store: Store) -> None:
        free, tight = Limit.parse("100/minute"), Limit.parse("1/minute cells 4")
        held = Limit.parse("3 concurrent")
        asks = [
            Ask("take", held, "k", token=7),
            Ask("take", free, "k"),
            Ask("take", tight, "k"),
        ]
        assert all(store.decide(asks))
        assert not store.decide([ask._replace(token=8) for ask in asks])[2].allowed
        assert ask_one(store, "check", free, "k").remaining == 99
        assert ask_one(store, "check", held, "k").remaining == 2

    def test_a_refusal_leaves_a_permit_that_was_held_before(self, store: Store) -> None:
        held, tight = Limit.parse("3 concurrent"), Limit.parse("1/minute")
        asks = [Ask("take", held, "k", token=7), Ask("take", tight, "k")]
        assert all(store.decide(asks))
        assert not store.decide(asks)[1].allowed
        assert ask_one(store, "check", held, "k").remaining == 2

    def test_one_key_asked_twice_is_charged_twice(self, store: Store) -> None:
        limit = Limit.parse("3/minute")
        ask = Ask("take", limit, "k")
        assert all(store.decide([ask, ask]))
        assert not all(store.decide([ask, ask]))
        assert take(store, limit, "k").allowed

    def test_a_shadow_never_vetoes(self, store: Store) -> None:
        limit, shadow = Limit.parse("9/minute"), Limit.parse("1/minute name dark")
        asks = [Ask("take", limit, "k"), Ask("shadow", shadow, "k")]
        assert [d.allowed for d in store.decide(asks)] == [True, True]
        assert [d.allowed for d in store.decide(asks)] == [True, False]
        assert ask_one(store, "check", limit, "k").remaining == 7

    def test_a_charge_goes_over_the_line(self, clock: ManualClock, store: Store) -> None:
        limit = Limit.parse("10/second token-bucket")
        store.decide([Ask("charge", limit, "k", 15)])
        refused = take(store, limit, "k")
        assert (refused.allowed, refused.retry_after) == (False, 0.6)

    def test_a_partial_take_is_the_same_for_all(self, store: Store) -> None:
        limits = [Limit.parse("5/minute"), Limit.parse("3/hour")]
        decisions = store.decide([Ask("take", limit, "k", 50, least=1) for limit in limits])
        assert [decision.granted for decision in decisions] == [3, 3]
        decisions = store.decide([Ask("take", limit, "k", 50, least=1) for limit in limits])
        assert [decision.allowed for decision in decisions] == [True, False]
        assert ask_one(store, "check", limits[0], "k").remaining == 2

    def test_groups_are_independent(self, store: Store) -> None:
        limit = Limit.parse("1/minute")
        answers = store.decide_many([[Ask("take", limit, key)] for key in ("a", "a", "b")])
        assert [decision.allowed for (decision,) in answers] == [True, False, True]

    # -- reservations and permits

    def test_a_reservation_is_settled_once(self, store: Store) -> None:
        limit = Limit.parse("100/hour")
        ask = Ask("take", limit, "k", 60, token=1, ttl=30_000_000)
        store.decide([ask])
        store.decide([ask._replace(op="settle", cost=45)])
        assert ask_one(store, "check", limit, "k").remaining == 55

    def test_an_abandoned_reservation_comes_back(self, clock: ManualClock, store: Store) -> None:
        limit = Limit.parse("100/hour")
        store.decide([Ask("take", limit, "k", 60, token=1, ttl=30_000_000)])
        clock.advance(29.999)
        assert ask_one(store, "check", limit, "k").remaining == 40
        clock.advance(0.001)
        assert ask_one(store, "check", limit, "k").remaining == 100

    def test_settling_too_late_charges_all_of_it(self, clock: ManualClock, store: Store) -> None:
        limit = Limit.parse("100/hour")
        ask = Ask("take", limit, "k", 60, token=1, ttl=1_000_000)
        store.decide([ask])
        clock.advance(5)
        store.decide([ask._replace(op="settle", cost=45)])
        assert ask_one(store, "check", limit, "k").remaining == 55

    def test_settling_above_the_estimate_charges(self, store: Store) -> None:
        limit = Limit.parse("100/hour")
        ask = Ask("take", limit, "k", 90, token=1, ttl=1_000_000)
        store.decide([ask])
        store.decide([ask._replace(op="settle", cost=120)])
        look = ask_one(store, "check", limit, "k")
        assert (look.allowed, look.remaining) == (False, 0)

    def test_permits_are_fenced(self, store: Store) -> None:
        limit = Limit.parse("2 concurrent")
        asks = [Ask("take", limit, "k", token=token) for token in (1, 2, 3)]
        assert [store.decide([ask])[0].allowed for ask in asks] == [True, True, False]
        release = asks[0]._replace(op="release")
        assert store.decide([release])[0].allowed
        assert not store.decide([release])[0].allowed
        assert ask_one(store, "check", limit, "k").remaining == 1

    def test_leases_run_out_unless_renewed(self, clock: ManualClock, store: Store) -> None:
        limit = Limit.parse("2 concurrent")
        kept, lost = (Ask("take", limit, "k", token=t, ttl=10_000_000) for t in (1, 2))
        store.decide([kept])
        store.decide([lost])
        refused = take(store, limit, "k", token=3)
        assert (refused.allowed, refused.retry_after) == (False, 10.0)
        clock.advance(6)
        assert store.decide([kept._replace(op="renew")])[0].allowed
        clock.advance(6)
        assert ask_one(store, "check", limit, "k").remaining == 1
        assert not store.decide([lost._replace(op="renew")])[0].allowed
        assert not store.decide([lost._replace(op="release")])[0].allowed
        assert store.decide([kept._replace(op="release")])[0].allowed

    # -- bad input

    @pytest.mark.parametrize("cost", [-1, 2**53, 1.5, float("nan"), "1", None, True])
    def test_bad_costs_are_errors_and_change_nothing(self, cost: int, store: Store) -> None:
        limit = Limit.parse("5/minute")
        with pytest.raises((TypeError, ValueError), match="a cost is an int"):
            take(store, limit, "k", cost)
        assert ask_one(store, "check", limit, "k").remaining == 5

    @pytest.mark.parametrize("key", [1, None, 1.5, ("a", 1), ["a"], (("a",),)])
    def test_bad_keys_are_errors(self, key: Key, store: Store) -> None:
        with pytest.raises(TypeError, match="key is a"):
            take(store, Limit.parse("5/minute"), key)

    @pytest.mark.parametrize(
        "strange",
        [{"ttl": -1}, {"ttl": 2**62 + 1}, {"ttl": 2**63}, {"at": 2**62}, {"at": -(2**62)},
         {"max_wait": -1}],
        ids=str,
    )  # fmt: skip
    def test_strange_times_are_errors_and_change_nothing(
        self, strange: dict[str, Any], store: Store
    ) -> None:
        for text, op in (("5/minute", "take"), ("5/minute", "refund"), ("5 concurrent", "renew")):
            limit = Limit.parse(text)
            ask = Ask(op, limit, "k", token=7)._replace(**strange)
            with pytest.raises(ValueError, match="times of an ask are whole microseconds"):
                store.decide([ask])
            assert take(store, limit, "k", 0).remaining == 5

    def test_the_longest_times_are_taken(self, store: Store) -> None:
        limit = Limit.parse("5/minute")
        ask = Ask("take", limit, "k", token=7, ttl=2**62, max_wait=2**62)
        assert store.decide([ask])[0].allowed
        assert ask_one(store, "settle", limit, "k", 1, token=7).remaining == 4

    @pytest.mark.parametrize("op", ["check", "shadow", "charge", "refund", "release", "reset"])
    def test_a_least_is_for_takes_alone(self, op: str, store: Store) -> None:
        limit = Limit.parse("5 concurrent" if op == "release" else "5/minute")
        plain, partial = (
            store.decide([Ask(op, limit, key, least=least)])[0]
            for key, least in (("a", -1), ("b", 0))
        )
        assert (plain.allowed, plain.remaining) == (partial.allowed, partial.remaining)

    def test_an_unknown_op_is_an_error(self, store: Store) -> None:
        with pytest.raises(ValueError, match="unknown op 'grab'"):
            store.decide([Ask("grab", Limit.parse("5/minute"), "k")])

    def test_a_closed_store_says_so(self, store: Store) -> None:
        store.close()
        with pytest.raises(StoreError, match="closed"):
            take(store, Limit.parse("5/minute"), "k")

    # -- threads

    @pytest.mark.parametrize("text", ["200/hour", "200/hour gcra", "200/hour sliding-log"])
    def test_threads_get_exactly_the_limit(self, text: str, store: Store) -> None:
        limit = Limit.parse(text)
        passed: list[int] = []

        def work() -> None:
            passed.append(sum(take(store, limit, "k").allowed for _ in range(100)))

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sum(passed) == 200


def take(store: Store, limit: Limit, key: Key, cost: int = 1, **more: int) -> Decision:
    """One take of one limit."""
    return ask_one(store, "take", limit, key, cost, "", **more)


def ask_one(
    store: Store, op: str, limit: Limit, key: Key, cost: int = 1, space: str = "", **more: Any
) -> Decision:
    """One ask, one answer."""
    asks: Sequence[Ask] = [Ask(op, limit, key, cost, space, **more)]
    return store.decide(asks)[0]


def _numbers(decision: Decision) -> tuple[bool, int, float, float]:
    return decision.allowed, decision.remaining, decision.retry_after, decision.reset_after


def _until_refused(store: Store, limit: Limit) -> Decision:
    for _ in range(1000):
        decision = take(store, limit, "k")
        if not decision.allowed:
            return decision
    raise AssertionError(f"{limit} refused nothing")
