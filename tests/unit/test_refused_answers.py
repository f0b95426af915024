"""Answers to refused calls: what goes wrong on the way to one is logged, and still refuses."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from headgate import Facts, Gate
from headgate.integrations.common import refusal


def broken(*_: Any) -> Any:
    raise RuntimeError("no")


async def awaited(_: Facts) -> str:
    return "data"


FUNCTIONS = {"shop:broken": broken, "shop:awaited": awaited, "shop:odd": lambda _: object()}


@pytest.mark.parametrize(
    "otherwise",
    [
        '{"page": "/nowhere/at/all.html"}',
        '{"function": "nowhere:at_all"}',
        '{"function": "shop:broken"}',
        '{"function": "shop:awaited"}',
        '{"function": "shop:odd"}',
    ],
)
def test_an_otherwise_that_fails_is_an_error_of_its_status(
    otherwise: str, caplog: pytest.LogCaptureFixture
) -> None:
    gate = Gate(
        '{"version": 1, "rules": [{"name": "all", "limit": "1/hour", "status": 503,'
        f' "otherwise": {otherwise}}}]}}',
        functions=FUNCTIONS,
    )
    assert gate.check(Facts())
    with caplog.at_level(logging.ERROR, "headgate"):
        answer = refusal(gate, Facts(), gate.check(Facts()), "application/json")
    assert answer.status == 503
    assert json.loads(answer.body)["violated-policies"] == ["all"]
    assert "Retry-After" in dict(answer.headers)
    assert "otherwise of rule all failed" in caplog.text


def test_a_body_that_fails_is_the_usual_one(caplog: pytest.LogCaptureFixture) -> None:
    gate = Gate('{"version": 1, "rules": [{"name": "all", "limit": "1/hour"}]}')
    assert gate.check(Facts())
    answer = refusal(gate, Facts(), gate.check(Facts()), "application/json", broken)
    assert (answer.status, json.loads(answer.body)["status"]) == (429, 429)
    assert "body= failed" in caplog.text
