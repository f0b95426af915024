"""Envoy's ratelimit configurations as text: what is read, and errors that name the place."""

from __future__ import annotations

from textwrap import dedent

import pytest

from headgate.errors import RulesError
from headgate.rules.envoy import read_envoy


def test_values_are_texts_as_written() -> None:
    text = "domain: 7\ndescriptors:\n"
    for value in ("1.10", "0404", "no", "true", "2026-01-01", "1_000"):
        text += f"- {{key: v, value: {value}, rate_limit: {{unit: hour, requests_per_unit: 1}}}}\n"
    text += "- {key: v, value: null, rate_limit: {unit: hour, requests_per_unit: 2}}\n"
    snapshot = read_envoy(text)
    for value in ("1.10", "0404", "no", "true", "2026-01-01", "1_000"):
        rule = snapshot.match_descriptor("7", [("v", value)])
        assert rule is not None
        assert rule.requests_per_unit == 1
    bare = snapshot.match_descriptor("7", [("v", "null")])
    assert bare is not None
    assert bare.requests_per_unit == 2


def test_anchors_and_merges() -> None:
    snapshot = read_envoy(
        dedent(
            """
            domain: shop
            descriptors:
              - key: a
                rate_limit: &usual {unit: hour, requests_per_unit: 5}
              - {key: b, rate_limit: *usual}
              - {key: c, rate_limit: {<<: *usual, requests_per_unit: 6}}
            """
        )
    )
    found = [snapshot.match_descriptor("shop", [(key, "1")]) for key in "abc"]
    assert [rule and rule.requests_per_unit for rule in found] == [5, 5, 6]


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("", 0, "empty"),
        ("descriptors: []", 1, "domain"),
        ("domain: ''", 1, "domain"),
        ("[]", 1, "table"),
        ("domain: d\nrules: []", 2, "unknown key 'rules'"),
        ("domain: d\ndomain: e", 2, "twice"),
        ("domain: d\ndescriptors: 5", 2, "list"),
        ("domain: d\ndescriptors:\n- a", 3, "table"),
        ("domain: d\ndescriptors:\n- value: x", 3, "key"),
        ("domain: d\ndescriptors:\n- {key: ''}", 3, "key"),
        ("domain: d\ndescriptors:\n- key: a\n  ratelimit: {}", 4, "did you mean rate_limit"),
        ("domain: d\ndescriptors:\n- key: a\n- key: a", 4, "d.a"),
        ("domain: d\ndescriptors:\n- key: a\n  rate_limit: {unit: era}", 4, "a unit is one of"),
        ("domain: d\ndescriptors:\n- key: a\n  rate_limit: {requests_per_unit: 5}", 4, "unit"),
        (
            "domain: d\ndescriptors:\n- key: a\n  rate_limit: {unlimited: true, unit: day}",
            4,
            "no unit",
        ),
        (
            "domain: d\ndescriptors:\n- key: a\n  rate_limit:\n    unit: day\n"
            "    requests_per_unit: -5",
            6,
            "whole number",
        ),
        (
            "domain: d\ndescriptors:\n- key: a\n  rate_limit:\n    unit: day\n"
            "    requests_per_unit: 4294967296",
            6,
            "whole number",
        ),
        (
            "domain: d\ndescriptors:\n- key: a\n  rate_limit: {unit: year, requests_per_unit: "
            "4294967295}",
            3,
            "too large",
        ),
        ("domain: d\ndescriptors:\n- key: a\n  shadow_mode: maybe", 4, "true or false"),
        ("domain: d\ndescriptors:\n- key: a\n  share_threshold: true", 4, "ends in *"),
        (
            "domain: d\ndescriptors:\n- key: a\n  rate_limit:\n    unit: day\n    name: n\n"
            "    replaces:\n    - name: n",
            8,
            "itself",
        ),
        (
            "domain: d\ndescriptors:\n- key: a\n  rate_limit:\n    unit: day\n"
            "    replaces:\n    - name: ''",
            7,
            "name",
        ),
        ("domain: [d", 0, "not YAML"),
        ("domain: d\n--- \ndomain: e", 2, "not YAML"),
        ("domain: d\n\x07", 0, "not YAML"),
        ("domain: d\ndescriptors: &a [{key: k, descriptors: *a}]", 2, "too deep"),
        ("domain: &a {<<: *a}", 1, ""),
        ("? [x]\n: y", 1, "unknown key"),
    ],
)
def test_errors_name_the_place(text: str, line: int, words: str) -> None:
    with pytest.raises(RulesError) as caught:
        read_envoy(text, "limits.yaml")
    assert caught.value.file == "limits.yaml"
    assert words in str(caught.value)
    if line:
        assert caught.value.line == line


def test_anchors_that_multiply_are_refused_at_once() -> None:
    text = "domain: d\ndescriptors:\n- &x0 {key: a}\n"
    for n in range(1, 20):
        inner = ", ".join([f"*x{n - 1}"] * 9)
        text += f"- &x{n} {{key: k{n}, descriptors: [{inner}]}}\n"
    with pytest.raises(RulesError):
        read_envoy(text)


def test_deep_nesting_is_refused() -> None:
    with pytest.raises(RulesError):
        read_envoy("domain: " + "[" * 100_000)
