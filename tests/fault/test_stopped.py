"""A worker stopped in the middle of a decision is an error that names it, and no hang."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from .support import run_helper, why_not_watched


@pytest.mark.skipif(bool(why_not_watched()), reason=why_not_watched())
def test_stopped_after_each_store(tmp_path: Path) -> None:
    report = json.loads(run_helper("support_stopped", tmp_path))
    assert report["held"] > 50, report  # from the first store to the last, but for the unlocking
