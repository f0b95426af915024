"""Eight processes of four threads each: exactly what the limit allows is admitted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from .support import FORM, run_helper
from .support_exact import CASES, EACH, PROCESSES, SHARE, THREADS

ALL = PROCESSES * THREADS
CALLS = {
    "compiled": {"words": 4000, "spread": 150, "words-keys": 1000, "spread-keys": 250},
    "pure": {"words": 25, "spread": 25, "words-keys": 250, "spread-keys": 250},
}
"""How often each thread calls."""


def calls_of(case: str) -> int:
    """Few enough to end soon, enough to meet one another."""
    if case == "permits":
        return 10
    kind = "spread" if case.startswith(("log", "cells")) else "words"
    return CALLS[FORM][kind + ("-keys" if case.endswith("keys") else "")]


@pytest.mark.parametrize("case", CASES)
def test_exactly_the_limit(case: str, tmp_path: Path) -> None:
    calls = calls_of(case)
    admitted = json.loads(run_helper("support_exact", tmp_path, case, calls))
    if case == "permits":
        assert admitted[0] == ALL * calls  # and never too many at once, as the helper has seen
    elif case.endswith("keys"):
        assert set(admitted) == {EACH}
    else:
        assert admitted[0] == int(ALL * calls * SHARE)
        assert not any(admitted[1:])
