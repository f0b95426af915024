"""Rules files that are wrong: what is said of them, and where."""

from __future__ import annotations

import pickle
import time
from typing import Any

import pytest

from headgate.errors import HeadgateError
from headgate.rules import RulesError, read_rules
from headgate.rules.lines import SIZE

pytest.importorskip("yaml")

from rules_tools import LOOK


def wrong(text: str | bytes, name: str = "rules.yaml", **more: Any) -> RulesError:
    with pytest.raises(RulesError) as caught:
        read_rules(text, name=name, **more)
    assert caught.value.file == name
    assert str(caught.value).startswith(name)
    return caught.value


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
