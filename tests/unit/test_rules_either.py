"""Rules in either format: a gate, a source and the command take Envoy's files as they are."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headgate import Facts, Gate, RulesError
from headgate.cli import main
from headgate.rules.either import read_either
from headgate.rules.envoy import EnvoySnapshot
from headgate.rules.model import RuleSet
from headgate.rules.sources import FileSource

ENVOY = """# limits of the shop
---
domain: shop
descriptors:
  - key: user
    rate_limit: &few {unit: hour, requests_per_unit: 1}
  - {key: path, value: /cart, rate_limit: *few}
"""
OURS = "version: 1\nrules:\n  - {name: all, limit: 1/hour}\n"
CALL = Facts(domain="shop", entries=(("user", "ann"),))


@pytest.mark.parametrize(
    "text",
    [ENVOY, ENVOY.encode(), '{"domain": "shop", "descriptors": []}', "domain: shop\n"],
)
def test_envoys_is_known_by_its_words(text: str | bytes) -> None:
    assert isinstance(read_either(text), EnvoySnapshot)


@pytest.mark.parametrize("text", [OURS, '{"version": 1}', OURS + "# domain: shop\n"])
def test_our_own(text: str) -> None:
    assert isinstance(read_either(text), RuleSet)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("domain: shop\ndescriptors:\n- kye: a", "x.yaml:3: unknown key 'kye'"),
        ("version: 1\nrulez: []", "x.yaml:2: 'rulez' is unknown"),
        ("version: 1\ndomain: shop", "x.yaml:2: 'domain' is unknown"),
        (b"domain: \xff", "x.yaml: is not a text in UTF-8"),
    ],
)
def test_errors_are_those_of_the_format(text: str | bytes, place: str) -> None:
    with pytest.raises(RulesError) as caught:
        read_either(text, name="x.yaml")
    assert str(caught.value).startswith(place)


def test_a_gate_takes_a_file_and_a_text(tmp_path: Path) -> None:
    path = tmp_path / "limits.yaml"
    path.write_text(ENVOY)
    for rules in (path, ENVOY):
        with Gate(rules) as gate:
            assert [bool(gate.check(CALL)) for _ in range(2)] == [True, False]


def test_a_gate_takes_texts_of_every_format() -> None:
    toml = 'version = 1\n[[rules]]\nname = "all"\nlimit = "1/hour"\n'
    texts = [OURS, toml, '{"version": 1,\n\t"rules": [{"name": "all", "limit": "1/hour"}]}',
             "{version: 1, rules: [{name: all, limit: 1/hour}]}"]  # fmt: skip
    for text in texts:
        assert Gate(text).status()["rules"] == 1
    with pytest.raises(RulesError, match=r"^rules.toml:4: rule 'all': limit: 'hor'"):
        Gate(toml.replace("hour", "hor"))


def test_a_file_without_an_ending_is_looked_into(tmp_path: Path) -> None:
    path = tmp_path / "rules"
    path.write_text('# ours\nversion = 1\n\n[[rules]]\nname = "all"\nlimit = "1/hour"\n')
    assert Gate(path).status()["rules"] == 1


def test_a_source_follows_it(tmp_path: Path) -> None:
    path = tmp_path / "limits.yaml"
    path.write_text(ENVOY)
    source = FileSource(path)
    with Gate(source) as gate:
        assert gate.status()["rules"] == 2
        path.write_text(ENVOY.replace("requests_per_unit: 1", "requests_per_unit: 2"))
        source.check(again=True)
        assert [bool(gate.check(CALL)) for _ in range(3)] == [True, True, False]


def test_the_command_checks_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "limits.yaml"
    path.write_text(ENVOY)
    assert main(["rules", "validate", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rules"] == 2


def test_a_path_may_be_written_encoded() -> None:
    gate = Gate("version: 1\nrules:\n- {name: a, match: {path: /caf%C3%A9/*}, limit: 1/hour}\n")
    assert [bool(gate.check(Facts(path="/café/au-lait"))) for _ in range(2)] == [True, False]
