"""Workers are killed at random 200 times while others decide: every bound holds all the same."""

from __future__ import annotations

import json
from pathlib import Path

from .support import run_helper

KILLS = 200


def test_random_kills(tmp_path: Path) -> None:
    report = json.loads(run_helper("support_kills", tmp_path, KILLS))
    assert report["admitted"] > 10 * KILLS, report
