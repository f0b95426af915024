"""`headgate rules` and policies: counted, checked, explained in the order of a call."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headgate import Facts, Gate
from headgate.cli import main
from headgate.rules import read_rules
from headgate.rules.explained import explained
from headgate.rules.explained_policies import STATES, policies_explained
from headgate.rules.match import Snapshot

Capture = pytest.CaptureFixture[str]

RULES: dict[str, Any] = {
    "version": 1,
    "rules": [
        {"name": "health", "match": {"path": "/health"}, "exempt": True},
        {"name": "bots", "match": {"origin": "bot"}, "limit": "1/s", "deny": {"origins": ["bot"]}},
        {"name": "api", "match": {"path": "/api/*"}, "limit": "9/second"},
    ],
    "policies": [
        {"name": "pay", "match": {"path": "/api/pay", "method": ["POST", "PUT"]},
         "breaker": {"failures": "25%", "slow": {"over": "2s", "ratio": "60%"}, "fleet": 3},
         "bulkhead": {"pool": 8, "queue": 4, "wait": "1s"}, "timeout": "2s", "retry": 3,
         "collapse": True, "last_good": {"age": "5min", "key": ["user", "arg:sku"]},
         "fallback": {"data": {"queued": [True]}}},
        {"name": "kinds", "match": {"path": "/api/*"}, "retry": 2,
         "adaptive": {"partitions": {"by": "header:X-Kind", "shares": {"checkout": "50%"}}}},
        {"name": "tenants", "key": ["header:X-Tenant"], "bulkhead": 5},
        {"name": "trial", "shadow": True, "bulkhead": 1, "fallback": {"data": 1}},
    ],
    "system": {"cpu": "80%", "loop_lag": "50ms", "in_flight": 100, "shed": {"0": "100%"}},
}  # fmt: skip


@pytest.fixture
def path(tmp_path: Path) -> str:
    where = tmp_path / "rules.json"
    where.write_text(json.dumps(RULES, indent=1))
    return str(where)


def told(**facts: Any) -> dict[str, Any]:
    rules = read_rules(json.dumps(RULES))
    known = Facts(**facts)
    found = policies_explained(rules, known, explained(Snapshot(rules), known))
    assert {each.state for each in found} <= STATES.keys()
    return {each.policy: each for each in found}


def states(**facts: Any) -> list[tuple[str, str]]:
    return [(name, each.state) for name, each in told(**facts).items() if each.state != "no match"]


def test_validate_counts(path: str, capsys: Capture) -> None:
    assert main(["rules", "validate", path]) == 0
    assert ": 3 rules, 4 policies, system, digest " in capsys.readouterr().out
    assert main(["rules", "validate", path, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["rules"], found["policies"], found["system"]) == (3, 4, True)
    Path(path).write_text('{"version": 1, "policies": [{"name": "a", "bulkhead": 1}]}')
    assert main(["rules", "validate", path]) == 0
    assert ": 0 rules, 1 policy, digest " in capsys.readouterr().out


def test_validate_tells_all_that_is_wrong(path: str, capsys: Capture) -> None:
    Path(path).write_text(
        '{"version": 1, "policies": [\n'
        '{"name": "a", "breaker": {"window": 5}},\n'
        '{"name": "b", "bulkhead": {"pool": 5}, "key": "ip"}]}'
    )
    assert main(["rules", "validate", path]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(f"{path}:2: rule 'a': breaker.window: expected a window")
    assert lines[1].startswith(f"{path}:3: rule 'b': a pool is for all calls")


def test_validate_makes_what_it_reads(path: str, capsys: Capture) -> None:
    """What can be read, but not made, is found too, and by more than the first of it."""
    bad = {"preset": "resilience4j", "errors": 200}
    policies = [{"name": name, "breaker": bad} for name in "ab"]
    Path(path).write_text(json.dumps({"version": 1, "policies": policies}, indent=0))
    assert main(["rules", "validate", path, "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert not found["valid"]
    assert [(error["file"], error["rule"]) for error in found["errors"]] == [
        (path, "a"), (path, "b"),
    ]  # fmt: skip
    assert all("do not fit" in error["problem"] and error["line"] for error in found["errors"])
    assert main(["rules", "publish", path, "redis://127.0.0.1:1/0"]) == 1  # nobody was asked
    assert "do not fit" in capsys.readouterr().out


def test_status_counts(path: str, capsys: Capture) -> None:
    assert main(["rules", "status", path]) == 0
    assert ": 3 rules, 4 policies, system, digest " in capsys.readouterr().out
    assert main(["rules", "status", path, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["policies"], found["system"]) == (4, True)
    status = Gate(path).status()
    assert (status["rules"], status["policies"], status["system"]) == (3, 4, True)
    status = Gate("version: 1\nrules: []\n").status()
    assert (status["policies"], status["system"]) == (0, False)


def test_states_in_the_order_of_a_call() -> None:
    shadow = ("trial", "shadow")
    assert states(path="/api/pay", method="PUT") == [
        ("system", "applies"), ("pay", "applies"), ("kinds", "applies"), ("tenants", "no key"),
        shadow,
    ]  # fmt: skip
    assert states(headers={"x-tenant": "acme"}) == [
        ("system", "applies"), ("tenants", "applies"), shadow,
    ]  # fmt: skip
    assert states(path="/health", headers={"x-tenant": "acme"}) == [
        ("system", "not asked"), ("tenants", "not asked"), ("trial", "not asked"),
    ]  # fmt: skip
    assert "bots denies the call" in told(origin="bot")["system"].meaning
    assert "health exempts the call" in told(path="/health")["trial"].meaning


def test_parts_in_the_order_of_a_call() -> None:
    found = told(path="/api/pay", method="POST", headers={"x-kind": "checkout"})
    pay, kinds = found["pay"], found["kinds"]
    assert [part.part for part in pay.parts] == [
        "fallback", "last_good", "collapse", "retry", "breaker", "bulkhead", "timeout",
    ]  # fmt: skip
    words = {part.part: part.words for part in pay.parts}
    assert words["breaker"]["slow"] == {"over": "2s", "ratio": "60%"}
    assert words["breaker"]["fleet"]["quorum"] == 3
    assert words["last_good"] == {"age": "300s", "size": 1024, "key": ["user", "arg:sku"]}
    notes = {part.part: part.note for part in kinds.parts}
    assert notes["retry"] == "left to pay, which comes before"
    assert notes["adaptive"] == "the call is in partition checkout, to which 50% are guaranteed"
    other = told(path="/api/x", headers={"x-kind": "x"})["kinds"]
    assert [part.note for part in other.parts] == [
        "only around functions of the gate", "the call is in no partition: 'x' is none",
    ]  # fmt: skip
    assert "in shadow" in told()["trial"].parts[0].note


def test_the_same_policies_as_the_gate_asks() -> None:
    gate = Gate(json.dumps(RULES))
    guards = gate._book.guards
    assert guards is not None
    for path in ("/api/pay", "/api/x", "/health"):
        for method in ("GET", "POST"):
            for headers in ({}, {"x-tenant": "a"}):
                known: dict[str, Any] = {"path": path, "method": method, "headers": headers}
                asked = [guards.rules[at].name for at, _ in guards.matching.match(Facts(**known))]
                said = [name for name, state in states(**known) if state != "no key"]
                assert said == ["system", *asked]


def test_text(path: str, capsys: Capture) -> None:
    facts = '{"path": "/api/pay", "method": "GET", "headers": {"x-tenant": "acme"}}'
    assert main(["rules", "explain", path, facts]) == 0
    out = capsys.readouterr().out
    assert "\nthe call is protected, before its limits, by system, kinds, tenants\n" in out
    assert "      system cpu 80%, loop_lag 0.05s, in_flight 100, shed {0: 100%}, every 1s\n" in out
    assert "  no  method is POST or PUT; it is GET\n" in out or "no  method is PUT or POST" in out
    assert "      bulkhead pool 8, queue 4, wait 1s (plain functions of the gate" in out
    assert "  yes key: header:x-tenant; it is acme\n      bulkhead at_once 5\n" in out
    assert main(["rules", "explain", path, '{"path": "/health"}', "--matching"]) == 0
    assert "\nthe call is protected by no policy\n" in capsys.readouterr().out


def test_json(path: str, capsys: Capture) -> None:
    facts = '{"path": "/api/pay", "method": "PUT", "headers": {"x-tenant": "acme"}}'
    assert main(["rules", "explain", path, facts, "--json", "--matching"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [each["policy"] for each in found["policies"]] == [
        "system", "pay", "kinds", "tenants", "trial",
    ]  # fmt: skip
    pay, tenants = found["policies"][1], found["policies"][3]
    assert {"condition": "path is /api/pay", "holds": True, "found": "/api/pay"} in (
        pay["conditions"]
    )
    assert pay["parts"][0]["words"] == {"data": {"queued": [True]}}
    assert (tenants["key"], tenants["state"], tenants["line"] > 0) == ("acme", "applies", True)
