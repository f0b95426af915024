"""The pure form beside the compiled one: the whole package a second time, under another name."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from typing import Any

import headgate

__all__ = ["pure"]

NAME = "headgate_pure"


def pure() -> Any:
    """headgate as pure Python, whichever form runs under its own name."""
    if NAME in sys.modules:
        return sys.modules[NAME]
    place = Path(headgate.__file__).parent
    spec = importlib.util.spec_from_file_location(
        NAME, place / "__init__.py", submodule_search_locations=[str(place)]
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[NAME] = module
    before = os.environ.get("HEADGATE_PURE")
    os.environ["HEADGATE_PURE"] = "1"
    try:
        spec.loader.exec_module(module)
    finally:
        if before is None:
            del os.environ["HEADGATE_PURE"]
        else:
            os.environ["HEADGATE_PURE"] = before
    assert not module.compiled
    return module
