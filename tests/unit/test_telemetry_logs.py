"""Log lines: JSON whatever is in them, and one for each rule and second."""

from __future__ import annotations

import io
import json
import logging
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from gate_tools import gate_of, rule
from telemetry_tools import ANNA, BERT, Hands

from headgate import Facts
from headgate.rules.model import Lists
from headgate.telemetry.logs import JsonLines, RefusalLog


class Lines:
    """What was logged, as JSON."""

    def __init__(self) -> None:
        self._out = io.StringIO()
        self.handler = logging.StreamHandler(self._out)
        self.handler.setFormatter(JsonLines())

    def taken(self) -> list[dict[str, Any]]:
        text = self._out.getvalue()
        self._out.seek(0)
        self._out.truncate()
        return [json.loads(line) for line in text.splitlines()]


@pytest.fixture
def lines() -> Iterator[Lines]:
    made, logger = Lines(), logging.getLogger("headgate")
    before = logger.level
    logger.addHandler(made.handler)
    logger.setLevel(logging.DEBUG)
    yield made
    logger.removeHandler(made.handler)
    logger.setLevel(before)


def test_one_line_for_each_rule_and_second(lines: Lines) -> None:
    clock = Hands()
    gate = gate_of(rule("api", "1/minute", key="user", log_level="warning"))
    log = RefusalLog(clock=clock).watch(gate)
    for _ in range(6):
        gate.check(ANNA)
    (line,) = lines.taken()
    assert line.pop("at").endswith("Z")
    wait = line.pop("retry_after")
    assert wait == 80  # in a window of which 40 s have passed
    assert line == {
        "level": "warning", "logger": "headgate.refusals", "rule": "api", "result": "refused",
        "message": f"refused by rule api, key anna, retry after {wait:g} s", "key": "anna",
        "why": "1/minute", "method": "GET", "path": "/api/7", "ip": "192.0.2.1", "suppressed": 0,
        "degraded": False,
    }  # fmt: skip
    clock.now += 1
    gate.check(ANNA)
    (line,) = lines.taken()
    assert line["suppressed"] == 4
    log.close()
    gate.check(ANNA)  # the gate's own line is back
    assert [line["logger"] for line in lines.taken()] == ["headgate"]


def test_what_was_left_out_is_said_in_the_end(lines: Lines) -> None:
    clock = Hands()
    gate = gate_of(rule("api", "1/minute"))
    log = RefusalLog(clock=clock).watch(gate)
    for _ in range(4):
        gate.check(ANNA)
    log.flush()  # the second is not over
    assert len(lines.taken()) == 1
    clock.now += 1
    log.flush()
    (line,) = lines.taken()
    assert (line["rule"], line["suppressed"]) == ("api", 2)
    log.flush()
    log.close()
    assert lines.taken() == []


def test_rules_are_apart_and_levels_are_theirs(lines: Lines) -> None:
    gate = gate_of(
        rule("blocked", "9/minute", deny=Lists(users=("bert",)), log_level="error"),
        rule("api", "1/minute", key="user", log_level="debug"),
    )
    log = RefusalLog(keys="masked", clock=Hands()).watch(gate)
    logging.getLogger("headgate").setLevel(logging.INFO)
    for facts in (ANNA, ANNA, BERT):
        gate.check(facts)
    (line,) = lines.taken()
    assert (line["rule"], line["why"], line["level"]) == ("blocked", "deny list", "error")
    assert "retry_after" not in line
    assert "ip" not in line
    log.close()


def test_a_key_cannot_make_a_line_of_its_own(lines: Lines) -> None:
    gate = gate_of(rule("api", "1/minute", key="user"))
    log = RefusalLog(clock=Hands()).watch(gate)
    for _ in range(2):
        gate.check(Facts(user='x\n{"level":"error"}\u2028\x1b[2J', path="/\n"))
    (line,) = lines.taken()
    assert "\n" not in line["key"]
    log.close()


def test_threads_lose_no_count(lines: Lines) -> None:
    gate = gate_of(rule("api", "1/minute"))
    log = RefusalLog(clock=Hands()).watch(gate)
    gate.check(ANNA)
    threads = [
        threading.Thread(target=lambda: [gate.check(ANNA) for _ in range(200)]) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    log.close()
    found = lines.taken()
    assert sum(1 + line["suppressed"] for line in found[:-1]) + found[-1]["suppressed"] == 800


def test_any_record_becomes_a_line(lines: Lines) -> None:
    logger = logging.getLogger("headgate.test")
    try:
        raise ValueError("no\ngood")
    except ValueError:
        logger.exception("it %s", "failed", extra={"thing": {1, 2}, "message_id": 7})
    (line,) = lines.taken()
    assert line["message"] == "it failed"
    assert line["thing"] == "{1, 2}"
    assert line["message_id"] == 7
    assert "ValueError" in line["error"]
