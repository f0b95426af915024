"""`headgate check`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from headgate.cli import main, shown

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def zone(tmp_path: Path) -> str:
    return f"zone://{tmp_path}/zone?size=64KiB"


@pytest.fixture
def rules(tmp_path: Path) -> str:
    path = tmp_path / "rules.json"
    found = [
        {"name": "free", "match": {"path": "/free"}, "exempt": True},
        {"name": "api", "match": {"path": "/api/*"}, "key": ["user"], "limit": "2/hour gcra"},
        {"name": "watch", "match": {"path": "/api/*"}, "limit": "1/hour gcra", "shadow": True},
        {"name": "held", "match": {"path": "/held"}, "limit": "1 concurrent", "status": 503},
        {"name": "closed", "match": {"path": "/closed"}, "deny": {"networks": ["192.0.2.0/24"]}},
    ]
    path.write_text(json.dumps({"version": 1, "rules": found}))
    return str(path)


def test_counts_in_a_store(zone: str, capsys: Capture) -> None:
    ask = ["check", "3/hour gcra", "--key", "user:42", "--store", zone]
    assert main([*ask, "--cost", "2"]) == 0
    assert capsys.readouterr().out.splitlines()[0] == "allowed"
    assert main([*ask, "--peek"]) == 0
    assert main([*ask, "--peek", "--cost", "2"]) == 1
    assert main([*ask]) == 0
    capsys.readouterr()
    assert main([*ask]) == 1
    first, heads, row = capsys.readouterr().out.splitlines()
    assert first.startswith("refused by 3/hour gcra, retry after 1")
    assert heads.split() == ["limit", "passes", "left", "retry", "after", "reset", "after"]
    assert row.startswith("3/hour gcra  no      0     1")
    assert main([*ask[:3], "user:43", *ask[4:]]) == 0


def test_json(zone: str, capsys: Capture) -> None:
    limits = ["5/hour gcra", "2/minute gcra"]
    keys = ["--key", "a", "--key", "b", "--store", zone, "--json"]
    assert main(["check", *limits, *keys, "--name", "api"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["allowed"], told["remaining"], told["degraded"]) == (True, 1, False)
    assert [part["remaining"] for part in told["decisions"]] == [4, 1]
    assert main(["check", *limits, *keys, "--cost", "9"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert (told["allowed"], told["retry_after"]) == (False, None)


def test_by_rules(zone: str, rules: str, capsys: Capture) -> None:
    def ask(facts: str, *more: str) -> int:
        return main(["check", "--rules", rules, "--store", zone, "--facts", facts, *more])

    call = '{"path": "/api/x?y=1", "user": "ann"}'
    assert [ask(call), ask(call), ask(call)] == [0, 0, 1]
    out = capsys.readouterr().out
    assert "refused by rule api, status 429, retry after " in out
    assert "watch: 1/hour gcra  shadow" in out
    assert ask(call, "--json") == 1
    told = json.loads(capsys.readouterr().out)
    assert (told["rule"], told["status"], told["shadowed"]) == ("api", 429, ["watch"])
    assert told["headers"]["Retry-After"] == str(told["decisions"][0]["retry_after"].__ceil__())
    assert [ask('{"path": "/free"}'), ask('{"path": "/other"}')] == [0, 0]
    assert capsys.readouterr().out.splitlines() == [
        "allowed: exempt by rule free",
        "allowed: no rule is for this call",
    ]
    assert ask('{"path": "/closed", "ip": "192.0.2.7"}') == 1
    assert capsys.readouterr().out == "refused by rule closed, status 403\n"
    assert [ask('{"path": "/held"}'), ask('{"path": "/held"}')] == [0, 0]  # nothing stays held


def test_facts_from_a_file(rules: str, tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "facts.json"
    path.write_text('{"path": "/api/x", "user": "ann"}')
    assert main(["check", "--rules", rules, "--facts", f"@{path}", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["remaining"] == 1


def test_of_envoy(tmp_path: Path, capsys: Capture) -> None:
    pytest.importorskip("yaml")
    path = tmp_path / "envoy.yaml"
    path.write_text(
        "domain: shop\ndescriptors:\n  - key: user\n"
        "    rate_limit: {unit: hour, requests_per_unit: 1}\n"
    )
    facts = '{"domain": "shop", "entries": [["user", "ann"]]}'
    assert main(["check", "--rules", str(path), "--facts", facts, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["decisions"][0]["rule"] == "shop.user"


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ([], "give limits"),
        (["1/second", "--rules", "x"], "give limits"),
        (["many/second"], "expected a limit"),
        (["1/second", "--cost", "-1"], "cost"),
        (["1/second", "--store", "nowhere://"], "nowhere"),
        (["1 concurrent"], "hold"),
        (["--rules", "missing.yaml"], "cannot be read"),
        (["--rules", "RULES", "--facts", "{"], "facts are JSON"),
        (["--rules", "RULES", "--facts", "[]"], "facts are an object"),
        (["--rules", "RULES", "--facts", '{"pth": "/"}'], "no fact 'pth'"),
        (["--rules", "RULES", "--facts", '{"ip": "x"}'], "ip is an address"),
        (["--rules", "RULES", "--facts", "@missing"], "facts are JSON"),
        (["--rules", "RULES", "--cost", "2"], "are for limits"),
    ],
)
def test_complaints(arguments: list[str], problem: str, rules: str, capsys: Capture) -> None:
    told = [rules if each == "RULES" else each for each in arguments]
    assert main(["check", *told]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert problem in err


# -- what is shown


class Terminal:
    """An output that somebody looks at."""

    encoding = "utf-8"

    def __init__(self) -> None:
        self.text = ""

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> None:
        self.text += text

    def flush(self) -> None:
        pass


def looked_at(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """A terminal in place of the standard output, for the test that calls this."""
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    return terminal


def test_plain_without_rich(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = looked_at(monkeypatch)
    monkeypatch.setitem(sys.modules, "rich.console", None)  # as if it were not installed
    main(["check", "3/hour gcra"])
    assert terminal.text.startswith("allowed\nlimit        passes  left")
    assert "\x1b" not in terminal.text


def test_colour_with_rich(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("rich")
    terminal = looked_at(monkeypatch)
    main(["check", "3/hour gcra"])
    assert "\x1b[1;32mallowed" in terminal.text
    terminal.text = ""
    shown.say("a[bold]b\x1b[2J", "red")
    assert "a[bold]b\\x1b[2J" in terminal.text
    terminal.text = ""
    monkeypatch.setenv("NO_COLOR", "1")
    main(["check", "3/hour gcra"])
    assert "\x1b" not in terminal.text
