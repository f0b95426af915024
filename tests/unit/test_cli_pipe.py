"""The command line, when nobody reads what it prints."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest


@pytest.mark.skipif(os.name != "posix", reason="pipes break like this on POSIX")
@pytest.mark.parametrize("flags", [(), ("--json",)])
def test_nobody_reads(flags: tuple[str, ...]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        found = subprocess.run(
            [sys.executable, "-m", "headgate", "check", "1/hour", "--key", "a", *flags],
            stdout=writing, stderr=subprocess.PIPE, text=True, timeout=300,
        )  # fmt: skip
    finally:
        os.close(writing)
    assert (found.returncode, found.stderr) == (141, "")
