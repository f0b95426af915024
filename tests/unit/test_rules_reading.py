"""Rules files: what they become, and what is said of those that are wrong."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from headgate import Limit
from headgate.cli import main
from headgate.rules import RulesError, load_rules, read_rules
from headgate.rules.model import Cost, KeyPart, Lists, Otherwise

pytest.importorskip("yaml")

from rules_tools import LOOK


def one(**said: Any) -> Any:
    """The one rule of a file that says this."""
    rule = {"name": "r", "limit": "5/minute", **said}
    text = {"version": 1, "rules": [{k: v for k, v in rule.items() if v is not None}]}
    return read_rules(json.dumps(text), name="rules.json").rules[0]


def test_the_look() -> None:
    rules = read_rules(LOOK)
    assert [rule.name for rule in rules.rules] == ["login-ip", "login-guess", "api", "export"]
    assert [rule.line for rule in rules.rules] == [4, 8, 14, 19]
    first, guess, api, export = rules.rules
    assert first.match.methods == {"POST"}
    assert first.match.paths == ("/login",)
    assert first.key == (KeyPart("ip"),)
    assert first.limits == (Limit.parse("60/minute"),)
    assert (first.on_error, guess.on_error, guess.count) == ("local", "deny", "failures")
    assert api.limits == (Limit.parse("10/second burst 20"), Limit.parse("500/hour"))
    assert api.plans is not None
    assert api.plans.by == "plan"
    assert set(api.plans.limits) == {"pro", "own"}
    assert api.plans.limits["own"] == ()
    assert (export.wait, export.status, export.log_level) == (3.0, 503, "warning")
    assert rules.defaults.headers == "draft-11"
    assert (rules.source, len(rules.digest)) == ("rules.yaml", 64)


def test_three_formats_mean_the_same() -> None:
    toml = """
version = 1
[defaults]
status = 420

[[rules]]
name = "a"
key = ["ip"]
limit = "5/minute"
[rules.match]
path = "/a"
header = {X-Kind = "b"}

[[rules]]
name = "b"
exempt = true
"""
    yaml = """
version: 1
rules:
- {name: a, key: ip, limit: 5/minute, match: {path: /a, header: {x-kind: [b]}}}
- name: b
  exempt: true
defaults:
  status: 420
"""
    data = {
        "rules": [
            {"name": "a", "key": ["ip"], "limits": ["5/minute"],
             "match": {"path": ["/a"], "header": {"X-KIND": "b"}}},
            {"name": "b", "exempt": True},
        ],
        "defaults": {"status": 420},
        "version": 1,
    }  # fmt: skip
    found = [
        read_rules(toml, name="rules.toml"),
        read_rules(yaml),
        read_rules(yaml.encode(), name="rules", format="yaml"),
        read_rules(json.dumps(data), name="rules.json"),
        read_rules("\ufeff" + json.dumps(data, indent=1).replace("\n", "\r\n"), name="anything"),
    ]
    texts = {repr([(r.name, r.match, r.key, r.limits, r.status) for r in x.rules]) for x in found}
    assert len(texts) == 1
    assert found[0].rules[0].status == 420
    assert found[0].rules[1].exempt
    assert [rule.line for rule in found[0].rules] == [6, 14]


def test_everything_that_a_rule_can_say() -> None:
    rule = one(
        match={
            "method": ["get", "HEAD"], "path": ["/a/{id}", "/b/**", "/c/*/d"],
            "host": "*.Example.com", "resource": "orders", "origin": ["cart", 7],
            "header": {"X-Foo": ["bar", "*"]},
            "attributes": {"plan": "pro", "beta": True, "level": 3}, "entries": {"k": "v"},
            "through": "gateway",
        },
        key=["header:X-Tenant", "param:id", "arg:sku", "attribute:plan", "entry:k", "api_key"],
        hot={"values": {"sku-1": "5/second", "sku-2": ["1/second", "9/hour"], "7": "unlimited"}},
        cost={"header": "X-Cost", "default": 2, "most": 10},
        otherwise={"data": {"items": [1, None, "x"]}},
        shadow=True, priority=-5, wait=0.5,
        allow={"networks": "10.0.0.0/8", "users": [1, "root"]},
        deny={"origins": ["spam"]},
        **{"while": {"resource": "B", "limit": "100/second"}},
    )  # fmt: skip
    match = rule.match
    assert match.methods == {"GET", "HEAD"}
    assert match.hosts == ("*.example.com",)
    assert match.headers == {"x-foo": ("bar", "*")}
    assert match.origins == ("cart", "7")
    assert match.attributes == {"plan": ("pro",), "beta": ("true",), "level": ("3",)}
    assert match.through == ("gateway",)
    assert rule.key[0] == KeyPart("header", "x-tenant")
    assert [part.source for part in rule.key[1:]] == [
        "param",
        "arg",
        "attribute",
        "entry",
        "api_key",
    ]
    assert rule.hot["sku-1"] == (Limit.parse("5/second"),)
    assert (len(rule.hot["sku-2"]), rule.hot["7"]) == (2, ())
    assert rule.cost == Cost("header", "x-cost", 2, 1, 10)
    assert rule.otherwise == Otherwise("data", {"items": [1, None, "x"]})
    assert (rule.shadow, rule.priority, rule.wait) == (True, -5, 0.5)
    assert rule.allow == Lists(networks=("10.0.0.0/8",), users=("1", "root"))
    assert rule.deny == Lists(origins=("spam",))
    assert rule.busy == {"resource": "B", "limit": Limit.parse("100/second")}
    for mapping in (rule.hot, rule.busy, match.headers):
        with pytest.raises(TypeError):
            mapping["x"] = 1


@pytest.mark.parametrize(
    ("said", "cost"),
    [
        (5, Cost(default=5)),
        ({"size": "1KiB"}, Cost("size", default=1, per=1024)),
        ({"size": 100}, Cost("size", per=100)),
        ({"arg": "n", "per": 10}, Cost("arg", "n", per=10)),
    ],
)
def test_costs(said: Any, cost: Cost) -> None:
    assert one(cost=said).cost == cost


def test_words_of_yaml_are_texts() -> None:
    text = "{version: 1, defaults: {headers: off}, rules: [{name: no, limit: 5/minute, key: ip}]}"
    rules = read_rules(text)
    assert (rules.defaults.headers, rules.rules[0].name) == ("off", "no")


def test_lists_at_the_top_and_replaces() -> None:
    text = """
