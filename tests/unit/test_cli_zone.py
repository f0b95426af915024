"""`headgate zone`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from headgate import Ask, Limit, ManualClock
from headgate.cli import main
from headgate.stores.zone import ZoneStore
from headgate.stores.zone.form import this_form
from headgate.stores.zone.places import FORM, HOLDER

LIMIT = Limit.parse("5/minute")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    store = ZoneStore(tmp_path / "zone", size=1 << 16, clock=ManualClock(1e9), keys=True)
    for number in range(20):
        store.decide([Ask("take", LIMIT, f"user {number % 3}", space="api")])
    store.close()
    return tmp_path / "zone"


def patched(path: Path, place: int, value: int) -> None:
    with path.open("r+b") as file:
        file.seek(place * 8)
        file.write(value.to_bytes(8, "little"))


def test_stat(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = path.read_bytes()
    assert main(["zone", "stat", str(path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(f"{path}: 65,536 bytes, ")
    assert lines[1].split() == ["keys", "3", "kept", "now"]
    assert "keys are kept as text" in lines[-1]
    patched(path, HOLDER, 4711)
    main(["zone", "stat", str(path)])
    assert "held by process 4711" in capsys.readouterr().out
    patched(path, HOLDER, 0)
    assert path.read_bytes() == before


def test_stat_as_json(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["zone", "stat", str(path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["keys"], found["limits"], found["evicted"], found["size"]) == (3, 1, 0, 65536)
    assert found["free_chunks"] + 3 * 2 + 2 == found["chunks"]
    assert 0 < found["fill_percent"] < 5


def test_top(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["zone", "top", str(path), "-n", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(None, 2) for line in lines[1:]] == [
        ["5", "2", "api: 5/minute, user 1"],
        ["5", "2", "api: 5/minute, user 0"],
    ]
    assert main(["zone", "top", str(path), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["key"] for row in rows] == ["user 1", "user 0", "user 2"]


def test_zones_of_the_other_form(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    patched(path, FORM, 3 - this_form().number)
    assert main(["zone", "stat", str(path)]) == 0
    assert main(["zone", "top", str(path)]) == 0
    assert "user 1" in capsys.readouterr().out


def test_a_zone_without_keys(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ZoneStore(tmp_path / "zone", size=1 << 16).close()
    assert main(["zone", "top", str(tmp_path / "zone")]) == 2
    assert "?keys=yes" in capsys.readouterr().out


def test_a_path_of_any_bytes(tmp_path: Path) -> None:
    path = os.path.join(os.fsencode(tmp_path), b"\xff")
    ZoneStore(os.fsdecode(path), size=1 << 16).close()
    command = [sys.executable, "-m", "headgate", "zone", "stat"]
    for name, status in ((path, 0), (path + b"?", 2)):
        run = subprocess.run(
            [*command, name],
            capture_output=True,
            check=False,
            env={**os.environ, "PYTHONIOENCODING": "utf-8:strict"},
        )
        assert (run.returncode, run.stderr) == (status, b"")
        assert rb"\udcff" in run.stdout


def test_no_zone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_bytes(b"hello")
    for action in ("stat", "top"):
        assert main(["zone", action, str(tmp_path / "file")]) == 2
        assert "is not a zone" in capsys.readouterr().out
        assert main(["zone", action, str(tmp_path / "nothing")]) == 2
        assert "No such file" in capsys.readouterr().out
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]
