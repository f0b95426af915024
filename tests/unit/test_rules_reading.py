"""Rules files: what they become, and what is said of those that are wrong."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from headgate import Limit
from headgate.cli import main
from headgate.errors import HeadgateError
from headgate.rules import RulesError, load_rules, read_rules
from headgate.rules.lines import SIZE
from headgate.rules.model import Cost, KeyPart, Lists, Otherwise

pytest.importorskip("yaml")

LOOK = """\
version: 1
defaults: {on_error: local, headers: draft-11}
rules:
  - name: login-ip              # generous: a café shares one address
    match: {method: POST, path: /login}
    key: [ip]
    limit: 60/minute
  - name: login-guess           # tight, and only failures count
    match: {method: POST, path: /login}
    key: [ip, user]
    limit: 5/minute
    count: failures
    on_error: deny
  - name: api
    match: {path: /api/*}
    key: [user]
    limits: [10/second burst 20, 500/hour]
    plans: {by: plan, pro: [100/second burst 200, 20000/hour], own: unlimited}
  - name: export
    match: {path: /api/export}
    key: [user]
    limit: 2 concurrent
    wait: 3s
    status: 503
    log_level: warning
"""


def one(**said: Any) -> Any:
    """The one rule of a file that says this."""
    rule = {"name": "r", "limit": "5/minute", **said}
    text = {"version": 1, "rules": [{k: v for k, v in rule.items() if v is not None}]}
    return read_rules(json.dumps(text), name="rules.json").rules[0]


def wrong(text: str | bytes, name: str = "rules.yaml", **more: Any) -> RulesError:
    with pytest.raises(RulesError) as caught:
        read_rules(text, name=name, **more)
    assert caught.value.file == name
    assert str(caught.value).startswith(name)
    return caught.value


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


CHANGES = [
    ("60/minute", "60/minutee", 7, "login-ip", "limit: 'minutee' is not a time"),
    ("count:", "cuont:", 12, "login-guess", "did you mean 'count'?"),
    ("[ip, user]", "[ip, users]", 10, "login-guess", "did you mean 'user'?"),
    ("[ip, user]", "[ip, header]", 10, "login-guess", "Write header:name"),
    ("[ip, user]", "[ip:x]", 10, "login-guess", "ip has no name behind it"),
    ("wait: 3s", "wait: 3x", 23, "export", "wait: '3x' is not a time"),
    ("wait: 3s", "wait: 2h", 23, "export", "up to an hour"),
    ("status: 503", "status: 99", 24, "export", "from 200 to 599, not 99"),
    ("status: 503", "status: '503'", 24, "export", "not '503'"),
    ("version: 1", "version: 2", 1, "", "version: expected 1, not 2"),
    ("version: 1\n", "", 1, "", "'version' is missing"),
    ("rules:", "rulez:", 3, "", "did you mean 'rules'? Known are version, defaults, rules"),
    ("name: export", "name: api", 19, "api", "already, on line 14"),
    ("name: export", "name: 'a b'", 19, "a b", "name: a name is"),
    ("name: export", "nam: export", 19, "", "did you mean 'name'?"),
    ("limit: 2 concurrent", "limit: 2", 22, "export", "a limit such as '100/minute', not 2"),
    ("limit: 2 concurrent\n", "shadow: yes\n", 22, "export", "expected true or false, not 'yes'"),
    ("limit: 2 concurrent\n", "shadow: true\n", 19, "export", "'limit' or 'limits' is missing"),
    ("limit: 2 concurrent\n", "limit: 1/s\n    limits: [1/s]\n", 19, "export", "one of the two"),
    ("limit: 2 concurrent\n", "exempt: true\n    limit: 1/s\n", 19, "export", "limits nobody"),
    (
        "path: /api/export",
        "path: api",
        20,
        "export",
        "match.path: a path begins with a slash: /api",
    ),
    ("path: /api/export", "path: /api*", 20, "export", "'*' stands for a whole segment"),
    ("path: /api/export", "path: /a/**/b", 20, "export", "at the end"),
    ("path: /api/export", "path: /a//b", 20, "export", "without '//'"),
    ("path: /api/export", "path: '/{a}/{a}'", 20, "export", "twice"),
    ("path: /api/export", "path: /{id}", 20, "export", "in quotes"),
    ("path: /api/export", "path: *", 20, "", "in quotes"),
    ("{by: plan, ", "{", 18, "api", "'by' is missing"),
    ("pro: [", "pro: [1/x, ", 18, "api", "plans.pro: 'x' is not a time"),
    ("on_error: deny", "on_error: denied", 13, "login-guess", "did you mean 'deny'?"),
    ("on_error: deny", "limit: 3/minute", 13, "", "'limit' is there twice; first on line 11"),
    ("on_error: deny", "cost: 0", 13, "login-guess", "from 1 to"),
    ("on_error: deny", "cost: {size: 1KiB, arg: n}", 13, "login-guess", "exclude each other"),
    ("on_error: deny", "cost: {size: 1XiB}", 13, "login-guess", "cost.size: a size is such as"),
    ("on_error: deny", "otherwise: {}", 13, "login-guess", "one of redirect, page, data"),
    ("on_error: deny", "otherwise: {redirect: 'javascript:x'}", 13, "login-guess", "https://"),
    ("on_error: deny", "otherwise: {function: os.system}", 13, "login-guess", "module:name"),
    ("on_error: deny", "allow: {networks: 10.0.0.1/8}", 13, "login-guess", "10.0.0.0/8?"),
    ("on_error: deny", "while: {resource: B}", 13, "login-guess", "'limit' is missing"),
    ("on_error: deny", "replaces: apo", 8, "login-guess", "did you mean 'api'?"),
    ("on_error: deny", "replaces: login-guess", 8, "login-guess", "replace itself"),
    ("on_error: deny", "hot: {value: {a: 1/s}}", 13, "login-guess", "did you mean 'values'?"),
    ("    key: [ip]\n", "    hot: {values: {a: 1/s}}\n", 4, "login-ip", "no 'key'"),
    ("on_error: deny", "wait: !!python/object/apply:os.system [x]", 13, "", "tags such as"),
    ("on_error: deny", "on_error: &a deny", 0, "", ""),
    ("on_error: deny", "match2: *a", 13, "", "aliases are not read"),
    ("on_error: deny", "? [a]\n    : b", 13, "", "a name is a text"),
    ("log_level: warning", "log_level: warning\n---\na: 1", 26, "", "second document"),
    ("log_level: warning", "log_level: \x01", 25, "", "does not have"),
]