version: 1
allow: {networks: [192.0.2.0/24, "2001:db8::/32", 192.0.2.9]}
deny: {users: mallory}
rules:
  - {name: a, limit: 5/minute, replaces: b}
  - {name: b, deny: {origins: [x]}}
"""
    rules = read_rules(text)
    assert rules.allow == Lists(networks=("192.0.2.0/24", "2001:db8::/32", "192.0.2.9/32"))
    assert rules.deny == Lists(users=("mallory",))
    assert rules.rules[0].replaces == ("b",)
    assert read_rules("version: 1").rules == ()


def test_files(tmp_path: Path) -> None:
    path = tmp_path / "rules.yaml"
    path.write_text(LOOK)
    assert load_rules(path).source == str(path)
    os.mkfifo(tmp_path / "pipe.yaml")
    for name, problem in (
        ("none.yaml", "No such file"), ("pipe.yaml", "is not a file"), (".", "is not a file"),
        ("nul\0.yaml", "cannot be read"),
    ):  # fmt: skip
        with pytest.raises(RulesError, match=problem):
            load_rules(tmp_path / name)
    with pytest.raises(RulesError, match="no format 'yml'; did you mean 'yaml'"):
        load_rules(path, format="yml")


def test_many_rules_are_read() -> None:
    rule = "- {{name: r{0}, match: {{path: /a/{0}}}, key: [ip], limit: {1}/minute}}\n"
    text = "version: 1\nrules:\n" + "".join(rule.format(n, n % 50 + 1) for n in range(2000))
    assert len(read_rules(text).rules) == 2000


def test_without_pyyaml() -> None:
    code = (
        "import sys; sys.modules['yaml'] = None\n"
        "from headgate.rules import read_rules, RulesError\n"
        "read_rules('{\"version\": 1}', name='a.json'); read_rules('version = 1', name='a.toml')\n"
        "try: read_rules('version: 1')\n"
        "except RulesError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install 'headgate[rules]'" in done.stdout


def test_validate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "rules.yaml"
    path.write_text(LOOK)
    assert main(["rules", "validate", str(path)]) == 0
    assert capsys.readouterr().out.startswith(f"{path}: 4 rules, digest ")
    path.write_text(LOOK.replace("/minute", "/minuet"))
    assert main(["rules", "validate", str(path)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line.startswith(f"{path}:7: rule 'login-ip'")]
    assert [line for line in lines if line.startswith(f"{path}:11: rule 'login-guess'")]
    assert main(["rules", "validate", str(path), "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert [error["line"] for error in found["errors"]] == [7, 11]
    assert main(["rules", "validate", str(tmp_path / "none")]) == 1
    assert "No such file" in capsys.readouterr().out
