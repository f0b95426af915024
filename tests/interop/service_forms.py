"""How the service is started in another form: without pyvoy, or with rules that nobody follows.

Its processes read `sitecustomize` as every Python does, from a folder of the test's own.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

__all__ = ["FORMS", "NOBODY_FOLLOWS", "in_form"]

FORMS = ("pyvoy", "grpcio")
NO_PYVOY = "import sys\nsys.modules['pyvoy'] = None\n"
NOBODY_FOLLOWS = (
    "from headgate.rules.following import Source\n"
    "Source.every = 3600.0  # who is not told does not look\n"
)


def in_form(patch: pytest.MonkeyPatch, folder: Path, form: str, *more: str) -> None:
    """Whatever is started from now on has this form."""
    lines = [NO_PYVOY] if form == "grpcio" else []
    (folder / "sitecustomize.py").write_text("".join([*lines, *more]))
    path = os.environ.get("PYTHONPATH", "")
    patch.setenv("PYTHONPATH", f"{folder}{os.pathsep}{path}" if path else str(folder))