@pytest.mark.parametrize(("old", "new", "line", "rule", "problem"), CHANGES)
def test_what_is_wrong_and_where(old: str, new: str, line: int, rule: str, problem: str) -> None:
    assert old in LOOK
    text = LOOK.replace(old, new, 1)
    if not problem:
        read_rules(text)
        return
    error = wrong(text)
    assert problem in error.problem
    if rule or "in quotes" not in problem:
        assert error.line == line
    if "in quotes" not in problem:
        assert error.rule == rule


def test_the_caret_points_into_the_limit() -> None:
    error = wrong(LOOK.replace("500/hour", "500/hour gcra brst 5"))
    assert error.rule == "api"
    said = str(error).splitlines()
    assert said[0].startswith("rules.yaml:17: rule 'api': limits: unknown word 'brst'")
    assert said[1].strip() == "500/hour gcra brst 5"
    assert said[2].index("^") == said[1].index("brst")


def test_all_rules_that_are_wrong_are_named() -> None:
    text = "version: 1\nrules:\n" + "- {name: a, limit: x}\n" * 50
    error = wrong(text)
    assert [one.line for one in (error, *error.more)] == list(range(3, 23))
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.rule, len(again.more)) == (str(error), "a", 19)
    assert isinstance(error, HeadgateError)
    assert isinstance(error, ValueError)


