"""The rules of a gate: how they change, who watches, and that it is exact under threads."""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import Any

import pytest
from far_store import FarStore
from gate_tools import START, NoShortcuts, gate_of, rule, rules, until

from headgate import Facts, Gate, ManualClock, MemoryStore, RulesError, workers
from headgate.rules.model import Lists
from headgate.rules.sources import FileSource

ANNA = Facts(path="/a", ip="192.0.2.1", user="anna")


@pytest.fixture(params=[MemoryStore, NoShortcuts, FarStore])
def store(request: pytest.FixtureRequest) -> Any:
    return request.param(clock=ManualClock(START))


class TestRules:
    def test_other_rules_and_what_was_used_stays_used(self, store: Any) -> None:
        gate = gate_of(rule("a", "2/minute"), store=store)
        assert [bool(gate.check(ANNA)) for _ in range(3)] == [True, True, False]
        gate.reload(rules(rule("a", "3/minute")))
        assert [bool(gate.check(ANNA)) for _ in range(3)] == [True, False, False]
        gate.reload(rules())
        assert gate.check(ANNA)
        assert gate.limits == ()

    def test_a_broken_file_keeps_the_rules(self, tmp_path: Path) -> None:
        good, bad = tmp_path / "good.json", tmp_path / "bad.json"
        good.write_text('{"version": 1, "rules": [{"name": "a", "limit": "1/minute"}]}')
        bad.write_text('{"version": 1, "rules": [{"name": "a", "limit": "1/moon"}]}')
        gate = Gate(good, clock=ManualClock(START))
        with pytest.raises(RulesError):
            gate.reload(str(bad))
        assert [bool(gate.check(ANNA)) for _ in range(2)] == [True, False]
        status = gate.status()
        assert (status["rules"], status["errors"], status["updates"]) == (1, 1, 1)
        assert "moon" in status["last_error"]
        gate.reload(good.read_text() + "\n")
        assert gate.status()["last_error"] is None
        with pytest.raises(TypeError, match="rules are a RuleSet"):
            Gate(7)
        with pytest.raises((OSError, RulesError)):
            Gate(tmp_path / "none.json")

    def test_a_source_is_followed(self, tmp_path: Path) -> None:
        file = tmp_path / "rules.json"
        file.write_text('{"version": 1, "rules": [{"name": "a", "limit": "1/minute"}]}')
        source = FileSource(file)
        gate, other = (Gate(source, clock=ManualClock(START)) for _ in range(2))
        try:
            assert [bool(gate.check(ANNA)) for _ in range(2)] == [True, False]
            file.write_text('{"version": 1, "rules": [{"name": "a", "limit": "5/minute"}]}')
            until(lambda: gate.status()["updates"] == 2)
            for each in (gate, other):
                assert [str(limit) for limit in each.limits] == ["5/minute"]
            file.write_text("{")
            until(lambda: gate.status()["errors"] == 1)
            assert gate.check(ANNA)
            assert gate.status()["following"]
        finally:
            other.close()
            gate.close()
        assert not source.status()["following"]

    def test_the_store_is_closed_with_the_gate_that_opened_it(self) -> None:
        kept = MemoryStore()
        with Gate(rules(rule("a", "1/s")), kept):
            pass
        assert not kept.closed
        with Gate(rules(rule("a", "1/s")), "memory://") as gate:
            store: Any = gate.store
        assert store.closed


class TestThoseWhoWatch:
    def test_hooks_hear_of_every_verdict_and_break_nothing(self) -> None:
        gate = gate_of(rule("a", "1/minute"), rule("no", deny=Lists(users=("eve",))))
        heard: list[tuple[Facts, bool]] = []
        gate.on_verdict.append(lambda *_: 1 / 0)
        gate.on_verdict.append(lambda facts, verdict: heard.append((facts, verdict.allowed)))
        eve = Facts(user="eve")
        for facts in (ANNA, ANNA, eve):
            gate.check(facts)
        assert heard == [(ANNA, True), (ANNA, False), (eve, False)]

    def test_a_refusal_is_one_line_at_the_level_of_its_rule(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        gate = gate_of(rule("a", "1/minute fixed-window", key="user", log_level="warning"))
        evil = Facts(user="eve\n2026 all is well")
        with caplog.at_level(logging.DEBUG, "headgate"):
            gate.check(evil)
            gate.check(evil)
        assert [(r.levelname, r.getMessage()) for r in caplog.records] == [
            ("WARNING", r"refused by rule a, key 'eve\n2026 all is well', retry after 20 s")
        ]
        caplog.clear()
        gate = gate_of(rule("a", "1/minute", log_level="off"))
        gate.check(ANNA)
        assert not gate.check(ANNA)
        assert not caplog.records


def test_exact_under_threads() -> None:
    gate = gate_of(rule("a", "500/minute", key="ip"), rule("b", "3 concurrent"))
    passed: list[bool] = []

    def work() -> None:
        for _ in range(300):
            verdict = gate.check(ANNA)
            while verdict.rule == "b":
                verdict = gate.check(ANNA)
            passed.append(verdict.allowed)
            verdict.permit.release()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert passed.count(True) == 500


def test_a_gate_in_memory_is_looked_at_again_after_a_fork() -> None:
    gate = Gate(rules(rule("a", "100/minute")))
    assert gate.check(ANNA)
    assert gate._prepared
    workers._watch(gate, 1)
    gate.reload(rules(rule("a", "100/minute")))
    assert not gate._prepared  # every way leads past the watch
    for _ in range(2):
        assert gate.check(ANNA)
    assert gate._prepared


def test_bad_arguments() -> None:
    with pytest.raises(TypeError, match="name is a str"):
        Gate(rules(), name=7)  # type: ignore[arg-type] # on purpose
    with pytest.raises(TypeError, match="room is a function"):
        Gate(rules(), room=0.5)  # type: ignore[arg-type] # on purpose
