"""The gate: one question to the store for all rules, and what comes of the answers."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from far_store import FarStore
from gate_tools import START, CountingStore, NoShortcuts, gate_of, rule

from headgate import Facts, ManualClock, MemoryStore, Refused
from headgate.rules.model import Cost, Lists, Otherwise

ANNA = Facts(path="/a", ip="192.0.2.1", user="anna")


@pytest.fixture(params=[MemoryStore, NoShortcuts, FarStore])
def store(request: pytest.FixtureRequest) -> Any:
    return request.param(clock=ManualClock(START))


class TestOneCall:
    def test_whatever_the_number_of_rules_and_kinds(self) -> None:
        store = CountingStore()
        gate = gate_of(
            rule("ip", "5/second", "100/hour", key="ip"),
            rule("bytes", "10MiB/second", key="user", cost=Cost("size")),
            rule("once", "2 concurrent", key="user"),
            rule("guess", "3/minute", key="ip user", count="failures"),
            rule("new", "1/hour", shadow=True),
            rule("calm", "1/minute", key="user", busy={"resource": "reports", "limit": "1/minute"}),
            *(rule(f"more{number}", "9/second", key="ip") for number in range(20)),
            store=store,
        )
        for taken in (True, True):
            store.asked.clear()
            verdict = gate.check(Facts(path="/a", ip="192.0.2.1", user="anna", size=1000))
            assert verdict.allowed is taken
            assert len(store.asked) == 1
            assert verdict.permit.release()
            assert len(store.asked) == 2
            assert not verdict.permit.release()
            assert len(store.asked) == 2

    def test_a_refusal_is_one_call_too_and_takes_nothing(self) -> None:
        store = CountingStore()
        gate = gate_of(
            rule("wide", "10/minute", key="ip"),
            rule("narrow", "1/minute", key="user"),
            rule("held", "5 concurrent"),
            store=store,
        )
        first = gate.check(ANNA)
        assert first
        for _ in range(3):
            store.asked.clear()
            verdict = gate.check(ANNA)
            assert len(store.asked) == 1
            assert not verdict
            assert verdict.rule == "narrow"
            assert not verdict.permit
            assert not verdict.permit.release()
        assert [part.decision.remaining for part in verdict.decisions] == [9, 0, 4]

    def test_the_names_under_which_state_is_kept(self) -> None:
        store = CountingStore()
        gate_of(rule("api", "5/second", "9/hour", on_error="deny"), store=store).check(ANNA)
        gate_of(rule("api", "5/second"), store=store, name="shop").check(ANNA)
        asks = [ask for group in store.asked for ask in group]
        assert [(ask.space, ask.limit.id) for ask in asks] == [
            ("rules", "api#0"), ("rules", "api#1"), ("shop", "api#0"),
        ]  # fmt: skip

    def test_what_to_do_when_the_store_is_away_is_said_for_each_rule(self) -> None:
        store = FarStore(ManualClock(START))
        gate = gate_of(
            rule("a", "5/second", on_error="deny"), rule("b", "5/second", on_error="allow"),
            store=store,
        )  # fmt: skip
        assert gate.check(ANNA)
        assert [ask.on_error for ask in store.asked[0]] == ["deny", "allow"]

    def test_lists_ask_nobody(self) -> None:
        store = CountingStore()
        gate = gate_of(
            rule("deny", "5/second", deny=Lists(users=("eve",)), status=429),
            rule("free", path="/health", exempt=True),
            store=store,
        )
        denied = gate.check(Facts(user="eve"))
        assert (denied.allowed, denied.rule, denied.status) == (False, "deny", 403)
        assert denied.retry_after == float("inf")
        assert denied.decision is not None
        assert not denied.decision.allowed
        assert "Retry-After" not in dict(denied.headers())
        free = gate.check(Facts(path="/health"))
        assert (free.allowed, free.exempt, free.rule) == (True, "free", "")
        assert free.headers() == []
        assert not store.asked

    def test_no_rule_no_call(self) -> None:
        store = CountingStore()
        verdict = gate_of(rule("a", "1/second", path="/b"), store=store).check(ANNA)
        assert verdict
        assert verdict.status == 200
        assert not store.asked
        assert repr(verdict) == "<Verdict allowed>"


class TestVerdict:
    def test_says_who_refused_for_how_long_and_in_which_way(self, store: Any) -> None:
        page = Otherwise("page", "too many")
        gate = gate_of(rule("a", "1/minute fixed-window", key="ip", status=503, otherwise=page),
                       store=store)  # fmt: skip
        passed = gate.check(ANNA)
        assert passed
        assert passed.retry_after == passed.delay == 0
        assert not passed.degraded
        assert passed.otherwise is None
        refused = gate.check(ANNA)
        assert not refused
        assert (refused.rule, refused.key, refused.status) == ("a", "192.0.2.1", 503)
        assert refused.retry_after == 20.0  # of a minute that began 40 s ago
        assert refused.otherwise is page
        assert dict(refused.headers())["Retry-After"] == "20"
        assert dict(refused.headers("x-ratelimit"))["X-RateLimit-Remaining"] == "0"
        assert "refused by rule 'a'" in repr(refused)
        assert gate.check(Facts(ip="192.0.2.2"))

    def test_of_several_refusals_the_longest_counts(self) -> None:
        gate = gate_of(
            rule("a", "1/minute"), rule("b", "1/hour", status=503), rule("c", "1/second")
        )
        assert gate.check(ANNA)
        refused = gate.check(ANNA)
        assert (refused.rule, refused.status) == ("b", 503)
        assert refused.retry_after > 60

    def test_costs(self) -> None:
        gate = gate_of(rule("bytes", "1000/minute", cost=Cost("size")), rule("calls", "5/minute"))
        assert gate.check(Facts(size=600))
        assert not gate.check(Facts(size=600))
        assert gate.check(Facts(size=400))
        parts = dict(gate.check(Facts(size=1)).decisions)
        assert (parts["bytes"].remaining, parts["calls"].remaining) == (0, 3)

    def test_it_travels_between_processes(self) -> None:
        gate = gate_of(rule("a", "1/minute", otherwise=Otherwise("data", [1])), rule("b", "9/hour"))
        gate.check(ANNA)
        error = pickle.loads(pickle.dumps(Refused(gate.check(ANNA))))
        assert (error.verdict.rule, error.verdict.otherwise.value) == ("a", [1])
        assert error.retry_after == Refused(gate.check(ANNA)).retry_after
        assert [part.name for part in error.verdict.decisions] == ["a", "b"]
        denied = gate_of(rule("d", deny=Lists(users=("eve",)))).check(Facts(user="eve"))
        assert pickle.loads(pickle.dumps(denied)).status == 403

    def test_limits_that_grow_with_the_room(self) -> None:
        free = 0.0
        gate = gate_of(rule("a", "2/minute elastic 100%"), room=lambda: free)
        assert [bool(gate.check(ANNA)) for _ in range(3)] == [True, True, False]
        free = 1.0
        assert [bool(gate.check(ANNA)) for _ in range(3)] == [True, True, False]


class TestShadow:
    def test_would_refuse_but_does_not(self, store: Any) -> None:
        gate = gate_of(rule("a", "9/minute"), rule("new", "1/minute", shadow=True), store=store)
        assert gate.check(ANNA).shadowed == ()
        verdict = gate.check(ANNA)
        assert verdict
        assert verdict.shadowed == ("new",)
        assert [part.name for part in verdict.decisions] == ["a", "new"]
        assert '"new"' not in str(verdict.headers())

    def test_of_a_deny_list(self) -> None:
        gate = gate_of(rule("no", "1/s", deny=Lists(users=("eve",)), shadow=True), rule("a", "9/s"))
        verdict = gate.check(Facts(user="eve"))
        assert verdict
        assert verdict.shadowed == ("no",)

    def test_permits_of_a_rule_in_shadow_come_back(self) -> None:
        gate = gate_of(rule("new", "1 concurrent", shadow=True))
        for _ in range(3):
            verdict = gate.check(ANNA)
            assert verdict.shadowed == ()
            assert gate.check(ANNA).shadowed == ("new",)
            assert verdict.permit.release()
