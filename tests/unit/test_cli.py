"""The command line."""

from __future__ import annotations

import json

import pytest

from headgate.cli import main
from headgate.cli.loadcheck import Report, check, presets


def test_load_check_prints_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    status = main(["loadcheck", "--threads", "2", "--seconds", "0.5", "--pause", "1"])
    lines = capsys.readouterr().out.splitlines()
    assert status == 0
    assert lines[0] == "2 threads x 0.5 s, pauses of 0 to 1 ms"
    assert [line[:14].strip() for line in lines[3:]] == list(presets(20, 10, 100))
    assert all("  good " in line for line in lines[3:])


def test_load_check_prints_json(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--threads", "3", "--requests", "50", "--pause", "0", "--json"]
    assert main(["loadcheck", "7/hour", "9/hour gcra", *arguments]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert (rows["7/hour"]["passed"], rows["7/hour"]["limited"]) == (7, 143)
    assert (rows["9/hour gcra"]["passed"], rows["9/hour gcra"]["good"]) == (9, True)


def test_load_check_after_draining() -> None:
    report = check("1000/second burst 100000", threads=2, seconds=0.3, pause=0.001, drained=True)
    assert report.passed < 1000
    assert report.good


def test_a_bad_verdict_is_bad() -> None:
    assert not Report("20/second", 5.0, passed=400, limited=3600, least=80, most=141).good
    assert not Report("20/second", 5.0, passed=10, limited=3990, least=80, most=141).good


def test_a_bad_limit(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["loadcheck", "many/second"]) == 2
    assert "expected a limit such as '100/minute'" in capsys.readouterr().out


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["--version"])
    assert capsys.readouterr().out.startswith("headgate 0.1.0")
