"""Words of a rule that lean on something outside it: who writes the cost, where a page lies."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from headgate import Facts, Gate
from headgate.integrations.common import refusal
from headgate.rules import RulesError, read_rules
from headgate.rules.model import Cost
from headgate.rules.reading import load_rules
from headgate.rules.sources import FileSource, RedisSource
from servers import Server

PAGE = """
version: 1
rules:
  - {name: all, limit: 1/hour, otherwise: {page: busy.html}}
"""


def costs(said: str) -> Cost:
    text = f"{{version: 1, rules: [{{name: all, limit: 5/hour, cost: {said}}}]}}"
    return read_rules(text).rules[0].cost


def test_whoever_writes_the_header_is_not_unlimited() -> None:
    rules = "{version: 1, rules: [{name: all, limit: 2/hour, cost: {header: X-Cost, least: 1}}]}"
    gate = Gate(read_rules(rules))
    free = Facts(headers={"x-cost": "0"})
    assert [gate.check(free).allowed for _ in range(3)] == [True, True, False]


def test_the_least_of_a_cost() -> None:
    assert costs("{header: X-Cost}").least == 0
    assert costs("{header: X-Cost, least: 1}") == Cost("header", "x-cost", least=1)
    assert costs("{arg: n, least: 5}").default == 5  # who says nothing does not get off lightly
    assert costs("{size: 1KiB, least: 2, most: 9}").least == 2


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        ("{header: X, least: 1, default: 0}", "the default, 0, is less than the least, 1"),
        ("{header: X, least: 5, most: 4}", "the least, 5, is more than the most, 4"),
        ("{header: X, least: -1}", "from 0 to"),
    ],
)
def test_costs_that_cannot_be(said: str, problem: str) -> None:
    with pytest.raises(RulesError, match=problem):
        costs(said)


def refused(gate: Gate) -> bytes:
    assert gate.check(Facts()).allowed
    return refusal(gate, Facts(), gate.check(Facts()), "text/html").body


def test_a_page_lies_beside_its_rules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "conf").mkdir()
    path = tmp_path / "conf" / "rules.yaml"
    path.write_text(PAGE)
    path.with_name("busy.html").write_text("<p>beside</p>")
    (tmp_path / "busy.html").write_text("<p>elsewhere</p>")
    monkeypatch.chdir(tmp_path)
    source = FileSource("conf/rules.yaml")
    for rules in (str(path), "conf/rules.yaml", load_rules(path), source):
        with Gate(rules) as gate:
            assert refused(gate) == b"<p>beside</p>"
    source.stop()
    with Gate(read_rules(PAGE)) as gate:  # of no file: from where the program runs
        assert refused(gate) == b"<p>elsewhere</p>"
    absolute = PAGE.replace("busy.html", str(tmp_path / "busy.html"))
    path.write_text(absolute)
    with Gate(str(path)) as gate:
        assert refused(gate) == b"<p>elsewhere</p>"
    path.write_text(PAGE.replace("busy.html", '"<p>itself</p>"'))
    with Gate(str(path)) as gate:
        assert refused(gate) == b"<p>itself</p>"


def test_rules_from_redis_lie_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder that they were published from means nothing on another machine."""
    (tmp_path / "busy.html").write_text("<p>here</p>")
    monkeypatch.chdir(tmp_path)
    with Server() as server:
        source = RedisSource(server.url, "pages")
        source.publish(PAGE, name="/etc/somewhere/rules.yaml")
        with Gate(source) as gate:
            assert refused(gate) == b"<p>here</p>"
        source.stop()


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_a_broken_file_is_told_once(tmp_path: Path, form: tuple[str, ...]) -> None:
    path = tmp_path / "rules.yaml"
    path.write_text("version: 1\nrules: [{name: all, limit: nonsense}]\n")
    arguments = [sys.executable, "-m", "headgate", "rules", "status", str(path), *form]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=300)
    assert done.returncode == 1
    assert done.stderr == ""
    if form:
        assert "nonsense" in json.loads(done.stdout)["last_error"]
    else:
        assert done.stdout.count("expected a limit") == 1
