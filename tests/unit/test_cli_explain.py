"""`headgate rules explain`, and what it is made of."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headgate import Facts
from headgate.cli import main
from headgate.rules import read_rules
from headgate.rules.explained import STATES, explained
from headgate.rules.match import Snapshot
from servers import Server

Capture = pytest.CaptureFixture[str]

RULES: dict[str, Any] = {
    "version": 1,
    "allow": {"networks": ["10.0.0.0/8"]},
    "deny": {"users": ["eve"]},
    "rules": [
        {"name": "health", "match": {"path": "/health"}, "exempt": True},
        {"name": "trial", "match": {"path": "/trial"}, "exempt": True, "shadow": True},
        {"name": "login", "match": {"method": "POST", "path": "/login"}, "key": ["ip"],
         "limit": "60/minute"},
        {"name": "guess", "match": {"method": "POST", "path": "/login"}, "key": ["ip", "user"],
         "limit": "5/minute", "cost": 2},
        {"name": "api", "match": {"path": "/api/{shop}/*", "header": {"X-Kind": ["a", "b"]}},
         "key": ["param:shop"], "limits": ["10/second burst 20", "500/hour"],
         "plans": {"by": "plan", "pro": "100/second"}},
        {"name": "inner", "match": {"through": "checkout", "attributes": {"role": "*"}},
         "limit": "1/second", "shadow": True},
        {"name": "big", "match": {"host": "big.example"}, "limit": "9/second",
         "replaces": ["small"]},
        {"name": "small", "match": {"host": "*.example"}, "limit": "1/second",
         "deny": {"origins": ["bot"]}, "allow": {"users": ["root"]}},
        {"name": "rush", "match": {"path": "/rush"}, "limit": "1/second",
         "while": {"resource": "db", "limit": "5/second"}},
    ],
}  # fmt: skip


def states(**facts: Any) -> dict[str, str]:
    found = explained(Snapshot(read_rules(json.dumps(RULES))), Facts(**facts))
    assert {each.state for each in found.rules} <= STATES.keys()
    told = {each.rule: each.state for each in found.rules if each.state != "no match"}
    return {"": found.outcome, **told}


def test_states() -> None:
    login = {"method": "POST", "path": "/login"}
    assert states(**login, ip="192.0.2.7") == {"": "limited", "login": "applies", "guess": "no key"}
    assert states(**login, ip="192.0.2.7", user="ann") == {
        "": "limited", "login": "applies", "guess": "applies",
    }  # fmt: skip
    assert states(**login, ip="10.0.0.1") == {
        "": "exempt", "login": "not asked", "guess": "no key",
    }  # fmt: skip
    assert states(**login, ip="192.0.2.7", user="eve")[""] == "denied"
    assert states(path="/health") == {"": "exempt", "health": "exempts"}
    assert states(path="/trial") == {"": "unlimited", "trial": "exempts"}
    assert states(path="/other") == {"": "unlimited"}
    assert states(path="/rush") == {"": "limited", "rush": "applies"}


def test_other_rules() -> None:
    assert states(host="big.example") == {"": "limited", "big": "applies", "small": "replaced"}
    assert states(host="a.example", origin="bot") == {"": "denied", "small": "denies"}
    assert states(host="a.example", user="root") == {"": "unlimited", "small": "allows"}
    assert states(host="big.example", path="/health") == {
        "": "exempt", "health": "exempts", "big": "not asked", "small": "not asked",
    }  # fmt: skip
    inner = {"chain": ("cart", "checkout"), "attributes": {"role": "buyer"}}
    assert states(**inner) == {"": "limited", "inner": "shadow"}


def test_the_same_rules_as_the_gate_applies() -> None:
    """What is said to limit a call is what is asked for."""
    snapshot = Snapshot(read_rules(json.dumps(RULES)))
    values: dict[str, tuple[Any, ...]] = {
        "method": ("GET", "POST"), "path": ("/login", "/api/x/y", "/health", "/rush"),
        "ip": ("", "192.0.2.7", "10.0.0.1"), "user": ("", "ann", "eve", "root"),
        "host": ("", "a.example", "big.example"), "origin": ("", "bot"),
        "headers": ({}, {"x-kind": "a"}),
    }  # fmt: skip
    count = 0
    for number in range(2 * 4 * 3 * 4 * 3 * 2 * 2):
        chosen, rest = {}, number
        for name, some in values.items():
            chosen[name], rest = some[rest % len(some)], rest // len(some)
        facts = Facts(**chosen)
        found, matched = explained(snapshot, facts), snapshot.match(facts)
        limiting = {each.rule for each in found.rules if each.state in ("applies", "shadow")}
        assert limiting == {bound.rule.name for bound in matched.bounds if not bound.rule.feeds}
        count += len(limiting)
    assert count > 200


@pytest.fixture
def path(tmp_path: Path) -> str:
    where = tmp_path / "rules.json"
    where.write_text(json.dumps(RULES, indent=1))
    return str(where)


def test_text(path: str, capsys: Capture) -> None:
    facts = json.dumps({"path": "/api/north/x", "headers": {"x-kind": "c"}})
    assert main(["rules", "explain", path, facts]) == 0
    out = capsys.readouterr().out
    assert out.startswith("no rule is for this call: it passes\n")
    assert "  yes path is /api/{shop}/*; it is /api/north/x\n" in out
    assert "  no  header x-kind is a or b; it is c\n" in out
    assert "  no  came through checkout; there is none\n" in out
    facts = json.dumps({"path": "/api/north/x", "headers": {"X-Kind": "a"}})
    assert main(["rules", "explain", path, facts, "--matching"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "the call is limited by api"
    assert lines[2].startswith("api (line ")
    assert lines[2].endswith("): applies; it limits the call")
    assert lines[5:] == [
        "  yes key: param:shop; it is north",
        "      limit 10/second token-bucket burst 20",
        "      limit 500/hour",
    ]


def test_json(path: str, capsys: Capture) -> None:
    facts = {"method": "POST", "path": "/login", "ip": "192.0.2.7", "user": "ann"}
    assert main(["rules", "explain", path, json.dumps(facts), "--json", "--matching"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["outcome"], told["by"]) == ("limited", "")
    login, guess = told["rules"]
    assert (login["key"], login["limits"], login["cost"]) == ("192.0.2.7", ["60/minute"], 1)
    assert (guess["key"], guess["cost"]) == (["192.0.2.7", "ann"], 2)
    assert {"condition": "method is POST", "holds": True, "found": "POST"} in guess["conditions"]


def test_lists(path: str, capsys: Capture) -> None:
    main(["rules", "explain", path, '{"path": "/login", "ip": "10.1.1.1"}'])
    assert capsys.readouterr().out.startswith("the call passes without being counted, by allow\n")
    main(["rules", "explain", path, '{"host": "a.example", "origin": "bot"}', "--matching"])
    out = capsys.readouterr().out
    assert out.startswith("the call is refused, by small\n")
    assert "  yes deny origins: bot; it is bot\n" in out


def test_shadow_alone(path: str, capsys: Capture) -> None:
    facts = '{"chain": ["checkout"], "attributes": {"role": "buyer"}}'
    main(["rules", "explain", path, facts])
    assert capsys.readouterr().out.startswith("the call is limited by rules in shadow alone")


def test_of_envoy(tmp_path: Path, capsys: Capture) -> None:
    pytest.importorskip("yaml")
    where = tmp_path / "envoy.yaml"
    where.write_text(
        "domain: shop\ndescriptors:\n"
        "  - key: user\n    rate_limit: {unit: hour, requests_per_unit: 1}\n"
        "  - key: user\n    value: ann\n    rate_limit: {unlimited: true}\n"
    )
    facts = {"domain": "shop", "entries": [["user", "bob"]]}
    assert main(["rules", "explain", str(where), json.dumps(facts), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [rule["state"] for rule in told["rules"]] == ["applies", "no match"]
    facts["entries"] = [["user", "ann"]]
    assert main(["rules", "explain", str(where), json.dumps(facts)]) == 0
    assert "without being counted, by shop.user_ann" in capsys.readouterr().out


def test_complaints(path: str, capsys: Capture) -> None:
    assert main(["rules", "explain", path, "{"]) == 2
    assert main(["rules", "explain", path + "x", "{}"]) == 2
    Path(path).write_text('{"version": 1, "rules": [{}, {}]}')
    assert main(["rules", "explain", path, "{}"]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 4


def test_publish_as_json(path: str, capsys: Capture) -> None:
    with Server() as server:
        assert main(["rules", "publish", path, server.url, "--json"]) == 0
        told = json.loads(capsys.readouterr().out)
        assert told["published"]
        assert told["digest"] == read_rules(Path(path).read_text()).digest
        Path(path).write_text('{"version": 1, "rules": [{}, {}]}')
        assert main(["rules", "publish", path, server.url, "--json"]) == 1
        told = json.loads(capsys.readouterr().out)
        assert (told["published"], len(told["errors"])) == (False, 2)
