"""A worker killed after any single store into a zone leaves nothing torn, and nobody waiting.

Each kind of write is done by a process that is killed after its first store, then by one that is
killed after its second, and so on until one survives. In the compiled form these are the store
instructions of the code as it is shipped, the lock's own among them.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from .support import FORM, run_helper, why_not_watched
from .support_kinds import KINDS

NAMES = sorted(KINDS)
SHARES = [NAMES[first::4] for first in range(4)]
FEWEST = {"compiled": 8, "pure": 3}
"""Stores of any write: those of the lock and its holder, at least."""


@pytest.mark.skipif(bool(why_not_watched()), reason=why_not_watched())
@pytest.mark.parametrize("names", SHARES, ids=" ".join)
def test_death_after_each_store(names: list[str], tmp_path: Path) -> None:
    lines = run_helper("support_dying", tmp_path, *names).splitlines()
    found = {report["kind"]: report["stores"] for report in map(json.loads, lines)}
    assert sorted(found) == names
    assert min(found.values()) >= FEWEST[FORM], found