JSONS = [
    ('{"version": 1,}', 1, "a name in quotes was expected, not '}'"),
    ('{"version": 1\n"rules": []}', 2, "',' or '}' was expected"),
    ('{"version": 01}', 1, "not JSON"),
    ('{"version": 1}\n\n{}', 3, "the end was expected"),
    ('{"version": 1,\n "version": 1}', 2, "'version' is there twice; first on line 1"),
    ('{"version": 1,\n "rules": [}', 2, "a value or ']' was expected, not '}'"),
    ('{"version": 1,\n "rules": [1,]}', 2, "a value was expected, not ']'"),
    ('{"version": NaN}', 1, "not JSON"),
    ('{"version": "\\ud800"}', 1, "is not one"),
    ('{"version": "\\x"}', 1, "is not one"),
    ('{"version": "a\nb"}', 1, "not JSON"),
    ('{"version": ' + "1" * 5000 + "}", 1, "at most 40"),
    ('{"version"', 1, "ends inside a table"),
    ("[" * 100_000, 1, "more than 32 deep"),
    ("[]", 1, "expected a table of version, defaults, rules"),
    (" ", 1, "there is nothing in it"),
]


@pytest.mark.parametrize(("text", "line", "problem"), JSONS)
def test_json_that_is_none(text: str, line: int, problem: str) -> None:
    error = wrong(text, "rules.json")
    assert problem in error.problem
    assert error.line == line


TOMLS = [
    ("version = 1\nversion = 1", 2, "not TOML: Cannot overwrite a value"),
    ("version = 1\n[[rules]]\nname = 'a'\nlimt = '1/s'", 4, "did you mean 'limit'?"),
    ("version = 1\n[[rules]]\nname = 'a'\nlimit = '1/s'\n[rules.match]\npaht = 1", 6, "'path'?"),
    ("version = 1\n[[rules]]\nname = 'a'\nlimit = 2026-01-01", 4, "not a date"),
    ("version = 1\n[[rules]]\nname = 'a'\n\nmatch.path = 'x'\nlimit = '1/s'", 5, "with a slash"),
    ("version = " + "1" * 5000, 1, "not TOML"),
    ("a = " + "[" * 100_000, 0, "more than 32 deep"),
    ("a = " + "[" * 40 + "]" * 40, 1, "more than 32 deep"),
    ("version = 1\n" + "a." * 100_000 + "a = 1", 2, "joined by dots"),
    ("version = 1\n" + '"\\"".' * 100_000 + "a = 1", 2, "joined by dots"),
]


@pytest.mark.parametrize(("text", "line", "problem"), TOMLS)
def test_toml_that_is_none(text: str, line: int, problem: str) -> None:
    begun = time.monotonic()
    error = wrong(text, "rules.toml")
    assert problem in error.problem
    assert error.line == line
    assert time.monotonic() - begun < 10


def laughs() -> str:
    return "a: &a [x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1 or ''}]\n" for n in range(1, 30))


BOMBS: list[tuple[str | bytes, str]] = [
    ("[" * 100_000, "more than 32 deep"),
    ("- " * 100_000, "more than 32 deep"),
    ("{a: " * 100_000, "more than 32 deep"),
    (laughs(), "aliases are not read"),
    ("x" * (SIZE + 1), "larger than 4 MiB"),
    (b"version: 1\nrules: \xff", "UTF-8"),
    ("version: 1\nrules: \ud800", "surrogate"),
    ("", "nothing in it"),
    ("version: 1\nrules: [" + "{}," * 20_001 + "]", "more than 20,000 rules"),
    ("version: 1\nrules: [{name: a, limit: " + "9" * 100_000 + "/s}]", "a limit such as"),
    ("version: 1\n" + "k" * 1000 + ": 1", "is unknown"),
    ("domain: x\ndescriptors: []", "headgate.rules.envoy"),
    ("version: 1\nrules: {a: 1}", "expected a list of rules, not a table"),
    ("version: 1\nrules: [a, 1, [], null]", "expected a table of name"),
]


@pytest.mark.parametrize(("text", "problem"), BOMBS)
def test_bombs(text: str | bytes, problem: str) -> None:
    begun = time.monotonic()
    error = wrong(text)
    assert problem in error.problem
    assert len(str(error)) < 2000
    assert time.monotonic() - begun < 30


@pytest.mark.parametrize("name", ["rules.yaml", "rules.json", "rules.toml"])
def test_too_many_values(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headgate.rules.lines.NODES", 5000)
    many = "[" + "0," * 6000 + "0]"
    error = wrong({"rules.toml": f"a = {many}"}.get(name, many), name)
    assert error.problem.startswith("more than ")
    assert error.problem.endswith(",000 values")


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
