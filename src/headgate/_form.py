"""Which form runs: the compiled one if it was built and is wanted, else pure Python.

The compiled form is made of the same source files. Where it runs, its modules stand in for
theirs under both names, so nobody else has to choose. This module is imported before any other,
which is why its name sorts first.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

__all__ = ["Form", "compiled"]

PACKAGE = __package__
NATIVE = f"{PACKAGE}._native"


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


class Alias:
    """Loads a module that is another one by a second name."""

    def __init__(self, other: str) -> None:
        self.other = other
        self.spec: ModuleSpec | None = None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = import_module(self.other)
        self.spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self.spec  # it keeps its own


def _alias(other: str) -> Any:
    return Alias(other)  # a loader by what it does: its base class would cost an import


class Compiled:
    """Finds the compiled module where its source is asked for."""

    def __init__(self, modules: Mapping[str, str]) -> None:
        self._names = {
            f"{PACKAGE}.{name}": f"{NATIVE}.{compiled}" for name, compiled in modules.items()
        }

    def find_spec(self, name: str, path: object, target: object = None) -> ModuleSpec | None:
        other = self._names.get(name)
        return None if other is None else ModuleSpec(name, _alias(other))


class Rest:
    """Finds for compiled modules what has one form only: the module of the same name here."""

    def find_spec(self, name: str, path: object, target: object = None) -> ModuleSpec | None:
        if not name.startswith(f"{NATIVE}.") or name == f"{NATIVE}.built":
            return None
        return ModuleSpec(name, _alias(PACKAGE + name.removeprefix(NATIVE)))


def _choose() -> Form:
    """Let the compiled modules stand in for their sources, if they are to."""
    sys.meta_path.append(Rest())
    form = _found()
    if not form:  # what was pickled by the compiled form is read by this one
        sys.meta_path.insert(0, Rest())
    return form


def _found() -> Form:
    if os.environ.get("HEADGATE_PURE", "0") not in ("", "0"):
        return Form(compiled=False, why="HEADGATE_PURE is set")
    try:
        built = import_module(f"{NATIVE}.built")
    except ImportError:
        return Form(compiled=False, why="it was installed without a compiled form")
    try:
        import_module(f"{NATIVE}.{built.FIRST}")
    except ImportError as error:  # built for another interpreter, say
        return Form(compiled=False, why=f"what was built does not load: {error}")
    sys.meta_path.insert(0, Compiled(built.MODULES))
    return Form(compiled=True, why=f"built by Cython {built.CYTHON}")


compiled = _choose()
