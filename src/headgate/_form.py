"""Which form runs: the compiled one if it was built and is wanted, else pure Python.

The compiled form is made of the same source files. Where it runs, its modules stand in for
theirs under both names, so nobody else has to choose. This module is imported before any other,
which is why its name sorts first.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module

__all__ = ["Form", "attach", "compiled"]

PACKAGE = __package__
NATIVE = f"{PACKAGE}._native"
VALUES = ("errors", "calendar", "options", "language", "limit", "keys", "clock")
"""Modules that compiled ones import, and that have one form only."""


class Form:
    """Whether the compiled form runs, and why; true if it does."""

    __slots__ = ("compiled", "why")

    def __init__(self, *, compiled: bool, why: str) -> None:
        self.compiled = compiled
        self.why = why

    def __bool__(self) -> bool:
        return self.compiled

    def __repr__(self) -> str:
        return f"<{'compiled' if self.compiled else 'pure Python'}: {self.why}>"


def _choose() -> Form:
    """Let the compiled modules stand in for their sources, if they are to."""
    if os.environ.get("HEADGATE_PURE", "0") not in ("", "0"):
        return Form(compiled=False, why="HEADGATE_PURE is set")
    try:
        built = import_module(f"{NATIVE}.built")
    except ImportError:
        return Form(compiled=False, why="it was installed without a C compiler")
    native = sys.modules[NATIVE]
    for name in VALUES:
        value = import_module(f"{PACKAGE}.{name}")
        sys.modules[f"{NATIVE}.{name}"] = value
        setattr(native, name, value)
    try:
        for name, compiled in built.MODULES.items():
            sys.modules[f"{PACKAGE}.{name}"] = import_module(f"{NATIVE}.{compiled}")
    except ImportError as error:  # built for another interpreter, say
        for name in built.MODULES:
            sys.modules.pop(f"{PACKAGE}.{name}", None)
        return Form(compiled=False, why=f"what was built does not load: {error}")
    return Form(compiled=True, why=f"built by Cython {built.CYTHON}")


def attach() -> None:
    """Let packages know the modules that stand in, as an import by itself would have done."""
    built = sys.modules.get(f"{NATIVE}.built")
    for name in built.MODULES if built is not None else ():
        module = sys.modules.get(f"{PACKAGE}.{name}")
        package, _, own = f"{PACKAGE}.{name}".rpartition(".")
        if module is not None and package in sys.modules:
            setattr(sys.modules[package], own, module)


compiled = _choose()
